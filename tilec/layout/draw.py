"""Pictures of a layout: a table of who owns what, as text and as SVG.

Register layouts show `thread:register` in each cell, shared layouts `offset/bank`. Tiles of other
ranks are drawn as one row (rank 1) or by their last two axes at index 0 of the others. Large tiles
are cut at a limit, and say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from tilec.layout.linear import AXES, Layout, LayoutError

CELL_WIDTH, CELL_HEIGHT, MARGIN = 62, 20, 30


@dataclass(frozen=True)
class Picture:
    """The cells to draw: text and a colour number for each element, and what was cut."""

    title: str
    cells: tuple[tuple[str, ...], ...]
    colours: tuple[tuple[int, ...], ...]
    shape: tuple[int, int]

    @property
    def is_cut(self) -> bool:
        """Whether some of the tile is not drawn."""
        return (len(self.cells), len(self.cells[0])) != self.shape


def picture(layout: Layout, element_bits: int = 16, limit: tuple[int, int] = (64, 64)) -> Picture:
    """Lay out the cells of a drawing; `limit` is the most rows and columns shown."""
    if layout.rank == 0:
        raise LayoutError("a layout of rank 0 has nothing to draw")
    rows, cols = (1, *layout.shape)[-2:]
    leading = (0,) * (layout.rank - 2)
    cells, colours = [], []
    for row in range(min(rows, limit[0])):
        made = [
            _cell(layout, element_bits, (*leading, row, col) if layout.rank > 1 else (col,))
            for col in range(min(cols, limit[1]))
        ]
        cells.append(tuple(text for text, _ in made))
        colours.append(tuple(colour for _, colour in made))
    return Picture(str(layout), tuple(cells), tuple(colours), (rows, cols))


def _cell(layout: Layout, element_bits: int, at: tuple[int, ...]) -> tuple[str, int]:
    owners = layout.owners(*at)
    index = owners[0]
    if "off" in index:
        bank = index["off"] * element_bits // 32 % 32
        return f"{index['off']}/{bank}", bank
    thread = index.get("warp", 0) * layout.size("lane") + index.get("lane", 0)
    more = "+" if len(owners) > 1 else ""
    return f"{thread}:{index.get('reg', 0)}{more}", thread % 32


def draw_text(layout: Layout, element_bits: int = 16, limit: tuple[int, int] = (64, 16)) -> str:
    """Draw a layout as a text table; `+` marks elements that others hold too."""
    drawn = picture(layout, element_bits, limit)
    width = max(len(text) for row in drawn.cells for text in row)
    width = max(width, len(str(len(drawn.cells[0]) - 1)))
    names = (AXES[0] + AXES[1]) if layout.rank > 1 else " " + AXES[0]
    head = f"{names[0]}\\{names[1]}".rjust(5) + "".join(
        f" {col:>{width}}" for col in range(len(drawn.cells[0]))
    )
    lines = [drawn.title, _legend(layout), head]
    lines += [
        f"{row:>5}" + "".join(f" {text:>{width}}" for text in cells)
        for row, cells in enumerate(drawn.cells)
    ]
    if drawn.is_cut:
        lines.append(f"... of {drawn.shape[0]} x {drawn.shape[1]} elements")
    return "\n".join(lines) + "\n"


def draw_svg(layout: Layout, element_bits: int = 16, limit: tuple[int, int] = (64, 64)) -> str:
    """Draw a layout as an SVG image: one colour for each lane, or each bank in shared memory."""
    drawn = picture(layout, element_bits, limit)
    width = MARGIN + CELL_WIDTH * len(drawn.cells[0])
    height = 2 * MARGIN + CELL_HEIGHT * len(drawn.cells)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="monospace" font-size="11">',
        f'<text x="4" y="16">{escape(drawn.title)}</text>',
    ]
    for row, (cells, colours) in enumerate(zip(drawn.cells, drawn.colours, strict=True)):
        y = 2 * MARGIN + row * CELL_HEIGHT
        parts.append(f'<text x="2" y="{y + 14}">{row}</text>')
        for col, (text, colour) in enumerate(zip(cells, colours, strict=True)):
            x = MARGIN + col * CELL_WIDTH
            parts.append(
                f'<rect x="{x}" y="{y}" width="{CELL_WIDTH}" height="{CELL_HEIGHT}" '
                f'fill="{_colour(colour)}" stroke="#888"/>'
                f'<text x="{x + 3}" y="{y + 14}">{escape(text)}</text>'
            )
    parts += [
        f'<text x="{MARGIN + col * CELL_WIDTH + 3}" y="{2 * MARGIN - 6}">{col}</text>'
        for col in range(len(drawn.cells[0]))
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend(layout: Layout) -> str:
    return "offset/bank" if "off" in layout.spaces else "thread:register"


def _colour(number: int) -> str:
    """Spread 32 numbers over hues, neighbours apart."""
    return f"hsl({number * 137 % 360}, 70%, {82 - number // 8 % 4 * 6}%)"
