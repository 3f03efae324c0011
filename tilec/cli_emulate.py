"""What ``tilec emulate`` does: any PTX text on arrays that the command line describes.

An array is ``NAME=FILE.npy``, ``NAME=FILE.npz:MEMBER``, or ``NAME=zeros:DTYPE:SHAPE`` and the like.
A parameter is an array's name (its address), a number, or ``map:ARRAY:box=...``, a tensor map.
Extents, boxes and strides of maps are given innermost first, as the driver takes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from tilec.cli_report import Wanted
from tilec.diagnostics import did_you_mean, render
from tilec.emulator.findings import Finding, Findings
from tilec.emulator.launch import (
    Bits,
    BufferMap,
    BufferPointer,
    Launch,
    Value,
    chosen,
    start,
)
from tilec.emulator.messages import diagnostic_of
from tilec.emulator.parse import parse_ptx
from tilec.emulator.program import Parameter, Program
from tilec.emulator.report.record import Recorder
from tilec.emulator.report.report import report_of
from tilec.emulator.schedule import Choice
from tilec.interp.numbers import decode, encode, storage
from tilec.ir.types import DTYPES
from tilec.source import SourceFile

HostArray = npt.NDArray[Any]
_MADE = ("zeros", "ones", "random", "empty")


def emulate_text(
    source: SourceFile,
    kernel: str | None,
    arrays: Sequence[str],
    arguments: Sequence[str],
    grid: str,
    block: str | None,
    shared: int,
    choice: Choice,
    limit: int | None,
    advise: bool,
    as_json: bool,
    output: Path | None,
    report: Wanted,
) -> bool:
    """Run, print, keep the arrays; whether nothing was found wrong."""
    program = chosen(parse_ptx(source), source, kernel)
    held, written = _arrays(arrays, choice.seed)
    values = _values(program, held, written, arguments, choice.seed)
    buffers = {name: array.reshape(-1).view(np.uint8) for name, array in held.items()}
    threads = program.max_threads if block is None else _three("--block", block)
    launch = Launch(_three("--grid", grid), threads, shared, values, buffers, written)
    recorder = Recorder(program) if report else None
    findings, machine = start(
        program, source, launch, choice, limit=limit, advise=advise, recorder=recorder
    )
    if as_json:
        click.echo(json.dumps(_as_json(program, findings, machine.steps_taken), indent=1))
    else:
        _say(source, findings)
        faults = f"{len(findings)} finding{'s' * (len(findings) != 1)}"
        click.echo(f"{program.name}: {faults}, {machine.steps_taken} instructions of warps")
    if recorder is not None:
        report.give([report_of(program, source, recorder)])
    if output is not None:
        named: dict[str, Any] = dict(held)
        np.savez(output, **named)
    return not len(findings)


def _say(source: SourceFile, findings: Findings) -> None:
    told = [*findings, *findings.advice.values()]
    if told:
        click.echo(render([diagnostic_of(f, source, lambda _: None) for f in told]), err=True)


def _as_json(program: Program, findings: Findings, steps: int) -> dict[str, Any]:
    return {
        "kernel": program.name,
        "instructions": steps,
        "findings": [_row(f) for f in findings],
        "advice": [_row(f) for f in findings.advice.values()],
    }


def _row(finding: Finding) -> dict[str, Any]:
    return {"severity": finding.severity, **asdict(finding)}


def _three(option: str, text: str) -> tuple[int, int, int]:
    """``4`` or ``4x2x1``."""
    numbers = _extents(option, text)
    if len(numbers) > 3 or min(numbers) < 1:
        raise click.UsageError(f"{option} is one to three numbers from 1 on, such as 4x2x1")
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def _extents(what: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split("x"))
    except ValueError:
        raise click.UsageError(f"{what} is numbers with x between, got `{text}`") from None


# --- arrays --------------------------------------------------------------------------------------


def _arrays(texts: Sequence[str], seed: int) -> tuple[dict[str, HostArray], dict[str, bool]]:
    held: dict[str, HostArray] = {}
    written: dict[str, bool] = {}
    for text in texts:
        _add_array(held, written, text, seed)
    return held, written


def _add_array(held: dict[str, HostArray], written: dict[str, bool], text: str, seed: int) -> str:
    name, equals, what = text.partition("=")
    if not equals or not name or not what:
        raise click.UsageError(
            f"an array is written NAME=FILE.npy or NAME=zeros:DTYPE:SHAPE, got `{text}`"
        )
    if name in held:
        raise click.UsageError(f"there are two arrays {name}")
    held[name] = _array(name, what, seed + len(held))
    written[name] = not what.startswith("empty:")
    return name


def _array(name: str, what: str, seed: int) -> HostArray:
    kind, _, rest = what.partition(":")
    if kind not in _MADE:
        return _from_file(name, what)
    dtype_name, _, shape_text = rest.partition(":")
    if dtype_name not in DTYPES:
        hint = did_you_mean(dtype_name, DTYPES) or f"there are {', '.join(DTYPES)}"
        raise click.UsageError(f"no element type `{dtype_name}`; {hint}")
    shape = _extents(f"the shape of {name}", shape_text)
    dtype = DTYPES[dtype_name]
    if dtype.is_nibble and (not shape or shape[-1] % 2):
        raise click.UsageError(f"the last axis of {name} has an even extent: two {dtype} a byte")
    if kind == "random":
        from tilec.runtime.trial import random_array

        return random_array(np.random.default_rng(seed), dtype, shape)
    filled = np.full(shape, 1 if kind == "ones" else 0)
    if dtype.is_nibble:
        return encode(dtype, filled, storage(dtype))
    kept = decode(dtype, filled.astype(np.float64)) if dtype.is_float else filled
    return encode(dtype, kept, storage(dtype)) if dtype.is_float else kept.astype(storage(dtype))


def _from_file(name: str, what: str) -> HostArray:
    path, _, member = what.partition(":")
    try:
        loaded: Any = np.load(Path(path))
    except (OSError, ValueError) as error:
        raise click.UsageError(f"the array {name} cannot be read from {path}: {error}") from None
    if isinstance(loaded, np.lib.npyio.NpzFile):
        if (member or name) not in loaded:
            raise click.UsageError(f"{path} has no array {member or name}; it has {list(loaded)}")
        loaded = loaded[member or name]
    return np.ascontiguousarray(loaded)


# --- parameters ----------------------------------------------------------------------------------


def _values(
    program: Program,
    held: dict[str, HostArray],
    written: dict[str, bool],
    texts: Sequence[str],
    seed: int,
) -> tuple[Value, ...]:
    if len(texts) != len(program.parameters):
        shown = ", ".join(f"{p.name}: .{p.type}" for p in program.parameters)
        raise click.UsageError(
            f"{program.name} has {len(program.parameters)} parameters ({shown}); "
            f"{len(texts)} are given with --arg"
        )
    found: list[Value] = []
    for parameter, text in zip(program.parameters, texts, strict=True):
        if text.startswith("map:"):
            found.append(_map(held, text))
        elif "=" in text:
            found.append(BufferPointer(_add_array(held, written, text, seed)))
        elif text in held:
            found.append(BufferPointer(text))
        else:
            found.append(Bits(_number(parameter, text, held)))
    return tuple(found)


def _number(parameter: Parameter, text: str, held: Mapping[str, Any]) -> bytes:
    bits = 8 * parameter.bytes
    try:
        return (int(text, 0) & ((1 << bits) - 1)).to_bytes(parameter.bytes, "little")
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        hint = did_you_mean(text, held) or f"there are {', '.join(held) or 'none'}"
        raise click.UsageError(f"no array is called `{text}`; {hint}") from None
    if bits not in (16, 32, 64):
        raise click.UsageError(f"{parameter.name} has {bits} bits; a float needs 16, 32 or 64")
    if parameter.type.startswith(("s", "u")):
        raise click.UsageError(f"{parameter.name} is .{parameter.type}, got `{text}`")
    return np.array(value, f"f{parameter.bytes}").tobytes()


def _map(held: Mapping[str, HostArray], text: str) -> BufferMap:
    """``map:ARRAY:box=64x128[:swizzle=128][:extents=..][:strides=..][:offset=..]``."""
    _, name, *fields = text.split(":")
    if name not in held:
        hint = did_you_mean(name, held) or f"there are {', '.join(held) or 'none'}"
        raise click.UsageError(f"no array is called `{name}`; {hint}")
    array, given = held[name], {}
    for item in fields:
        key, _, value = item.partition("=")
        if key not in ("box", "swizzle", "extents", "strides", "offset"):
            raise click.UsageError(
                f"a map has box, swizzle, extents, strides and offset, not `{key}`"
            )
        given[key] = _extents(f"{key} of the map", value)
    if "box" not in given:
        raise click.UsageError(f"the map on {name} needs a box, such as box=64x128")
    extents = given.get("extents", array.shape[::-1])
    strides = given.get("strides")
    if strides is None:
        if extents != array.shape[::-1]:
            raise click.UsageError("a map with other extents than its array needs strides")
        strides = array.strides[::-1][1:]
    if not len(given["box"]) == len(extents) == len(strides) + 1:
        raise click.UsageError(
            f"the map on {name} has {len(extents)} extents, {len(strides)} strides (one less: the "
            f"innermost axis has none) and a box of {len(given['box'])}"
        )
    (swizzle,), (offset,) = given.get("swizzle", (0,)), given.get("offset", (0,))
    if swizzle not in (0, 32, 64, 128):
        raise click.UsageError(f"a swizzle spans 0, 32, 64 or 128 bytes, not {swizzle}")
    return BufferMap(name, offset, array.itemsize, extents, strides, given["box"], swizzle)
