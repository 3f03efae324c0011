"""What a timed loop became in SASS.

Idea: a rate says something about an instruction only when the assembler kept every one of them, so
the instructions between the loop's head and its backward branch are counted.

Invariants: the loop is the last backward branch of the kernel that leaves something to count.

Never: runs a kernel.
"""

from __future__ import annotations

import re
from collections import Counter

from tests.gpu.fact_kernels import Kernel, module_text
from tilec.backend_ptx.assemble import assemble, disassemble

_LABEL = re.compile(r"\s*(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")
#: Counting down, comparing, branching.
LOOP_OVERHEAD = 3


def loop_instructions(kernel: Kernel) -> Counter[str]:
    """How often each mnemonic stands in the kernel's loop; raises `ValueError` without a loop."""
    found: list[tuple[str, str]] = []
    labels: dict[str, int] = {}
    loop = (0, 0)
    for line in disassemble(assemble(module_text([kernel])).cubin).splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(found)
        elif instruction := _INSTRUCTION.match(line):
            found.append((instruction[1], instruction[2]))
            target = re.search(r"\.L_x_\d+", instruction[2])
            # The branch to itself at a kernel's end is padding.
            if instruction[1].startswith("BRA") and target and target[0] in labels:
                start = labels[target[0]]
                if start < len(found) - 1:
                    loop = (start, len(found))
    if loop == (0, 0):
        raise ValueError(f"{kernel.name}: ptxas left no loop to time")
    return Counter(mnemonic for mnemonic, _ in found[slice(*loop)])
