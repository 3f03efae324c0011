"""docs/hardware.md is what the renderer makes of the readings in the checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
READINGS = ("hardware.json", "hardware-edges.json")


def test_the_hardware_page_is_rendered_from_the_readings() -> None:
    files = [f"benchmarks/results/{name}" for name in READINGS]
    made = subprocess.run(
        [sys.executable, "-m", "tests.gpu.hardware_facts", "--render", *files],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout == (CHECKOUT / "docs" / "hardware.md").read_text(encoding="utf-8")
