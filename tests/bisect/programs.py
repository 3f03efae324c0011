"""Small programs on which each pass of the pipeline has something to do, and how they are run."""

from __future__ import annotations

from dataclasses import dataclass, field

import tilec
from tilec.ir.facts import Schedule
from tilec.runtime import trial
from tilec.runtime.bisect import Bisection, bisect_inputs
from tilec.runtime.kernel import Kernel
from tilec.targets import by_name

TARGET = by_name("90")


@dataclass(frozen=True)
class Case:
    """A program with sizes, choices and numbers."""

    text: str
    sizes: dict[str, int]
    schedule: Schedule = field(default_factory=Schedule)
    given: dict[str, str] = field(default_factory=dict)

    def kernel(self) -> Kernel:
        """The program's kernel with its choices."""
        return next(iter(tilec.compile(self.text.lstrip("\n"), "f.tk").kernels)).using(
            self.schedule
        )

    def bisect(self) -> Bisection:
        """Run it after every pass."""
        kernel = self.kernel()
        ir = kernel.front_end(kernel.bindings, TARGET).kernel(kernel.name)
        return bisect_inputs(kernel, trial.make_inputs(ir, self.sizes, self.given, 3), TARGET)


CASES = {
    "scaled": Case(
        """
kernel f(a: f32[M, N], y: out f32[M, N], s: f32):
    require N % 4 == 0
    for i, j in parallel(tiles(M), tiles(N)):
        y[i, j] = (a[i, j] - 1.5) * s
""",
        {"M": 20, "N": 36},
        given={"s": "0.75"},
    ),
    "rounded on the way": Case(
        """
kernel f(a: f32[M, N], y: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        y[i, j] = cast[f32](cast[bf16](a[i, j])) * 3.0
""",
        {"M": 20, "N": 36},
    ),
    "sum in shares": Case(
        """
kernel f(x: f32[M, N], y: out f32[M]):
    for i in parallel(tiles(M)):
        total = zeros[f32](i)
        for j in tiles(N):
            total += rowsum(x[i, j])
        y[i] = total
""",
        {"M": 20, "N": 100},
        Schedule(tiles=(("j", 16),), splits=(("j", 3),)),
    ),
    "two launches": Case(
        """
kernel f(x: f32[M, N], by: f32, y: out f32[M, N]):
    sums = temp[f32](N)
    for j in parallel(tiles(N)):
        total = zeros[f32](j)
        for i in tiles(M):
            total += sum(x[i, j], axis=0)
        sums[j] = total
    for i, j in parallel(M, tiles(N)):
        y[i, j] = x[i, j] - sums[j] * by
""",
        {"M": 20, "N": 36},
        given={"by": "0.5"},
    ),
    "online rows": Case(
        """
kernel f(x: f32[M, N], y: out f32[M]):
    for i in parallel(tiles(M)):
        m = full[f32](i, -inf)
        l = zeros[f32](i)
        for j in tiles(N):
            s = x[i, j]
            r = anchor(m, s)
            l = l * exp2sub(m, r) + rowsum(exp2sub(s, r[:, None]))
            m = r
        y[i] = m + log2(l)
""",
        {"M": 20, "N": 100},
    ),
    "product": Case(
        """
kernel f(a: bf16[M, K], b: bf16[N, K], c: out bf16[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[j, k].T
        c[i, j] = cast[bf16](acc)
""",
        {"M": 136, "N": 136, "K": 80},
        Schedule(tiles=(("i", 128), ("j", 128), ("k", 16)), stages=2),
    ),
    "product in turns": Case(
        """
kernel f(a: bf16[M, K], b: bf16[N, K], c: out bf16[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[j, k].T
        c[i, j] = cast[bf16](acc)
""",
        {"M": 136, "N": 136, "K": 80},
        Schedule(tiles=(("i", 64), ("j", 64), ("k", 16)), stages=2, alternate=True),
    ),
    "product of odd rows": Case(
        """
kernel f(a: bf16[M, K], b: bf16[K, N], c: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[k, j]
        c[i, j] = acc
""",
        {"M": 70, "N": 40, "K": 35},
        Schedule(repacks=(("a", 1), ("b", 1))),
    ),
    "product in f32": Case(
        """
kernel f(a: f32[M, K], b: f32[N, K], c: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[j, k].T
        c[i, j] = acc
""",
        {"M": 40, "N": 36, "K": 40},
    ),
    "one column": Case(
        """
kernel f(a: bf16[M, 16], b: bf16[1, 16], w: f32[M], c: out f32[M, 1]):
    for i in parallel(tiles(M)):
        c[i, :] = (a[i, :] @ b[:, :].T) * w[i][:, None]
""",
        {"M": 40},
    ),
    "softmax": Case(
        """
kernel f(x: f32[M, N], y: out f32[M, N]):
    for i in parallel(tiles(M)):
        s = x[i, :]
        p = exp2(s - rowmax(s)[:, None])
        y[i, :] = p / rowsum(p)[:, None]
""",
        {"M": 9, "N": 100},
    ),
    "triangle": Case(
        """
kernel f(a: f32[M, N], t: out f32[M]):
    for i in parallel(tiles(M)):
        s = zeros[f32](i)
        for j in tiles(N):
            s += rowsum(where(j[None, :] <= i[:, None], a[i, j], 0.0))
        t[i] = s
""",
        {"M": 64, "N": 64},
        Schedule(tiles=(("i", 32), ("j", 16))),
    ),
}
