"""Two small machines that must agree: level ptx as SSA, and the emitted text with its registers.

They share the arithmetic of single instructions and nothing else: the first never sees a register,
the second never sees the IR. Integers only; memory is one array of bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tilec.ir.core import Kernel, Region, Value
from tilec.ir.levels import ptx

WORD = 0xFFFFFFFF
ARITHMETIC: dict[str, Callable[..., int]] = {
    "add.u32": lambda a, b: (a + b) & WORD,
    "sub.u32": lambda a, b: (a - b) & WORD,
    "mul.lo.u32": lambda a, b: (a * b) & WORD,
    "xor.b32": lambda a, b: a ^ b,
    "mov.b32": lambda a: a,
    "mov.u32": lambda a: a,
    "mov.b16": lambda a: a,
    "mov.pred": lambda a: a,
    "selp.b32": lambda a, b, p: a if p else b,
    "setp.lt.u32": lambda a, b: int(a < b),
    "setp.eq.u32": lambda a, b: int(a == b),
}
Memory = bytearray


def read(memory: Memory, address: int) -> int:
    """A word."""
    return int.from_bytes(memory[address : address + 4], "little")


def write(memory: Memory, address: int, value: int) -> None:
    """Put a word."""
    memory[address : address + 4] = value.to_bytes(4, "little")


# --- as SSA ------------------------------------------------------------------------------------

Environment = dict[Value[Any], list[int]]


def run_values(kernel: Kernel, memory: Memory) -> None:
    """Run a kernel by the meaning of its ops."""
    _run_region(kernel.body, {}, memory)


def _run_region(region: Region, known: Environment, memory: Memory) -> list[list[int]]:
    for op in region.ops:
        inputs = [known[value] for value in op.operands]
        if op.is_terminator:
            return inputs
        known.update(zip(op.results, _meaning(op, inputs, known, memory), strict=True))
    return []


def _meaning(
    op: Any, inputs: list[list[int]], known: Environment, memory: Memory
) -> Sequence[list[int]]:
    match op:
        case ptx.Constant():
            return [[int(op.value)]]
        case ptx.SharedBase():
            return [[0]]
        case ptx.Pick():
            return [[inputs[0][pick] for pick in op.picks]]
        case ptx.Join():
            return [[word for part in inputs for word in part]]
        case ptx.Copy():
            return [list(inputs[0])]
        case ptx.Unpack():
            return [[half for x in inputs[0] for half in (x & 0xFFFF, x >> 16)]]
        case ptx.Combine():
            return [[lo | hi << 16 for lo, hi in zip(*inputs, strict=True)]]
        case ptx.Alu():
            return [_alu(op, inputs)]
        case ptx.Weave():
            return _run_region(op.body, known, memory)
        case ptx.Load():
            held = len(inputs) == 1 or inputs[1][0]
            start = inputs[0][0] + op.offset
            count = op.out.type.count
            return [
                [read(memory, start + 4 * i) if held else int(op.otherwise) for i in range(count)]
            ]
        case ptx.Store():
            if len(inputs) == 2 or inputs[2][0]:
                for i, word in enumerate(inputs[1]):
                    write(memory, inputs[0][0] + op.offset + 4 * i, word)
            return []
        case ptx.If():
            return _run_region(op.then if inputs[0][0] else op.otherwise, known, memory)
        case ptx.Loop():
            carried = inputs
            while True:
                known.update(zip(op.body.args, carried, strict=True))
                again, *carried = _run_region(op.body, known, memory)
                if not again[0]:
                    return carried
    raise AssertionError(f"this machine runs a subset of the level, not {op.name}")


def _alu(op: ptx.Alu, inputs: list[list[int]]) -> list[int]:
    words = []
    for index in range(op.out.type.count):
        chosen: list[int] = []
        for x in inputs:
            first = index * op.per
            chosen += x if len(x) == 1 else reversed(x[first : first + op.per])
        words.append(ARITHMETIC[op.opcode](*chosen))
    return words


# --- as text -----------------------------------------------------------------------------------

_LINE = re.compile(r"(?:@(!?)(%\w+) )?([\w.]+)(?: (.*))?;")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")
_ACCESS = re.compile(r"(ld|st)\.shared(?:\.v\d)?\.b32")


def run_text(text: str, memory: Memory, limit: int = 100_000) -> None:
    """Run the one kernel of a PTX text."""
    body = text[text.index("{\n") :].splitlines()
    lines = [s for s in (line.strip() for line in body) if s and s[0] not in "/.{}"]
    labels = {line[:-1]: place for place, line in enumerate(lines) if line.endswith(":")}
    registers: dict[str, int] = {"smem": 0}
    at = 0
    for _ in range(limit):
        line = lines[at]
        at += 1
        if line.endswith(":"):
            continue
        found = _LINE.fullmatch(line)
        assert found, line
        negated, guard, opcode, rest = found.groups()
        if guard and bool(registers[guard]) == bool(negated):
            continue
        if opcode == "ret":
            return
        if opcode == "bra":
            at = labels[rest]
            continue
        _execute(opcode, _OPERAND.findall(rest), registers, memory)
    raise AssertionError("the kernel does not end")


def _names(operand: str) -> list[str]:
    return [name.strip() for name in operand.strip("{}").split(",")]


def _execute(opcode: str, operands: list[str], registers: dict[str, int], memory: Memory) -> None:
    def value(name: str) -> int:
        return registers[name] if name in registers else int(name)

    def address(operand: str) -> int:
        return sum(value(part) for part in operand.strip("[]").split("+"))

    if access := _ACCESS.fullmatch(opcode):
        place = operands[access[1] == "ld"]
        for index, name in enumerate(_names(operands[access[1] == "st"])):
            if access[1] == "ld":
                registers[name] = read(memory, address(place) + 4 * index)
            else:
                write(memory, address(place) + 4 * index, value(name))
    elif operands[0].startswith("{"):
        low, high = _names(operands[0])
        word = value(operands[1])
        registers[low], registers[high] = word & 0xFFFF, word >> 16
    elif operands[-1].startswith("{"):
        low, high = _names(operands[-1])
        registers[operands[0]] = value(low) | value(high) << 16
    else:
        registers[operands[0]] = ARITHMETIC[opcode](*map(value, operands[1:]))
