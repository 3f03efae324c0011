"""Random well-typed programs mean one thing, whatever the tile sizes and after every pass.

A failure shows the seed and a program that statements were deleted from while it failed alike:
`python -m tests.fuzz.test_programs SEED...` tries seeds again.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable

import pytest

from tests.fuzz import trials
from tests.fuzz.coverage import MISSING_NOTHING, missing, table
from tests.fuzz.programs import Program, generate
from tests.fuzz.shrink import shrunk
from tests.fuzz.trials import attempt

SHORT, LONG, PARTS = 50, 2000, 4
_SHRUNK = 3
_ASSEMBLED_EACH = 40
"""One program of so many is assembled."""


def report(seeds: Iterable[int]) -> tuple[list[str], Counter[str], Counter[tuple[str, str]]]:
    """Failures in full, refusals by reason, and what the programs used."""
    failures: list[str] = []
    refusals, used = Counter[str](), Counter[tuple[str, str]]()
    for seed in seeds:
        program = generate(seed)
        used += program.used
        outcome = attempt(program, assembled=seed % _ASSEMBLED_EACH == 0)
        if outcome.refusal:
            refusals[outcome.refusal] += 1
        if outcome.failure:
            failures.append(shown(program, outcome.failure, short=len(failures) < _SHRUNK))
    return failures, refusals, used


def shown(program: Program, failure: str, short: bool) -> str:
    """A failure with its seed, its sizes and, if it is one of the first, a short program."""
    text = shrunk(program).text if short else ""
    return f"seed {program.seed}, sizes {dict(program.dims)}: {failure}\n\n{text}"


def test_random_programs_mean_one_thing() -> None:
    failures, refusals, _ = report(range(SHORT))
    assert not failures, "\n".join(failures)
    assert sum(refusals.values()) < SHORT / 2


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_many_random_programs_mean_one_thing(part: int) -> None:
    each = LONG // PARTS
    start = SHORT + part * each
    failures, refusals, used = report(range(start, start + each))
    print(table(used))
    print("refused:", *(f"{n:5} {reason}" for reason, n in refusals.most_common()), sep="\n  ")
    assert not failures, "\n".join(failures)


@pytest.mark.long
def test_many_random_programs_use_every_word_and_operation() -> None:
    used = Counter[tuple[str, str]]()
    for seed in range(SHORT, SHORT + LONG):
        used += generate(seed).used
    print(table(used))
    assert missing(used) == MISSING_NOTHING


def test_a_seed_gives_the_same_program_always() -> None:
    assert [generate(s).text for s in range(5)] == [generate(s).text for s in range(5)]


def test_each_listed_refusal_is_an_item_of_the_page() -> None:
    items = trials.page_items()
    assert [o for o in trials.LISTED if not any(i.startswith(o) for i in items)] == []


def test_a_wrong_result_is_seen() -> None:
    """The comparison is no formality: a bit that differs in an exact result fails."""
    program = generate(1)
    module, _, want = trials.meaning_of(program)
    name = next(n for n, bound in program.errors.items() if bound == 0 and want[n].size)
    other = {**want, name: want[name].copy()}
    other[name].reshape(-1).view("u1")[0] ^= 1
    assert trials.apart(module.kernels[0], program, other, want)


if __name__ == "__main__":
    said, why, words = report(int(seed) for seed in sys.argv[1:])
    print(table(words), *said, why, sep="\n\n")
