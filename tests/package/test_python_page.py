"""docs/python.md runs as it stands: its blocks are one program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


def test_the_python_page_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(CHECKOUT)
    page = (CHECKOUT / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 6
    exec(compile("\n".join(blocks), "docs/python.md", "exec"), {})
    assert "K" in capsys.readouterr().out  # the message names the size that disagrees
