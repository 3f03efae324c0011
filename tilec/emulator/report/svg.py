"""A timeline as SVG: a row for each role, stage and engine, a rectangle for each span of time."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as xml

from tilec.emulator.report.replay import BUSY
from tilec.emulator.report.timeline import FILLING, HELD, Row, Timeline

COLORS = {
    "works": "#2f7d4f", "operands": "#c9b458", "unit": "#e0a458", "mbarrier": "#b34a4a",
    "barrier": "#8a3f70", "products": "#6a7fc1", "copies": "#4f9aa8", "fence": "#777777",
    FILLING: "#a9c7e8", HELD: "#4a6fa5", BUSY: "#444444",
}  # fmt: skip
_NAMES, _WIDTH, _ROW, _GAP, _HEAD = 230, 1000, 18, 5, 44
_LEAST = 0.05
"""Pixels: narrower spans than this are not drawn."""


def svg(timelines: Sequence[tuple[str, Timeline]]) -> str:
    """Timelines below each other, each under its title."""
    height = sum(_height(line) for _, line in timelines) + _HEAD
    root = xml.Element("svg", {
        "xmlns": "http://www.w3.org/2000/svg",
        "width": str(_NAMES + _WIDTH + 20),
        "height": str(height),
        "font-family": "monospace",
        "font-size": "12",
    })  # fmt: skip
    xml.SubElement(root, "rect", {"width": "100%", "height": "100%", "fill": "white"})
    _legend(root, timelines)
    top = _HEAD
    for title, line in timelines:
        _draw(root, title, line, top)
        top += _height(line)
    xml.indent(root)
    return xml.tostring(root, encoding="unicode") + "\n"


def _height(line: Timeline) -> int:
    return _HEAD + len(line.rows) * (_ROW + _GAP)


def _legend(root: xml.Element, timelines: Sequence[tuple[str, Timeline]]) -> None:
    used = {s.what for _, line in timelines for row in line.rows for s in row.spans}
    left = 10
    for what, color in COLORS.items():
        if what in used:
            place = {"x": str(left), "y": "12", "width": "12", "height": "12", "fill": color}
            xml.SubElement(root, "rect", place)
            _text(root, left + 17, 22, what)
            left += 40 + 8 * len(what)


def _draw(root: xml.Element, title: str, line: Timeline, top: int) -> None:
    _text(root, 10, top + 16, f"{title}: {line.cycles:.0f} cycles")
    scale = _WIDTH / max(line.cycles, 1.0)
    for number, row in enumerate(line.rows):
        y = top + 26 + number * (_ROW + _GAP)
        _text(root, 10, y + 13, row.name)
        frame = {"x": str(_NAMES), "y": str(y), "width": str(_WIDTH), "height": str(_ROW)}
        xml.SubElement(root, "rect", {**frame, "fill": "#f2f2f2"})
        _spans(root, row, y, scale)


def _spans(root: xml.Element, row: Row, y: int, scale: float) -> None:
    group = xml.SubElement(root, "g")
    for span in row.spans:
        width = (span.end - span.start) * scale
        if width < _LEAST:
            continue
        box = xml.SubElement(group, "rect", {
            "x": f"{_NAMES + span.start * scale:.2f}",
            "y": str(y),
            "width": f"{width:.2f}",
            "height": str(_ROW),
            "fill": COLORS[span.what],
        })  # fmt: skip
        title = xml.SubElement(box, "title")
        title.text = f"{span.what}, {span.start:.0f} to {span.end:.0f}"


def _text(root: xml.Element, x: int, y: int, text: str) -> None:
    xml.SubElement(root, "text", {"x": str(x), "y": str(y)}).text = text
