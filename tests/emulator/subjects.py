"""Programs that mutation testing changes: three examples, and reference texts given by a folder.

A subject runs in a fraction of a second and still goes round each of its rings more than twice, so
that a fault in the order of any stage can show.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tests.emulator.running import prepared
from tilec.emulator.launch import BufferMap, Launch
from tilec.emulator.parse import parse_ptx
from tilec.emulator.program import Program
from tilec.source import SourceFile

Arrays = dict[str, np.ndarray]


@dataclass
class Subject:
    """A program, and how to launch it on fresh arrays."""

    name: str
    text: SourceFile
    program: Program
    arrays: Arrays
    launch: Launch

    def fresh(self) -> tuple[Launch, Arrays]:
        """A launch on copies of the arrays."""
        held = {name: a.copy() for name, a in self.arrays.items()}
        buffers = {name: a.reshape(-1).view(np.uint8) for name, a in held.items()}
        return replace(self.launch, buffers=buffers), held


def bf16(values: np.ndarray) -> np.ndarray:
    """The upper halves of float32 numbers."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def _example(name: str, arrays: Arrays, bounds: dict[str, int] | None = None) -> Subject:
    text, launch = prepared(name, arrays, bounds)
    (program,) = parse_ptx(text).values()
    return Subject(name, text, program, arrays, launch)


def gemm() -> Subject:
    """Two tiles for one CTA, of the program for sizes that nobody promised.

    K takes its ring of three stages round three times in all, and the second tile begins at the
    last stage.
    """
    rng = np.random.default_rng(1)
    a, b = (bf16(rng.standard_normal((n, 5 * 64))) for n in (256, 256))
    made = _example("gemm", {"a": a, "b": b, "c": np.zeros((256, 256), np.uint16)}, {})
    made.launch = replace(made.launch, grid=(1, 1, 1))
    return made


def attention() -> Subject:
    """One block of queries; blocks of keys that go round the rings, and a ragged one."""
    rng = np.random.default_rng(2)
    q, k, v = (bf16(rng.standard_normal((1, 1, n, 128))) for n in (64, 330, 330))
    out = {"o": np.zeros((1, 1, 64, 128), np.uint16), "lse": np.zeros((1, 1, 64), np.float32)}
    scale = np.array(0.088, np.float32)
    return _example("attention", {"q": q, "k": k, "v": v, "scale": scale, **out})


def softmax() -> Subject:
    """Rows as long as the program takes them."""
    x = bf16(np.random.default_rng(3).standard_normal((2, 4096)))
    return _example("softmax", {"x": x, "y": np.zeros_like(x)})


def short_softmax() -> Subject:
    """Short rows, which take another branch of the same program."""
    x = bf16(np.random.default_rng(3).standard_normal((2, 296)))
    return _example("softmax", {"x": x, "y": np.zeros_like(x)}, {"N": 4096})


EXAMPLES: Mapping[str, Callable[[], Subject]] = {
    "gemm": gemm,
    "attention": attention,
    "softmax": softmax,
    "softmax, short rows": short_softmax,
}


# --- reference texts, with loop counts made small ------------------------------------------------


def _small(text: str, counts: Mapping[str, int]) -> str:
    for pattern, count in counts.items():
        text, found = re.subn(pattern, rf"\g<1>{count};", text)
        if not found:
            raise ValueError(f"the reference text has no {pattern}")
    return text


def _reference(
    path: Path, counts: Mapping[str, int], maps: list[BufferMap], **more: object
) -> Subject:
    text = SourceFile(path.name, _small(path.read_text(), counts))
    (program,) = parse_ptx(text).values()
    arrays: Arrays = more["arrays"]  # type: ignore[assignment]
    threads, shared = int(more["threads"]), int(more["shared"])  # type: ignore[call-overload]
    launch = Launch((1, 1, 1), (threads, 1, 1), shared, tuple(maps), {})
    return Subject(path.stem, text, program, arrays, launch)


def reference_gemm(folder: Path) -> Subject:
    """Two tiles of 128 by 256, five blocks of K each."""
    blocks, rng = 5, np.random.default_rng(4)
    k = 64 * blocks
    sizes = {"a": (256, 128), "b": (256, 256)}
    arrays = {n: bf16(rng.standard_normal((rows, k))) for n, (rows, _) in sizes.items()}
    maps = [BufferMap(n, 0, 2, (k, r), (2 * k,), (64, box), 128) for n, (r, box) in sizes.items()]
    maps.append(BufferMap("c", 0, 2, (256, 256), (512,), (64, 64), 128))
    counts = {
        r"(setp\.lt\.u32 %p\d+, %r\d+, )8192;": k,
        r"(mov\.b32 %r\d+, )127;": blocks - 1,
        r"(setp\.ge\.u32 %p\d+, %r\d+, )2048;": 2,
    }
    return _reference(
        folder / "gemm_tn_8192.ptx",
        counts,
        maps,
        arrays={**arrays, "c": np.zeros((256, 256), np.uint16)},
        threads=384,
        shared=180272,
    )


def reference_attention(folder: Path) -> Subject:
    """Two tiles of 192 queries, three blocks of 112 keys each."""
    blocks, rng = 3, np.random.default_rng(5)
    rows = {"q": 384, "k": 112 * blocks, "v": 112 * blocks, "o": 384}
    boxes = {"q": 192, "k": 112, "v": 112, "o": 64}
    arrays = {n: bf16(rng.standard_normal((r, 64))) for n, r in rows.items()}
    arrays["o"][:] = 0
    maps = [
        BufferMap(n, 0, 2, (64, r, 1, 1), (128, 128, 128 * r), (64, boxes[n], 1, 1), 128)
        for n, r in rows.items()
    ]
    counts = {r"(mov\.b32 %r\d+, )147;": blocks, r"(setp\.ge\.u32 %p\d+, %r\d+, )2752;": 2}
    return _reference(
        folder / "attention_d64.ptx", counts, maps, arrays=arrays, threads=512, shared=106624
    )


REFERENCES: Mapping[str, Callable[[Path], Subject]] = {
    "gemm_tn_8192": reference_gemm,
    "attention_d64": reference_attention,
}
