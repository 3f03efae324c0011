"""What ptxas does with text, read from SASS; needs no GPU.

Idea: some rules for writing PTX are about the assembler.  Assemble a small text and count.

Invariants: the assembler's release stands in the answer.

Never: runs a kernel.
"""

from __future__ import annotations

from tests.gpu.fact_kernels import Kernel, Wgmma, entry, module_text
from tests.gpu.fact_record import Experiment, Fact
from tilec.backend_ptx.assemble import assemble, disassemble, version

_FORM = Wgmma("bf16", "bf16", 64)
_WRITTEN = 4


def _repeated(distinct: bool) -> Kernel:
    body = (
        f"  .reg .b32 %a<{_FORM.n // 2}>;\n  ld.param.u64 %d0, [p0];\n  ld.param.u64 %d1, [p1];\n"
    )
    body += "  wgmma.fence.sync.aligned;\n"
    for index in range(_WRITTEN):
        body += f"  add.u64 %d{2 + index}, %d1, {2 * index if distinct else 0};\n"
    for index in range(_WRITTEN):
        body += _FORM.instruction(f"%d{2 + index}", f"%d{2 + index}", "1" if index else "0")
    body += "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n"
    body += "".join(f"  st.global.b32 [%d0+{4 * i}], %a{i};\n" for i in range(_FORM.n // 2))
    return entry(f"repeated_{'distinct' if distinct else 'same'}", ("ptr", "u64"), 128, body)


def kernels() -> list[Kernel]:
    """All kernels of this file."""
    return [_repeated(True), _repeated(False)]


def _count(kernel: Kernel, mnemonic: str) -> int:
    sass = disassemble(assemble(module_text([kernel])).cubin)
    return sum(f" {mnemonic}" in line for line in sass.splitlines())


def _repeated_facts() -> list[Fact]:
    distinct, same = _count(_repeated(True), "HGMMA"), _count(_repeated(False), "HGMMA")
    dropped = same < distinct
    return [
        Fact(
            "identical wgmma dropped",
            f"Does ptxas drop wgmmas with identical operands ({_WRITTEN} written in a row)?",
            f"{'yes' if dropped else 'no'}: {same} left of identical ones, {distinct} of distinct "
            f"ones (ptxas {version()})",
            dropped and distinct == _WRITTEN,
            {"identical": same, "distinct": distinct},
        )
    ]


#: All experiments of this file (they need ptxas and nvdisasm).
EXPERIMENTS = (Experiment("identical wgmma", _repeated_facts),)
