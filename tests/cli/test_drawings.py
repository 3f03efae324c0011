"""Drawings of layouts in a dump."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli.conftest import Command


def test_drawings_have_the_banks_of_their_tile_s_elements(
    tilec: Command, examples: Path, tmp_path: Path
) -> None:
    for program, dtype, bits, sizes in (
        ("gemm", "bf16", 16, "M=64,N=4096,K=4096"),
        ("softmax", "f32", 32, "M=64,N=4096"),
    ):
        tilec("compile", examples / f"{program}.tk", "--shape", sizes, "--dump", tmp_path)
        drawings = (tmp_path / "layouts.txt").read_text()
        assert f", a tile of {dtype}\n" in drawings
        cells = re.findall(r"\b(\d+)/(\d+)\b", drawings)
        assert cells
        assert {int(bank) == int(offset) * bits // 32 % 32 for offset, bank in cells} == {True}
