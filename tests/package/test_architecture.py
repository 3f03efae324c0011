"""docs/architecture.md is a complete map: one sentence for each module, and no module made up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.package import architecture

CHECKOUT = Path(__file__).resolve().parents[2]


def test_the_map_is_up_to_date() -> None:
    page = architecture.PAGE.read_text(encoding="utf-8")
    command = "python -m tests.package.architecture"
    assert page == architecture.rewritten(page), f"bring the map up to date with: {command}"


def test_every_folder_is_on_the_map() -> None:
    assert architecture.folders() - set(architecture.FOLDERS) == set()


@pytest.mark.parametrize("folder", architecture.FOLDERS)
def test_each_module_opens_with_one_sentence(folder: str) -> None:
    for path in architecture.modules(folder):
        text = architecture.sentence(path)
        assert re.search(r"[.?]$", text), f"{path}: {text!r} is no sentence"
        assert len(text) <= 200, f"{path}: {text!r} is longer than a map bears"


def test_links_between_the_pages_lead_somewhere() -> None:
    pages = [CHECKOUT / "README.md", *(CHECKOUT / "docs").glob("*.md")]
    for page in pages:
        prose = re.sub(
            r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL
        )
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
