"""The same input gives the same bytes, whatever Python's hash seed is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
SEEDS = ("0", "1", "12345")


def outputs(program: str, *arguments: str) -> set[str]:
    """What a program prints under several hash seeds; one element when it is steady."""
    return {
        subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True,
            text=True,
            check=True,
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in SEEDS
    }


def test_texts_and_faults_come_out_the_same() -> None:
    program = """
import sys
from pathlib import Path
from tilec.ir.parser import parse_module
from tilec.ir.printer import module_text
from tilec.ir.verify import kernel_faults
for path in sorted(Path("tests/protocol").glob("*.tir")):
    module = parse_module(path.read_text())
    print(module_text(module))
    for kernel in module.kernels:
        for fault in kernel_faults(module, kernel):
            print(kernel.name, fault.op, fault.message)
"""
    (found,) = outputs(program)
    assert "is released twice" in found


@pytest.mark.parametrize("example", ["gemm", "softmax", "add"])
def test_compiling_an_example_gives_the_same_ptx(example: str) -> None:
    program = """
import sys
from tilec.cli import main
main(["compile", sys.argv[1], "--sm", "90"], standalone_mode=False)
"""
    (found,) = outputs(program, f"examples/{example}.tk")
    assert ".visible .entry" in found
