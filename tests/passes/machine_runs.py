"""Run a source on the ``cta`` interpreter after each of that level's passes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec import pipeline
from tilec.frontend.check import check
from tilec.frontend.lower import lower
from tilec.frontend.parse import parse
from tilec.interp.cta.run import run_cta
from tilec.ir.core import Kernel, Module
from tilec.ir.facts import ArrayFacts, Facts, Schedule
from tilec.ir.types import Array
from tilec.passes.base import Context
from tilec.source import SourceFile
from tilec.targets import by_name

TARGET = by_name("90")
CTA_PASSES = (
    "form-ctas",
    "share-loads",
    "split-roles",
    "take-turns",
    "pipeline-products",
    "overlap-stores",
    "weave",
)


def sizes_of(kernel: Kernel, arrays: dict[str, np.ndarray]) -> dict[str, int]:
    """The sizes that arrays give to the names in a kernel's parameters."""
    found: dict[str, int] = {}
    for arg in kernel.body.args:
        if isinstance(arg.type, Array):
            for name, size in zip(arg.type.shape, arrays[arg.name].shape, strict=True):
                if isinstance(name, str):
                    assert found.setdefault(name, size) == size, f"{name} has two sizes"
    return found


def facts_of(kernel: Kernel, arrays: dict[str, np.ndarray], alignment: int) -> Facts:
    """What holds of row-major arrays; with alignment 0 nothing is promised but bounds."""
    sizes = sizes_of(kernel, arrays)
    if not alignment:
        return Facts((), tuple(sizes.items()))
    named = tuple((name, ArrayFacts(a.ndim - 1, alignment)) for name, a in arrays.items())
    return Facts(named, tuple(sizes.items()), tuple((n, s & -s) for n, s in sizes.items()))


def check_text(
    text: str,
    inputs: dict[str, np.ndarray],
    expected: dict[str, Any],
    *,
    schedule: Schedule | None = None,
    alignment: int = 16,
    scalars: dict[str, float] | None = None,
    values: dict[str, Any] | None = None,
    tolerance: float = 1e-9,
) -> Module:
    """Each pass leaves a kernel that computes ``expected``; the module after the last one."""
    module = lower(check(parse(SourceFile("f.tk", text.lstrip("\n"))), values or {}), "f")
    module.target = TARGET.name
    kernel = module.kernels[0]
    whole = {**inputs, **{k: np.full(np.shape(v), np.nan) for k, v in expected.items()}}
    pipeline.record_facts(kernel, facts_of(kernel, whole, alignment))
    if schedule is not None:
        kernel.schedule = {**kernel.schedule, **schedule.as_attributes()}
    ctx = Context(TARGET)
    for name in pipeline.PIPELINE[: pipeline.position("place-shared") + 1]:
        pipeline.step(module, pipeline.find_pass(name), ctx)
        if name not in CTA_PASSES:
            continue
        arrays = {k: v.copy() for k, v in whole.items()}
        run_cta(module.kernels[0], arrays, scalars or {}, wide=True)
        for key, value in expected.items():
            np.testing.assert_allclose(
                arrays[key], value, tolerance, tolerance, err_msg=f"{key} after {name}"
            )
    for name in pipeline.PIPELINE[pipeline.position("place-shared") + 1 :]:
        pipeline.step(module, pipeline.find_pass(name), ctx)
    return module
