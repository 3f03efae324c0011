"""Planted faults are found: a sample always, all of them in the long run; and nothing else is."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.emulator.mutation import BEGIN, END, MANUAL, RECORDS, case, judge, judge_all, table
from tests.emulator.subjects import EXAMPLES
from tilec.emulator.findings import classes_table
from tilec.emulator.launch import start
from tilec.emulator.schedule import ORDERS, Choice

MOST_SURVIVORS = 0.05
_OF_EACH = 8


def test_a_sample_of_planted_faults_is_found() -> None:
    """One mutant in so many of each subject, spread over all operators."""
    jobs = []
    for name in EXAMPLES:
        count = len(case(name, "").mutants)
        jobs += [(name, "", n) for n in range(0, count, -(-count // _OF_EACH))]
    verdicts = [judge(*job) for job in jobs]
    assert len(verdicts) >= 2 * _OF_EACH
    left = [v for v in verdicts if v.outcome == "survived"]
    assert len(left) <= max(1, MOST_SURVIVORS * len(verdicts)), left


@pytest.mark.long
def test_all_planted_faults_are_found_but_few() -> None:
    verdicts = judge_all(EXAMPLES, "", workers=2)
    left = [v for v in verdicts if v.outcome == "survived"]
    assert len(left) <= MOST_SURVIVORS * len(verdicts), left


def test_the_records_hold_few_survivors_and_the_manual_shows_them() -> None:
    records = json.loads(RECORDS.read_text())
    outcomes = Counter(r["outcome"] for r in records)
    assert outcomes["survived"] <= MOST_SURVIVORS * len(records)
    assert all(r["by"] for r in records if r["outcome"] == "equivalent")
    shown = MANUAL.read_text().partition(BEGIN)[2].partition(END)[0].strip()
    assert shown == table(records).strip()


def test_the_manual_lists_the_classes_of_the_code() -> None:
    shown = MANUAL.read_text().partition("<!-- classes: begin -->")[2]
    assert shown.partition("<!-- classes: end -->")[0].strip() == classes_table()


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("order", ORDERS)
def test_nothing_is_found_in_programs_without_a_fault(name: str, order: str) -> None:
    _unchanged(name, order, 0)


@pytest.mark.long
@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("order", ORDERS)
def test_nothing_is_found_under_any_seed(name: str, order: str, seed: int) -> None:
    _unchanged(name, order, seed)


def _unchanged(name: str, order: str, seed: int) -> None:
    known = case(name, "")
    launch, arrays = known.subject.fresh()
    findings, _ = start(known.subject.program, known.subject.text, launch, Choice(order, seed))
    assert not [f.message for f in findings]
    assert {n: a.tobytes() for n, a in arrays.items()} == known.right
