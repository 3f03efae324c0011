"""The GPU acceptance list is complete, and its runner loses no case; neither needs a GPU."""

from __future__ import annotations

from itertools import product

import pytest

from tests.gpu import cases, test_programs
from tests.gpu.cases import Case, Operand
from tests.package.fake_child import CRASHES, FAILS, PASSES


def test_names_are_unique() -> None:
    listed = cases.all_cases(seed=3)
    assert len({case.name for case in listed}) == len(listed)


def test_every_pair_of_sizes_is_there_for_every_dtype_and_form() -> None:
    listed = {(c.dtype, c.operands, c.sizes) for c in cases.gemm_pairs()}
    for dtype, (a, b) in product(cases.GEMM_DTYPES, cases.FORMS.values()):
        operands = (Operand(a), Operand(b), Operand())
        for x, y in product(cases.GEMM_SIZES, cases.GEMM_SIZES):
            for sizes in ((x, y, 200), (x, 200, y), (200, x, y)):
                assert (dtype, operands, sizes) in listed


def test_random_triples_depend_on_the_seed_alone() -> None:
    first, again, other = (list(cases.gemm_random(seed)) for seed in (5, 5, 6))
    assert first == again
    assert first != other
    assert len(first) == cases.RANDOM_TRIPLES


@pytest.mark.parametrize("program", ["add", "softmax"])
def test_every_pair_of_rows_and_columns_is_there(program: str) -> None:
    listed = {c.sizes for c in cases.all_cases(seed=0) if c.program == program}
    assert set(product(cases.TABLE_SIZES, cases.TABLE_SIZES)) <= listed


@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize("view", ["packed", *cases.INPUT_VIEWS])
def test_views_lie_as_their_names_say(view: str, order: str) -> None:
    shape = (6, 9)
    first, second, offset = cases.strides(shape, Operand(order, view), item_bytes=2)
    places = [offset + i * first + j * second for i in range(shape[0]) for j in range(shape[1])]
    assert max(places) + 1 == cases.extent(shape, (first, second, offset))
    repeated = view.startswith("repeat")
    assert (len(set(places)) < len(places)) == repeated
    if not repeated:
        assert (second if order == "row" else first) == (2 if view == "every-second" else 1)
    if view == "odd-pitch":
        assert (first if order == "row" else second) % 2 == 1
    assert offset == {"offset-one": 1, "offset-16-bytes": 8}.get(view, 0)


def _case(rows: int, seed: int) -> Case:
    return Case("add", "f32", (rows, 1), (Operand(),) * 3, seed)


def test_a_crash_costs_one_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_programs, "_CHILD", "tests.package.fake_child")
    fates = [PASSES, FAILS, CRASHES, PASSES, CRASHES, PASSES]
    listed = [_case(rows, fate) for rows, fate in enumerate(fates)]
    records = test_programs.run_chunk(listed)
    assert sorted(r["case"] for r in records) == sorted(c.name for c in listed)
    failures = {r["case"]: r["failure"] for r in records if "failure" in r}
    assert failures[listed[1].name] == "wrong"
    for crashed in (listed[2], listed[4]):
        assert "SIGKILL" in failures[crashed.name]
        assert "the last words" in failures[crashed.name]
    assert len(failures) == 3
    assert test_programs.summary(records).startswith("3 passed, 3 failed")


def test_a_chunk_that_always_crashes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_programs, "_CHILD", "tests.package.fake_child")
    monkeypatch.setattr(test_programs, "_MOST_CRASHES", 2)
    listed = [_case(rows, CRASHES) for rows in range(4)]
    records = test_programs.run_chunk(listed)
    assert sorted(r["case"] for r in records) == sorted(c.name for c in listed)
    assert all("failure" in r for r in records)
    assert sum("not run" in r["failure"] for r in records) == 2
