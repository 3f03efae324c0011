"""Ways to write a program otherwise that must not change how it is compiled.

Each yields variants of a ``.tk`` text, as (what was done, text). They work on lines and words, as
an author does, and leave alone what they are not sure of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

WORD = re.compile(r"(?<![.\w])[A-Za-z_]\w*(?!\s*=(?!=))")
ASSIGNED = re.compile(r"^(\s*)([a-z_]\w*) = (.+)$")
NAMES = re.compile(r"(?<![.\w])[A-Za-z_]\w*")


@dataclass(frozen=True)
class Line:
    """An assignment of one name on one line."""

    number: int
    indent: str
    name: str
    value: str

    @property
    def reads(self) -> frozenset[str]:
        """Every word of the value."""
        return frozenset(NAMES.findall(self.value))


def code(text: str) -> list[str]:
    """The lines without their comments."""
    return [line.split("#")[0].rstrip() for line in text.splitlines()]


def assignments(text: str) -> Iterator[Line]:
    """The assignments of one name that stand on one line, brackets closed."""
    for number, line in enumerate(code(text)):
        found = ASSIGNED.match(line)
        if found and found[3].count("(") == found[3].count(")") and found[1]:
            yield Line(number, *found.groups())


def locals_of(text: str) -> list[str]:
    """Names that the kernel assigns or loops over."""
    found: dict[str, None] = {}
    for line in code(text):
        if match := re.match(r"^\s+([a-z_]\w*) [-+*/]?= ", line):
            found[match[1]] = None
        if match := re.match(r"^\s+for ([\w, ]+) in ", line):
            found.update(dict.fromkeys(re.split(r",\s*", match[1])))
    return list(found)


def renamed(text: str) -> Iterator[tuple[str, str]]:
    """Each local name, and then all of them, called something else."""
    names = locals_of(text)

    def call(names: list[str]) -> str:
        pattern = re.compile(rf"(?<![.\w])({'|'.join(names)})(?!\w)")
        return pattern.sub(lambda m: f"{m[1]}_other", text)

    for name in names:
        yield f"{name} renamed", call([name])
    yield "all renamed", call(names)


def reordered(text: str) -> Iterator[tuple[str, str]]:
    """Neighbouring assignments of which neither needs the other, exchanged."""
    lines = text.splitlines()
    found = list(assignments(text))
    for one, two in pairwise(found):
        near = two.number == one.number + 1 and two.indent == one.indent
        free = one.name not in two.reads | {two.name} and two.name not in one.reads
        if near and free:
            changed = list(lines)
            changed[one.number], changed[two.number] = lines[two.number], lines[one.number]
            yield f"{one.name} and {two.name} exchanged", "\n".join(changed) + "\n"


def fenced(text: str, words: set[str]) -> Iterator[tuple[str, str]]:
    """The value of an assignment moved into a ``fn``; ``words`` belong to the language."""
    head = re.search(r"^kernel \w+(\[(.*?)\])?", text, re.MULTILINE | re.DOTALL)
    fixed = set(NAMES.findall(head[2] or "")) if head else set()
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("kernel "))
    for line in assignments(text):
        taken = [n for n in dict.fromkeys(NAMES.findall(line.value)) if n not in words]
        if not taken or fixed & set(taken) or ("." in line.value and "].T" not in line.value):
            continue
        changed = list(lines)
        changed[line.number] = f"{line.indent}{line.name} = moved({', '.join(taken)})"
        moved = [f"fn moved({', '.join(taken)}):", f"    return {line.value}", ""]
        yield (
            f"{line.name} computed by a function",
            "\n".join([*changed[:start], *moved, *changed[start:]]) + "\n",
        )


_INNER = re.compile(r"\b(?:exp2|exp|rowsum|rowmax|cast\[\w+\]|exp2sub|log2|abs|where|rsqrt)\(")


def split(text: str) -> Iterator[tuple[str, str]]:
    """A call inside an expression computed on a line of its own before."""
    lines = text.splitlines()
    for number, line in enumerate(code(text)):
        head = re.match(r"^(\s+)[^=]+ [-+*/]?= ", line)
        if not head or line.count("(") != line.count(")"):
            continue
        for call in _INNER.finditer(line, head.end()):
            inner = _closed(line, call.start(), call.end())
            if inner is None or inner == line[head.end() :]:
                continue
            changed = list(lines)
            changed[number] = line.replace(inner, "part_of_it", 1)
            changed.insert(number, f"{head[1]}part_of_it = {inner}")
            yield f"line {number + 1}: {inner} on its own", "\n".join(changed) + "\n"


def _closed(line: str, start: int, opened: int) -> str | None:
    depth = 1
    for place in range(opened, len(line)):
        depth += {"(": 1, ")": -1}.get(line[place], 0)
        if depth == 0:
            return line[start : place + 1]
    return None


def exchanged(text: str) -> Iterator[tuple[str, str]]:
    """Another function in the place of one."""
    for old, new in (("exp2", "exp"), ("exp2", "tanh"), ("log2", "sqrt"), ("rsqrt", "sqrt")):
        if re.search(rf"\b{old}\(", text):
            yield f"{new} for {old}", re.sub(rf"\b{old}\(", f"{new}(", text)


def widened(text: str) -> Iterator[tuple[str, str]]:
    """One more output, which nothing writes."""
    kernel = re.search(r"^kernel \w+(\[.*?\])?\((.*?)\):\n", text, re.MULTILINE | re.DOTALL)
    if kernel is None:
        return
    given = kernel[2].rstrip().rstrip(",")
    dim = re.search(r": \w+\[(\w+)", given)
    if dim:
        more = f"{given}, unused_output: out f32[{dim[1]}]"
        yield "an output that nothing writes", text.replace(kernel[2], more, 1)
