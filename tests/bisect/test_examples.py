"""No pass is blamed where none is to blame: the examples, after every pass.

Some run at a small ragged size; all of them, all sizes and an older target when asked for
(``--long``).
"""

from __future__ import annotations

import pytest

import tilec
from tests.emulator.examples import Subject, quick_sizes
from tests.examples.spec import Example, Given, Sizes, all_examples, run_inputs, stored
from tilec.interp.memory import unwritten
from tilec.ir.types import DTYPES
from tilec.runtime.bisect import Step


def to_blame(example: Example, sizes: Sizes, target: str = "sm_90") -> Step | None:
    """The first pass that changes what an example means, if bisect finds one."""
    given = run_inputs(example, sizes)
    arguments = {
        name: stored(value.dtype, value.values) if isinstance(value, Given) else value
        for name, value in given.items()
    }
    for name, output in example.outputs.items():
        fresh = unwritten(DTYPES[output.dtype], output.extents(sizes), False)
        arguments.setdefault(name, fresh)
    kernel = Subject(example, target).kernel(sizes).using(target=target)
    return tilec.bisect(kernel, **arguments).first


def _name(value: object) -> str | None:
    return value.kernel if isinstance(value, Example) else None


EXAMPLES = tuple(all_examples())
SOME = ("conv2d", "histogram", "layernorm", "split_k", "grouped_gemm")
QUICK = [(e, s) for e in EXAMPLES if e.kernel in SOME for s in quick_sizes(e)[1:]]


@pytest.mark.parametrize(("example", "sizes"), QUICK, ids=_name)
def test_no_pass_changes_what_an_example_means(example: Example, sizes: Sizes) -> None:
    assert to_blame(example, sizes) is None


@pytest.mark.long
@pytest.mark.parametrize("target", ["sm_90", "sm_80"])
@pytest.mark.parametrize(
    ("example", "sizes"), [(e, s) for e in EXAMPLES for s in e.sizes], ids=_name
)
def test_nor_at_any_size_for_any_target(example: Example, sizes: Sizes, target: str) -> None:
    assert to_blame(example, sizes, target) is None
