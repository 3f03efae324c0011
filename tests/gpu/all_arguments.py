"""How far the functions of the language are off, over every f32 argument.

    python -m tests.gpu.all_arguments [--only exp2 log2]

Idea: the error is taken on the GPU, against float64, in the unit that docs/language.md states it in
(a share of the result, say); the worst argument of each piece is then judged by the rule that
samples are judged by. Prints the worst of each function, as a power of two of its unit.

Invariants: subnormal arguments and results are left out of what is printed, not of what is judged.

Never: states a bound of its own.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.numbers.functions import BUILTIN, LEAST_NORMAL, misses
from tilec.runtime.supervise import run

PIECE = 2**26
LIMIT_S = 300.0
TEXT = """\
kernel k(x: f32[M], y: out f32[M]):
    for i in parallel(tiles(M)):
        y[i] = {name}(x[i])
"""
Unit = Callable[[Any, Any], Any]
"""What an error is a multiple of, from the arguments and the exact results, as torch tensors."""


def _result(x: Any, exact: Any) -> Any:
    return exact.abs()


def _grown(x: Any, exact: Any) -> Any:
    return exact.abs() * (1 + x.abs() / 2)


def _near_one(x: Any, exact: Any) -> Any:
    return exact.abs().masked_fill((x > 0.5) & (x < 2), 1.0)


UNITS: dict[str, tuple[str, Unit]] = {
    "exp2": ("of the result", _result),
    "exp": ("of the result and 1 + abs(x) / 2", _grown),
    "log2": ("absolute between 0.5 and 2, else of the result", _near_one),
    "log": ("absolute between 0.5 and 2, else of the result", _near_one),
    "rsqrt": ("of the result", _result),
    "tanh": ("of the result", _result),
}


@dataclass(frozen=True)
class Worst:
    """The argument at which a function is furthest off."""

    share: float
    argument: float
    wrong: str
    """What the rule has against what was judged; empty if nothing."""


def judged(name: str, arguments: Any, found: Any) -> Worst:
    """The worst of some arguments, which is judged with all whose error has no size."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    x = arguments.double()
    exact = getattr(torch, name)(x)
    share = (found.double() - exact).abs() / UNITS[name][1](x, exact)
    odd = ~share.isfinite()  # zeros, infinities, NaN: rules of their own
    small = (x.abs() < LEAST_NORMAL) | (exact.abs() < LEAST_NORMAL)
    share = share.masked_fill(odd | small, 0.0)
    place = int(share.argmax())
    agree = (found.double() == exact) | (found.isnan() & exact.isnan())
    # Subnormal numbers are many and alike: a share of them is judged.
    strange = torch.nonzero(odd & ~small & ~agree).flatten()
    tiny = torch.nonzero(small & ~agree).flatten()[::1009]
    chosen = torch.cat([strange, tiny, torch.tensor([place], device=tiny.device)])
    taken = x[chosen].cpu().numpy(), found[chosen].double().cpu().numpy()
    wrong = misses(BUILTIN[name], [taken[0]], taken[1])
    return Worst(float(share[place]), float(x[place]), wrong)


def measure(name: str) -> tuple[float, float, list[str]]:
    """The largest error, where it is, and what is wrong; runs in the child."""
    import torch

    import tilec

    kernel = tilec.compile(TEXT.replace("{name}", name)).k
    worst, wrong = Worst(0.0, 0.0, ""), []
    for start in range(-(2**31), 2**31, PIECE):
        bits = torch.arange(start, start + PIECE, dtype=torch.int64, device="cuda")
        arguments = bits.to(torch.int32).view(torch.float32)
        found = torch.empty_like(arguments)
        kernel(arguments, found)
        piece = judged(name, arguments, found)
        worst = max(worst, piece, key=lambda one: one.share)
        wrong += [piece.wrong] if piece.wrong else []
    return worst.share, worst.argument, wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """All functions, or those that are asked for; 1 if one is further off than it may be."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--only", nargs="*", choices=list(UNITS), default=list(UNITS))
    bad = 0
    for name in parser.parse_args(arguments).only:
        share, where, wrong = run(measure, name, limit_s=LIMIT_S)
        size = f"2^{math.log2(share):.2f}" if share > 0 else "0"
        print(f"{name}: {size} {UNITS[name][0]}, at {np.float32(where)!r}", flush=True)
        for line in wrong:
            print(f"    {line}")
        bad += bool(wrong)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
