"""Layouts: who holds which element of a tile, as XOR-linear maps, and what follows from them.

Start with `linear`. `fragments` and `shared` name the layouts that hardware fixes; `descriptor`,
`tma`, `matrices`, `vectors`, `banks` and `convert` read instructions and prices off layouts;
`draw` shows them. Pure integers: nothing here imports another part of tilec.
"""

from tilec.layout.linear import Digit, Layout, LayoutError, LayoutRefusal

__all__ = ["Digit", "Layout", "LayoutError", "LayoutRefusal"]
