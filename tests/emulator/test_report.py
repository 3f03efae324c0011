"""Reports: exact counts, a timeline that hangs together, and text, SVG and JSON of both."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as xml

import numpy as np
import pytest

import tilec
from tests.emulator.pace import TABLE, measured, predicted, rows
from tests.emulator.subjects import EXAMPLES
from tilec.emulator.launch import Bits, BufferPointer, Launch, start
from tilec.emulator.parse import parse_ptx
from tilec.emulator.report import latencies as model
from tilec.emulator.report.record import Recorder
from tilec.emulator.report.replay import WAITS, WORKS, Timed, replay
from tilec.emulator.report.report import Report, as_json, as_svg, report_of
from tilec.emulator.schedule import Choice
from tilec.emulator.table import ROWS, load_rows
from tilec.source import SourceFile

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs" / "emulator.md"
ORDERS = (("in order", 0), ("late", 0), ("random", 1))


def head(name: str, threads: int, parameters: str) -> str:
    """The begin of a text, up to its registers."""
    return f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry {name}({parameters}) .maxntid {threads}
{{
  .shared .align 16 .b8 held[4096];
  .reg .pred %p0;
  .reg .b32 %r<8>;
  .reg .f32 %f<4>;
  .reg .b64 %d<6>;
"""


SCALE = (
    head("scale", 64, ".param .b64 x, .param .b64 y, .param .f32 by")
    + """
  ld.param.b64 %d0, [x];
  ld.param.b64 %d1, [y];
  ld.param.f32 %f0, [by];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %d2, %r0, 4;
  add.s64 %d3, %d0, %d2;
  ld.global.f32 %f1, [%d3];
  mul.rn.f32 %f2, %f1, %f0;
  add.s64 %d4, %d1, %d2;
  st.global.f32 [%d4], %f2;
  ret;
}
"""
)


def emulated(text: str, values: tuple[object, ...], **arrays: np.ndarray) -> tuple[Report, Timed]:
    """A text of one kernel, run on one CTA."""
    source = SourceFile("k.ptx", text)
    (program,) = parse_ptx(source).values()
    buffers = {name: a.reshape(-1).view(np.uint8) for name, a in arrays.items()}
    launch = Launch((1, 1, 1), program.max_threads, 0, values, buffers)  # type: ignore[arg-type]
    recorder = Recorder(program)
    findings, _ = start(program, source, launch, recorder=recorder)
    assert [f.message for f in findings] == []
    return report_of(program, source, recorder), replay(program, recorder)[0]


def scaled() -> tuple[Report, Timed]:
    by = Bits(np.float32(2).tobytes())
    values = (BufferPointer("x"), BufferPointer("y"), by)
    return emulated(SCALE, values, x=np.ones(64, np.float32), y=np.zeros(64, np.float32))


@cache
def subject(name: str, order: str = "in order", seed: int = 0) -> tuple[Report, tuple[Timed, ...]]:
    """An example, recorded."""
    made = EXAMPLES[name]()
    launch, _ = made.fresh()
    recorder = Recorder(made.program)
    start(made.program, made.text, launch, Choice(order, seed), recorder=recorder)
    timed = tuple(replay(made.program, recorder))
    return report_of(made.program, made.text, recorder), timed


# --- counts --------------------------------------------------------------------------------------


def test_a_copy_moves_its_bytes_once() -> None:
    report, _ = scaled()
    read = {line.line: line.read["global"] for line in report.lines if line.read}
    written = {line.line: line.written["global"] for line in report.lines if line.written}
    assert list(read.values()) == [256]
    assert list(written.values()) == [256]
    assert all(line.issued == 2 for line in report.lines), "two warps take each instruction once"
    assert sum(line.wasted for line in report.lines) == 0


def test_products_are_counted_by_type() -> None:
    report, _ = subject("gemm")
    assert report.macs == {"bf16": 256 * 256 * 5 * 64}
    (line,) = [line for line in report.lines if line.macs]
    assert line.text == "acc += a[i, k] @ b[j, k].T"
    blocks = 2 * 5  # two tiles of 128 by 256
    assert line.read["tensor map"] == blocks * (128 + 256) * 64 * 2
    assert line.written["shared"] == line.read["tensor map"]
    per_product = (64 + 256) * 32
    assert line.read["shared"] == blocks * 2 * 4 * per_product


def test_stores_are_counted_where_the_program_stores() -> None:
    report, _ = subject("gemm")
    (line,) = [line for line in report.lines if line.written["global"]]
    assert (line.file, line.line) == ("gemm.tk", 9)
    assert line.written["global"] == 256 * 256 * 2


STRIDED = """
  ld.param.b64 %d0, [x];
  mov.u32 %r0, %tid.x;
  shl.b32 %r1, %r0, 7;
  mov.u32 %r2, held;
  add.u32 %r2, %r2, %r1;
  st.shared.b32 [%r2], %r0;
  ld.shared.b32 %r3, [%r2];
  mul.wide.u32 %d1, %r0, 128;
  add.s64 %d1, %d0, %d1;
  st.global.b32 [%d1], %r3;
  ret;
}
"""


def test_conflicts_and_sectors_are_counted() -> None:
    text = head("k", 32, ".param .b64 x") + STRIDED
    report, _ = emulated(text, (BufferPointer("x"),), x=np.zeros(4096, np.uint8))
    conflicts = [line.conflicts for line in report.lines if line.conflicts]
    assert conflicts == [31, 31], "32 lanes ask one bank, to write and to read"
    (store,) = [line for line in report.lines if line.sectors]
    assert (store.sectors, store.wasted) == (32, 28), "128 bytes fill four sectors"


# --- time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_warp_is_somewhere_at_every_moment(name: str) -> None:
    _, timed = subject(name)
    for cta in timed:
        for spans in cta.warps.values():
            assert spans[0].start == 0
            assert all(before.end == after.start for before, after in pairwise(spans))
            assert all(span.start < span.end for span in spans)
            assert {span.what for span in spans} <= {WORKS, *WAITS}
        assert not cta.unfinished
        total = sum(span.end - span.start for spans in cta.warps.values() for span in spans)
        assert total == pytest.approx(sum(cta.spent.values()))
        assert total == pytest.approx(sum(spans[-1].end for spans in cta.warps.values()))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_engine_does_one_thing_at_a_time(name: str) -> None:
    report, timed = subject(name)
    for cta in timed:
        for spans in cta.engines.values():
            assert all(before.end < after.start for before, after in pairwise(spans))
            assert all(span.end <= cta.cycles for span in spans)
    for line in report.timelines:
        for row in line.of("stage"):
            assert all(before.end <= after.start for before, after in pairwise(row.spans))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_order_of_a_run_says_nothing_about_time(name: str) -> None:
    found = {
        order: sorted((t.trace.index, t.cycles) for t in subject(name, *order)[1])
        for order in ORDERS
    }
    if len(subject(name)[1]) > 1:  # which of several CTAs fetches a line is another matter
        found = {order: [(i, round(c / 10)) for i, c in each] for order, each in found.items()}
    assert len({tuple(each) for each in found.values()}) == 1, found


def test_tensor_cores_are_busy_as_long_as_their_products_take() -> None:
    _, (cta,) = subject("gemm")
    busy = sum(span.end - span.start for span in cta.engines["tensor cores"])
    assert busy == 2 * 5 * 2 * 4 * 128, "tiles, blocks of K, warpgroups, products of 128 cycles"


def test_a_product_begins_when_its_operands_are_there_and_a_wait_ends_after_it() -> None:
    _, (cta,) = subject("gemm")
    first = cta.engines["tensor cores"][0]
    full = min(end for mark, (_, end) in cta.marks.items() if mark.kind == "mbarrier")
    assert first.start > full > model.MEMORY_LATENCY
    begun = {m: b for m, (b, _) in cta.marks.items() if m.kind == "products"}
    assert min(begun.values()) <= first.start
    waits = [s.end for s in cta.warps[4] if s.what == "products"]
    assert waits[0] >= first.start + 4 * 128


ONE_LATE = """
  mov.u32 %r0, %tid.x;
  setp.lt.u32 %p0, %r0, 32;
  @%p0 bra $meet;
  membar.gl;
  membar.gl;
$meet:
  bar.sync 0, 64;
  ret;
}
"""


def test_who_comes_first_to_a_barrier_waits_for_the_other() -> None:
    _, cta = emulated(head("k", 64, "") + ONE_LATE, ())
    totals = [sum(s.end - s.start for s in cta.warps[w] if s.what == "barrier") for w in (0, 1)]
    fence = model.COSTS["fence"].latency
    assert 2 * fence <= totals[0] - totals[1] <= 2 * fence + 4
    assert cta.warps[0][-1].end == pytest.approx(cta.warps[1][-1].end, abs=4)


def test_a_load_takes_its_latency() -> None:
    _, cta = scaled()
    store = max(s.end for s in cta.warps[0] if s.what == "operands")
    assert model.MEMORY_LATENCY < store < model.MEMORY_LATENCY + 100


HANGS = """
  mov.u32 %r0, %tid.x;
  setp.lt.u32 %p0, %r0, 32;
  @%p0 bra $end;
  bar.sync 0, 64;
$end:
  ret;
}
"""


def test_of_a_run_that_hangs_there_is_a_report_as_far_as_it_went() -> None:
    source = SourceFile("k.ptx", head("k", 64, "") + HANGS)
    (program,) = parse_ptx(source).values()
    recorder = Recorder(program)
    launch = Launch((1, 1, 1), (64, 1, 1), 0, (), {})
    findings, _ = start(program, source, launch, recorder=recorder)
    assert "deadlock" in [f.kind for f in findings]
    report = report_of(program, source, recorder)
    assert report.timelines[0].unfinished
    assert "the run ended before all warps did" in report.text()


def test_every_instruction_has_a_cost() -> None:
    load_rows()
    assert {name for _, _, name in model.RULES} <= model.COSTS.keys()
    assert model.COSTS.keys() >= model.FLOWS
    (program,) = parse_ptx(SourceFile("k.ptx", SCALE)).values()
    classes = {at.opcode: model.class_of(at) for at in program.instructions}
    assert classes["mul.rn.f32"] == "fma"
    assert classes["add.s64"] == "add"
    assert classes["mul.wide.u32"] == "multiply"
    assert classes["ld.param.b64"] == "free"
    assert classes["ld.global.f32"] == "global load"
    known = {opcode for opcode, _, _ in model.RULES}
    loads = {opcode for opcode in ROWS if opcode.startswith(("mbarrier", "wgmma", "cp.async"))}
    assert all(any(opcode.startswith(k) for k in known) for opcode in loads)


@pytest.mark.parametrize(
    ("n", "registers", "cycles"),
    [(256, False, 128.1), (64, False, 32.07), (32, False, 24.06), (16, True, 13.05)],
)
def test_products_take_what_was_measured(n: int, registers: bool, cycles: float) -> None:
    shape = model.Shape(64, n, 16, "bf16", registers)
    assert model.product_cycles(shape) == pytest.approx(cycles, rel=0.02)


def test_gemm_is_predicted_in_the_right_region() -> None:
    assert predicted() == pytest.approx(measured(), rel=0.15)
    page = PAGE.read_text(encoding="utf-8")
    begin, end = TABLE
    assert page.split(begin)[1].split(end)[0].strip() == rows(), "python -m tests.emulator.pace"


# --- forms ---------------------------------------------------------------------------------------

GOLDEN = """\
scale: 1 CTA

line      issued  works %  waits %  global read  global written
k.ptx:12       2      0.0      0.0                               ld.param.b64 %d0, [x];
k.ptx:13       2      0.0      0.0                               ld.param.b64 %d1, [y];
k.ptx:14       2      0.0      0.0                               ld.param.f32 %f0, [by];
k.ptx:15       2      0.0      0.0                               mov.u32 %r0, %tid.x;
k.ptx:16       2      0.2      0.0                               mul.wide.u32 %d2, %r0, 4;
k.ptx:17       2      0.2      0.0                               add.s64 %d3, %d0, %d2;
"""


def test_the_text_of_a_small_kernel() -> None:
    report, _ = scaled()
    text = report.text()
    assert text.startswith(GOLDEN), text
    assert "CTA (0, 0, 0): " in text
    (row,) = [line for line in text.splitlines() if line.startswith("warps 0-1") and "|" in line]
    assert row.count("o") > 80, "it waits for its load nearly all the time"


def test_of_a_long_text_the_lines_that_take_time_are_shown() -> None:
    nothing = "  add.u32 %r1, %r0, 1;\n" * 80
    text = head("k", 32, "") + "  mov.u32 %r0, %tid.x;\n" + nothing + "  membar.gl;\n  ret;\n}"
    report, _ = emulated(text, ())
    assert len(report.lines) == 83
    shown = report.text()
    assert "23 lines that take less time are left out" in shown
    assert "membar.gl;" in shown


def test_how_many_ctas_fit_on_an_sm() -> None:
    assert model.room(1024, 0) == 2
    assert model.room(128, 113 * 1024) == 2
    assert model.room(128, 114 * 1024) == 1
    assert model.room(32, 0) == 32


def test_svg_is_well_formed_and_has_all_rows() -> None:
    report, _ = subject("attention")
    root = xml.fromstring(as_svg([report, report]))
    said = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
    for row in report.timelines[0].rows:
        assert said.count(row.name) == 2, "once a launch"
    width = float(root.attrib["width"])
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        if "x" in box.attrib:
            assert 0 <= float(box.attrib["x"]) + float(box.attrib["width"]) <= width


def _keys(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {k for each in value.values() for k in _keys(each)}
    return {k for each in value for k in _keys(each)} if isinstance(value, list) else set()


def test_json_is_plain_and_every_key_is_documented() -> None:
    report, _ = subject("gemm")
    held = json.loads(json.dumps(as_json([report])))
    page = PAGE.read_text(encoding="utf-8").split("### The JSON")[1].split("\n## ")[0]
    spaces = {"global", "shared", "tensor map"}
    undocumented = {k for k in _keys(held) if f"`{k}`" not in page} - spaces - {"bf16"}
    assert undocumented - {WORKS, *WAITS, "filling", "held", "busy"} == set()
    (launch,) = held["launches"]
    assert launch["timelines"][0]["roles"][0]["name"] == "producer, warp 0"
    assert launch["macs"] == report.macs


def test_a_call_from_python_reports_each_launch() -> None:
    gemm = tilec.load(str(CHECKOUT / "examples" / "gemm.tk")).gemm
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, 64)).astype(np.float16) for n in (32, 16))
    c = np.empty((32, 16), np.float16)
    made = tilec.report(gemm, a, b, c)
    assert np.allclose(c, a.astype(np.float32) @ b.astype(np.float32).T, atol=0.2)
    (launch,) = made.launches
    assert launch.macs["f16"] % (32 * 16 * 64) == 0
    assert made.text().startswith("gemm: ")
    assert made.as_json()["version"] == 1
    assert xml.fromstring(made.svg()).tag.endswith("svg")
