"""Small PTX kernels for the hardware experiments, written as text.

Idea: each kernel moves bytes in, executes the instruction in question, and moves bytes out; the
host prepares and judges the bytes.  What varies between experiments (descriptors, coordinates) is a
parameter, so that one kernel serves many of them.

Invariants: all kernels assemble for sm_90a without warnings; waits are bounded by the supervised
child's time limit.

Never: uses the compiler's emitter; an error there must not hide here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.gpu.fact_images import IMAGE_BYTES, STEPS

HEADER = """.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
"""
_REGISTERS = """  .reg .pred %p<8>;
  .reg .b16 %h<16>;
  .reg .b32 %r<96>;
  .reg .b64 %d<32>;
"""
BARRIER_PLACE = IMAGE_BYTES - 16
DUMP_BYTES = 32768


@dataclass(frozen=True)
class Kernel:
    """One entry: its name, the kinds of its parameters, and its text."""

    name: str
    kinds: tuple[str, ...]
    text: str


def module_text(kernels: Iterable[Kernel]) -> str:
    """One PTX module holding the kernels."""
    return HEADER + "\n".join(kernel.text for kernel in kernels)


def entry(name: str, kinds: Sequence[str], threads: int, body: str, more: str = "") -> Kernel:
    """An entry whose parameters are p0, p1, …, with %p, %h, %r and %d registers declared."""
    widths = {"ptr": ".u64", "u64": ".u64", "u32": ".u32", "s32": ".s32", "b32": ".b32"}
    parameters = []
    for index, kind in enumerate(kinds):
        if kind == "map":
            parameters.append(f"  .param .align 64 .b8 p{index}[128]")
        else:
            parameters.append(f"  .param {widths[kind]} p{index}")
    text = (
        f".visible .entry {name}(\n" + ",\n".join(parameters) + f"\n) .reqntid {threads},1,1 {more}"
        f"\n{{\n{_REGISTERS}{body}  ret;\n}}\n"
    )
    return Kernel(name, tuple(kinds), text)


def _copy_in(pointer: str, size_bytes: int, label: str) -> str:
    """128 threads copy an image from global memory to the base of shared memory."""
    return f"""  mov.u32 %r0, %tid.x;
  mov.u32 %r1, smem;
  ld.param.u64 %d0, [{pointer}];
  shl.b32 %r2, %r0, 4;
{label}:
  cvt.u64.u32 %d1, %r2;
  add.u64 %d1, %d0, %d1;
  ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%d1];
  add.u32 %r3, %r1, %r2;
  st.shared.v4.b32 [%r3], {{%r4, %r5, %r6, %r7}};
  add.u32 %r2, %r2, 2048;
  setp.lt.u32 %p0, %r2, {size_bytes};
  @%p0 bra {label};
  fence.proxy.async.shared::cta;
  bar.sync 0;
"""


def _copy_out(pointer: str, size_bytes: int, label: str) -> str:
    return f"""  ld.param.u64 %d0, [{pointer}];
  shl.b32 %r2, %r0, 4;
{label}:
  add.u32 %r3, %r1, %r2;
  ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r3];
  cvt.u64.u32 %d1, %r2;
  add.u64 %d1, %d0, %d1;
  st.global.v4.b32 [%d1], {{%r4, %r5, %r6, %r7}};
  add.u32 %r2, %r2, 2048;
  setp.lt.u32 %p0, %r2, {size_bytes};
  @%p0 bra {label};
"""


# --- wgmma ---------------------------------------------------------------------------------------

#: Instruction K by dtype of A.
INSTRUCTION_K = {"bf16": 16, "f16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}


@dataclass(frozen=True)
class Wgmma:
    """One form of the instruction.  `a_in_registers` is the RS form."""

    a: str
    b: str
    n: int
    transpose_a: bool = False
    transpose_b: bool = False
    a_in_registers: bool = False

    @property
    def name(self) -> str:
        """A name that is unique among the forms."""
        majors = f"{'m' if self.transpose_a else 'k'}{'n' if self.transpose_b else 'k'}"
        form = "rs" if self.a_in_registers else "ss"
        return f"wgmma_{form}_{self.a}_{self.b}_{majors}_n{self.n}"

    @property
    def is_integer(self) -> bool:
        """Whether the accumulator is s32."""
        return self.a in ("s8", "u8")

    def instruction(self, a: str, b: str, scale: str) -> str:
        """The instruction's text on the given operands."""
        accumulator = ", ".join(f"%a{i}" for i in range(self.n // 2))
        kind = "s32" if self.is_integer else "f32"
        operands = [f"{{{accumulator}}}", a, b, scale]
        if not self.is_integer:
            operands += ["1", "1"]
        if self.a in ("bf16", "f16"):
            if not self.a_in_registers:
                operands.append(str(int(self.transpose_a)))
            operands.append(str(int(self.transpose_b)))
        shape = f"m64n{self.n}k{INSTRUCTION_K[self.a]}"
        return (
            f"  wgmma.mma_async.sync.aligned.{shape}.{kind}.{self.a}.{self.b} "
            f"{', '.join(operands)};\n"
        )


#: Parameters: image, output, descriptor a, descriptor b, then the offsets of a's and b's k steps in
#: 16-byte units, then "accumulate" (0 or 1) and the initial value of every accumulator register.
_WGMMA_KINDS = ("ptr", "ptr", "u64", "u64", *("u32",) * (2 * STEPS), "u32", "b32")


def wgmma_kernel(form: Wgmma) -> Kernel:
    """Four k steps over an image of A and B; registers come out as [register][thread]."""
    count = form.n // 2
    flag, initial = 4 + 2 * STEPS, 5 + 2 * STEPS
    body = f"  .reg .b32 %a<{count}>;\n" + _copy_in("p0", IMAGE_BYTES, "IN")
    body += f"""  and.b32 %r8, %r1, 0x3ffff;
  shr.u32 %r8, %r8, 4;
  cvt.u64.u32 %d2, %r8;
  ld.param.u64 %d3, [p2];
  add.u64 %d3, %d3, %d2;
  ld.param.u64 %d4, [p3];
  add.u64 %d4, %d4, %d2;
  ld.param.u32 %r9, [p{flag}];
  setp.ne.u32 %p1, %r9, 0;
  ld.param.b32 %r10, [p{initial}];
"""
    body += "".join(f"  mov.b32 %a{i}, %r10;\n" for i in range(count))
    for step in range(STEPS):
        body += f"""  ld.param.u32 %r11, [p{4 + step}];
  cvt.u64.u32 %d5, %r11;
  add.u64 %d{8 + step}, %d3, %d5;
  ld.param.u32 %r11, [p{4 + STEPS + step}];
  cvt.u64.u32 %d5, %r11;
  add.u64 %d{16 + step}, %d4, %d5;
"""
        if form.a_in_registers:
            body += "  mad.lo.u32 %r12, %r0, 4, %r1;\n" if step == 0 else ""
            for register in range(4):
                offset = (step * 4 + register) * 512
                body += f"  ld.shared.b32 %r{32 + 4 * step + register}, [%r12+{offset}];\n"
    body += "  wgmma.fence.sync.aligned;\n"
    for step in range(STEPS):
        first = 32 + 4 * step
        registers = f"{{{', '.join(f'%r{first + r}' for r in range(4))}}}"
        a = registers if form.a_in_registers else f"%d{8 + step}"
        body += form.instruction(a, f"%d{16 + step}", "%p1" if step == 0 else "1")
    body += """  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  ld.param.u64 %d0, [p1];
  mul.wide.u32 %d1, %r0, 4;
  add.u64 %d0, %d0, %d1;
"""
    body += "".join(f"  st.global.b32 [%d0+{512 * i}], %a{i};\n" for i in range(count))
    return entry(form.name, _WGMMA_KINDS, 128, body)


def chained_s8_kernel() -> Kernel:
    """S = A Bᵀ in s8 over K = 32 and N = 32, then S (as s8) times V without moving registers.

    B lies at B_PLACE (32 rows), V at B_PLACE + 8192 (64 rows, its K in the permuted order); both
    K-major without swizzle over one k step.  Parameters: image, output, descriptors a, b, v.
    """
    first, second = Wgmma("s8", "s8", 32), Wgmma("s8", "s8", 64, a_in_registers=True)
    body = "  .reg .b32 %a<32>;\n  .reg .b32 %s<16>;\n" + _copy_in("p0", IMAGE_BYTES, "IN")
    body += "  and.b32 %r8, %r1, 0x3ffff;\n  shr.u32 %r8, %r8, 4;\n  cvt.u64.u32 %d2, %r8;\n"
    for index, register in enumerate((3, 4, 5)):
        body += f"  ld.param.u64 %d{register}, [p{2 + index}];\n"
        body += f"  add.u64 %d{register}, %d{register}, %d2;\n"
    body += "  wgmma.fence.sync.aligned;\n"
    body += first.instruction("%d3", "%d4", "0").replace("%a", "%s")
    body += "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n"
    for half in range(2):
        for row in range(2):
            low, high = 8 * half + 2 * row, 8 * half + 4 + 2 * row
            body += f"""  prmt.b32 %r20, %s{low}, %s{low + 1}, 0x0040;
  prmt.b32 %r21, %s{high}, %s{high + 1}, 0x0040;
  prmt.b32 %r{32 + 2 * half + row}, %r20, %r21, 0x5410;
"""
    body += "  wgmma.fence.sync.aligned;\n"
    body += second.instruction("{%r32, %r33, %r34, %r35}", "%d5", "0")
    body += """  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  ld.param.u64 %d0, [p1];
  mul.wide.u32 %d1, %r0, 4;
  add.u64 %d0, %d0, %d1;
"""
    body += "".join(f"  st.global.b32 [%d0+{512 * i}], %a{i};\n" for i in range(32))
    return entry("chained_s8", ("ptr", "ptr", "u64", "u64", "u64"), 128, body)


# --- TMA -----------------------------------------------------------------------------------------


def tma_load_kernel(rank: int) -> Kernel:
    """Load one box into poisoned shared memory and dump it.

    Parameters: map, output, `rank` coordinates, bytes expected.
    """
    coordinates = ", ".join(f"%r{16 + axis}" for axis in range(rank))
    body = f"""  mov.u32 %r0, %tid.x;
  mov.u32 %r1, smem;
  shl.b32 %r2, %r0, 4;
  mov.b32 %r4, 0xeeeeeeee;
POISON:
  add.u32 %r3, %r1, %r2;
  st.shared.v4.b32 [%r3], {{%r4, %r4, %r4, %r4}};
  add.u32 %r2, %r2, 2048;
  setp.lt.u32 %p0, %r2, {DUMP_BYTES};
  @%p0 bra POISON;
  add.u32 %r8, %r1, {BARRIER_PLACE};
  setp.ne.u32 %p1, %r0, 0;
  @!%p1 mbarrier.init.shared::cta.b64 [%r8], 1;
  fence.mbarrier_init.release.cluster;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @%p1 bra WAIT;
  mov.b64 %d2, p0;
  cvta.param.u64 %d2, %d2;
  ld.param.u32 %r9, [p{2 + rank}];
"""
    body += "".join(f"  ld.param.s32 %r{16 + axis}, [p{2 + axis}];\n" for axis in range(rank))
    body += f"""  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], %r9;
  cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes """
    body += f"""[%r1], [%d2, {{{coordinates}}}], [%r8];
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r8], 0;
  @!%p2 bra WAIT;
"""
    body += _copy_out("p1", DUMP_BYTES, "OUT")
    kinds = ("map", "ptr", *("s32",) * rank, "u32")
    return entry(f"tma_load_{rank}d", kinds, 128, body)


def tma_store_kernel() -> Kernel:
    """Store one box from an image.  Parameters: map, image, two coordinates."""
    body = _copy_in("p1", DUMP_BYTES, "IN")
    body += """  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra DONE;
  mov.b64 %d2, p0;
  cvta.param.u64 %d2, %d2;
  ld.param.s32 %r16, [p2];
  ld.param.s32 %r17, [p3];
  cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d2, {%r16, %r17}], [%r1];
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
DONE:
"""
    return entry("tma_store_2d", ("map", "ptr", "s32", "s32"), 128, body)


# --- small matrices, addresses -------------------------------------------------------------------


def stmatrix_kernel(transposed: bool) -> Kernel:
    """Lane L stores 256 L + 2 r + {0, 1} in register r; matrix q's row j goes to 16 (8 q + j)."""
    suffix = ".trans" if transposed else ""
    body = """  mov.u32 %r0, %tid.x;
  mov.u32 %r1, smem;
  mad.lo.u32 %r2, %r0, 16, %r1;
  shl.b32 %r3, %r0, 8;
"""
    for register in range(4):
        low, high = 2 * register, 2 * register + 1
        body += f"""  add.u32 %r8, %r3, {low};
  add.u32 %r9, %r3, {high};
  prmt.b32 %r{4 + register}, %r8, %r9, 0x5410;
"""
    body += f"""  stmatrix.sync.aligned.m8n8.x4{suffix}.shared.b16 [%r2], {{%r4, %r5, %r6, %r7}};
  bar.sync 0;
  ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r2];
  ld.param.u64 %d0, [p0];
  mul.wide.u32 %d1, %r0, 16;
  add.u64 %d0, %d0, %d1;
  st.global.v4.b32 [%d0], {{%r4, %r5, %r6, %r7}};
"""
    return entry(f"stmatrix{'_trans' if transposed else ''}", ("ptr",), 32, body)


def ldmatrix_kernel(transposed: bool) -> Kernel:
    """Shared 16-bit element e holds e; registers come out as [register][lane]."""
    suffix = ".trans" if transposed else ""
    body = """  mov.u32 %r0, %tid.x;
  mov.u32 %r1, smem;
  mad.lo.u32 %r2, %r0, 16, %r1;
  shl.b32 %r3, %r0, 3;
"""
    for register in range(4):
        body += f"""  add.u32 %r8, %r3, {2 * register};
  add.u32 %r9, %r3, {2 * register + 1};
  prmt.b32 %r{4 + register}, %r8, %r9, 0x5410;
"""
    body += f"""  st.shared.v4.b32 [%r2], {{%r4, %r5, %r6, %r7}};
  bar.sync 0;
  ldmatrix.sync.aligned.m8n8.x4{suffix}.shared.b16 {{%r4, %r5, %r6, %r7}}, [%r2];
  ld.param.u64 %d0, [p0];
  mul.wide.u32 %d1, %r0, 4;
  add.u64 %d0, %d0, %d1;
"""
    body += "".join(f"  st.global.b32 [%d0+{128 * r}], %r{4 + r};\n" for r in range(4))
    return entry(f"ldmatrix{'_trans' if transposed else ''}", ("ptr",), 32, body)


def shared_base_kernel(static_bytes: int, cluster: int) -> Kernel:
    """Each CTA reports the shared address of the dynamic base as `mov` gives it."""
    body = "  mov.u32 %r1, smem;\n"
    if static_bytes:
        body = f"  .shared .align 4 .b8 still[{static_bytes}];\n" + body
        # A use of the static array, so that it is not dropped.
        body += "  mov.u32 %r3, still;\n  mov.u32 %r4, 1;\n  st.volatile.shared.u32 [%r3], %r4;\n"
    body += """  mov.u32 %r2, %ctaid.x;
  ld.param.u64 %d0, [p0];
  mul.wide.u32 %d1, %r2, 4;
  add.u64 %d0, %d0, %d1;
  st.global.b32 [%d0], %r1;
"""
    more = f".explicitcluster .reqnctapercluster {cluster},1,1" if cluster > 1 else ""
    return entry(f"shared_base_s{static_bytes}_c{cluster}", ("ptr",), 32, body, more)
