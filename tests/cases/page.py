"""Writes docs/field-cases.md: what is tried, where it went wrong, and the test.

python -m tests.cases.page
"""

from __future__ import annotations

from pathlib import Path

from tests.cases.case import Case, all_cases

PAGE = Path(__file__).resolve().parents[2] / "docs" / "field-cases.md"
_HEAD = """# Cases from the field

What went wrong in other compilers and libraries for GPUs, as small programs that have to be right
here. Each runs on the interpreter, its programs are compiled and assembled for sm_90 and sm_80
(`tests/cases`), and `python -m tests.gpu.test_cases` runs them on a GPU. Made by
`python -m tests.cases.page`.

| case | what is tried | seen in | test |
| --- | --- | --- | --- |
"""


def page() -> str:
    """The whole page."""
    return _HEAD + "".join(map(_row, all_cases()))


def _row(case: Case) -> str:
    file = case.check.__module__.rpartition(".")[2]
    test = f"`{file}.{case.check.__name__}`"
    if case.refusal:
        test += f", refused: [{case.refusal}](errors.md#{case.refusal})"
    return f"| {case.id} | {case.what} | {case.source} | {test} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
