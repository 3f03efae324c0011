"""docs/architecture.md is a complete map: one sentence for each module, and no module made up."""

from __future__ import annotations

import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
MAP = CHECKOUT / "docs" / "architecture.md"

_ROW = re.compile(r"^\| `([^`]+\.py)` \| (.+) \|$", re.MULTILINE)


def _listed() -> dict[str, str]:
    return dict(_ROW.findall(MAP.read_text(encoding="utf-8")))


def _modules() -> set[str]:
    generated = {"_tk_parser.py", "_ir_parser.py"}
    return {
        str(path.relative_to(CHECKOUT))
        for folder in ("tilec", "benchmarks")
        for path in (CHECKOUT / folder).rglob("*.py")
        if path.name not in generated and path.read_text(encoding="utf-8").strip()
    }


def test_every_module_is_on_the_map() -> None:
    assert _modules() - set(_listed()) == set()


def test_every_module_on_the_map_exists() -> None:
    assert set(_listed()) - _modules() == set()


def test_each_module_has_one_sentence() -> None:
    for name, text in _listed().items():
        assert text.endswith("."), f"{name}: {text}"
        assert len(text) <= 160, f"{name}: {text}"
        assert ". " not in text, f"{name}: {text}"


def test_links_between_the_pages_lead_somewhere() -> None:
    pages = [CHECKOUT / "README.md", *(CHECKOUT / "docs").glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
