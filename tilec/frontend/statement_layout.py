"""One statement as lines of at most 100 characters: where it is broken, and where spaces stand.

A statement is a row of leaves (tokens) and groups (what stands between brackets). A row that fits
stays on its line. A row inside brackets is broken before its loosest operators, then by opening
its groups, an element a line; a statement is broken by opening groups first, and gets backslashes
only where no group helps. A comma before a closing bracket keeps a group open, as in Black.

Invariants: tokens are never added, left out or exchanged, save a comma before a closing bracket
where the grammar makes nothing of it; no comment is lost, reordered or rewritten. A comment stays
beside the token that it follows, or above the one that it precedes; a comma may step over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

LINE_LENGTH = 100
INDENT = 4

ENDS_OPERAND = frozenset({"NAME", "INTEGER", "FLOAT", "STRING", "NONE", "RPAR", "RSQB"})
_HOMES = ("SHARED", "REGISTER")
_BY_STRENGTH = (
    *("OR", "AND", "COMPARE", "VBAR", "CIRCUMFLEX", "AMPERSAND", "SHIFT", "SIGN", "FACTOR"),
)
_BINARY = {name: strength for strength, name in enumerate(_BY_STRENGTH, 1)}
"""How tightly the operators bind before which a line may be broken."""


@dataclass
class Leaf:
    """A token, the space before it, and its comments."""

    type: str
    text: str
    space: bool = False
    strength: int = 0
    above: list[str] = field(default_factory=list)
    beside: str = ""

    def has_comment(self) -> bool:
        """Whether a comment belongs to this token."""
        return bool(self.above or self.beside)


@dataclass
class Group:
    """A pair of brackets: elements, and the comma behind each but, perhaps, the last."""

    open: Leaf
    close: Leaf
    elements: list[list[Node]]
    commas: list[Leaf]
    takes_comma: bool
    is_subscript: bool
    is_one_tuple: bool
    stays_open: bool = field(init=False)

    def __post_init__(self) -> None:
        asked = self.takes_comma and 0 < len(self.elements) == len(self.commas)
        inner = [leaf for row in self.elements for leaf in leaves(row)]
        held = any(leaf.has_comment() for leaf in (*inner, *self.commas))
        nested = any(
            node.stays_open for row in self.elements for node in row if isinstance(node, Group)
        )
        self.stays_open = asked or held or nested or bool(self.open.beside or self.close.above)


Node = Leaf | Group
Row = Sequence[Node]


def leaves(row: Row) -> Iterator[Leaf]:
    """All tokens of a row but the commas of its groups, in order."""
    for node in row:
        if isinstance(node, Leaf):
            yield node
        else:
            yield node.open
            for element in node.elements:
                yield from leaves(element)
            yield node.close


# --- from tokens to a row -------------------------------------------------------------------------


def row_of(tokens: Sequence[Leaf]) -> list[Node]:
    """Give each token its space, and put what is between brackets into groups."""
    place = [0]
    return _rows(tokens, place, "")[0][0]


def _rows(
    tokens: Sequence[Leaf], place: list[int], around: str
) -> tuple[list[list[Node]], list[Leaf]]:
    """The rows up to the bracket that closes ``around``, and the commas between them."""
    rows: list[list[Node]] = [[]]
    commas: list[Leaf] = []
    while place[0] < len(tokens):
        token = tokens[place[0]]
        if token.type in ("RPAR", "RSQB"):
            break
        before = tokens[place[0] - 1] if place[0] else None
        _set_space(tokens[0], before, token, around)
        place[0] += 1
        if token.type == "COMMA" and around:
            commas.append(token)
            rows.append([])
        elif token.type in ("LPAR", "LSQB"):
            rows[-1].append(_group(tokens, place, token, before))
        else:
            rows[-1].append(token)
    if around and not rows[-1]:
        rows.pop()
    return rows, commas


def _group(tokens: Sequence[Leaf], place: list[int], opened: Leaf, before: Leaf | None) -> Group:
    follows = before is not None and before.type in (*ENDS_OPERAND, *_HOMES)
    is_head = tokens[0].type in ("KERNEL", "FN") and place[0] == 3
    is_subscript = opened.type == "LSQB" and follows and not is_head
    around = "subscript" if is_subscript else "head" if opened.type == "LSQB" else "call"
    elements, commas = _rows(tokens, place, around)
    close = tokens[place[0]]
    place[0] += 1
    is_bare = opened.type == "LPAR" and not follows
    return Group(
        open=opened,
        close=close,
        elements=elements,
        commas=commas,
        takes_comma=not is_subscript and bool(elements) and not (is_bare and len(elements) == 1),
        is_subscript=is_subscript,
        is_one_tuple=is_bare and len(elements) == len(commas) == 1,
    )


def _set_space(first: Leaf, before: Leaf | None, token: Leaf, around: str) -> None:
    """Decide about the space before a token, and whether it is an operator between two values."""
    is_binary = before is not None and before.type in ENDS_OPERAND
    token.strength = _BINARY.get(token.type, 0) if is_binary else 0
    if before is None or token.type == "COMMA" or before.type in ("LPAR", "LSQB", "DOT"):
        return
    if token.type == "DOT":
        token.space = before.type == "INTEGER"  # `1.` is a float
        return
    is_sign = before.type == "TILDE" or (before.type == "SIGN" and not before.strength)
    in_pin = around == "subscript" and first.type in _HOMES
    hugs_equal = around == "call" or in_pin or first.type == "SCHEDULE"
    if token.type == "COLON":
        token.space = before.type == "COMMA"
    elif token.type in ("LPAR", "LSQB") and before.type in (*ENDS_OPERAND, *_HOMES):
        token.space = False
    elif "EQUAL" in (token.type, before.type):
        token.space = not hugs_equal
    elif before.type == "COLON":
        token.space = around != "subscript"
    else:
        token.space = not is_sign


# --- the page -------------------------------------------------------------------------------------


class Page:
    """The lines written so far; comments wait until their line ends."""

    def __init__(self, indent: int) -> None:
        self.lines: list[str] = []
        self.indent = indent
        self._line = ""
        self._waiting: list[tuple[str, bool]] = []

    def write(self, leaf: Leaf) -> None:
        """Add a token and its comments; a comma steps in front of comments that wait."""
        if leaf.type == "COMMA":
            self._line += leaf.text
            self.keep(leaf)
            return
        self.keep(Leaf("", "", above=leaf.above))
        self._say_comments()
        self._line += " " * (leaf.space and bool(self._line)) + leaf.text
        self.keep(Leaf("", "", beside=leaf.beside))

    def keep(self, leaf: Leaf) -> None:
        """Only the comments of a token."""
        self._waiting += [(comment, True) for comment in leaf.above]
        if leaf.beside:
            self._waiting.append((leaf.beside, False))

    def new_line(self, indent: int, backslash: bool = False) -> None:
        """End the line, if something is on it."""
        if backslash:
            self._line += " \\"
        self._say_comments()
        self._end()
        self.indent = indent

    def _say_comments(self) -> None:
        """Write the comments that wait: the first beside the line if it stood so, others below."""
        for number, (comment, is_above) in enumerate(self._waiting):
            if self._line and not number and not is_above:
                self._line += f"  {comment}"
                continue
            self._end()
            self._line = comment
        if self._waiting:
            self._end()
        self._waiting = []

    def _end(self) -> None:
        if self._line:
            self.lines.append(" " * self.indent + self._line)
        self._line = ""


# --- layout ---------------------------------------------------------------------------------------


def lines_of(tokens: Sequence[Leaf], indent: int) -> list[str]:
    """A statement as lines."""
    page = Page(indent)
    row = row_of(tokens)
    further = 2 * INDENT if tokens[-1].type == "COLON" else INDENT  # a block stands below
    _put(page, row, 0, in_brackets=False, further=further)
    page.new_line(indent)
    return page.lines


def _flat(row: Row) -> str:
    parts: list[str] = []
    for node in row:
        if isinstance(node, Leaf):
            parts.append(" " * node.space + node.text)
            continue
        inner = ",".join(_flat(element) for element in node.elements)
        comma = "," * node.is_one_tuple
        parts.append(" " * node.open.space + f"{node.open.text}{inner}{comma}{node.close.text}")
    return "".join(parts)


def _stays_open(row: Row) -> bool:
    """Whether comments or commas forbid to write a row on one line."""
    if any(isinstance(node, Group) and node.stays_open for node in row):
        return True
    all_ = list(leaves(row))
    return any(leaf.above for leaf in all_[1:]) or any(leaf.beside for leaf in all_[:-1])


def _put(page: Page, row: Row, tail: int, *, in_brackets: bool, further: int) -> None:
    """Write a row from the start of a line; ``tail`` characters must fit behind it.

    Lines after a break before an operator are indented by ``further``.
    """
    room = LINE_LENGTH - page.indent - tail
    if not _stays_open(row) and len(_flat(row).lstrip()) <= room:
        _open(page, row, set())
        return
    pieces = _between_operators(row)
    if in_brackets and len(pieces) > 1:
        _put_pieces(page, pieces, tail, in_brackets, further)
        return
    kept = {n for n, node in enumerate(row) if isinstance(node, Group) and node.stays_open}
    for chosen in _choices(row, kept, subscripts=in_brackets or len(pieces) == 1):
        if _fits(row, chosen, page.indent, tail):
            _open(page, row, chosen)
            return
    if len(pieces) > 1:
        _put_pieces(page, pieces, tail, in_brackets, further)
    else:
        _open(page, row, {n for n, node in enumerate(row) if _can_open(node)} | kept)


def _put_pieces(
    page: Page, pieces: list[list[Node]], tail: int, in_brackets: bool, further: int
) -> None:
    start = page.indent
    for number, piece in enumerate(pieces):
        is_last = number == len(pieces) - 1
        if number:
            page.new_line(start + further, backslash=not in_brackets)
        behind = tail if is_last else 0 if in_brackets else len(" \\")
        _put(page, piece, behind, in_brackets=in_brackets, further=INDENT)


def _between_operators(row: Row) -> list[list[Node]]:
    """A row cut before its loosest operators."""
    strengths = [node.strength if isinstance(node, Leaf) else 0 for node in row]
    loosest = min(filter(None, strengths[1:]), default=0)
    pieces: list[list[Node]] = [[]]
    for number, (node, strength) in enumerate(zip(row, strengths, strict=True)):
        if number and loosest and strength == loosest:
            pieces.append([])
        pieces[-1].append(node)
    return pieces


def _can_open(node: Node) -> bool:
    return isinstance(node, Group) and bool(node.elements)


def _choices(row: Row, kept: set[int], subscripts: bool) -> Iterator[set[int]]:
    """Which groups may be opened: no more than have to be, then the longest ones."""
    others = [
        (node.is_subscript, -len(_flat([node])), number)
        for number, node in enumerate(row)
        if isinstance(node, Group) and number not in kept and node.elements
        if subscripts or not node.is_subscript
    ]
    order = [number for _, _, number in sorted(others)]
    for count in range(len(order) + 1):
        yield kept | set(order[:count])


def _fits(row: Row, opened: set[int], indent: int, tail: int) -> bool:
    """Whether the lines that hold the opened brackets themselves are short enough."""
    width = indent
    for number, node in enumerate(row):
        if number in opened and isinstance(node, Group):
            if width + (node.open.space and number > 0) + len(node.open.text) > LINE_LENGTH:
                return False
            width = indent + len(node.close.text)
        else:
            text = _flat([node])
            width += len(text if number else text.lstrip())
    return width + tail <= LINE_LENGTH


def _open(page: Page, row: Row, opened: set[int]) -> None:
    """Write a row with some of its groups open and the others on one line."""
    for number, node in enumerate(row):
        if isinstance(node, Leaf):
            page.write(node)
        elif number in opened:
            _put_group(page, node)
        else:
            page.write(node.open)
            for place, element in enumerate(node.elements):
                _open(page, element, set())
                if place < len(node.elements) - 1 or node.is_one_tuple:
                    page.write(node.commas[place])
            page.write(node.close)


def _put_group(page: Page, group: Group) -> None:
    """A group with a line for each element."""
    outer, inner = page.indent, page.indent + INDENT
    page.write(group.open)
    for number, element in enumerate(group.elements):
        page.new_line(inner)
        written = group.commas[number] if number < len(group.commas) else None
        is_last = number == len(group.elements) - 1
        takes_comma = not is_last or group.takes_comma or group.is_one_tuple
        _put(page, element, int(takes_comma), in_brackets=True, further=0)
        if takes_comma:
            page.write(written or Leaf("COMMA", ","))
        elif written is not None:
            page.keep(written)
    page.new_line(inner)
    page.keep(Leaf("", "", above=group.close.above))
    page.new_line(outer)
    page.write(Leaf(group.close.type, group.close.text, beside=group.close.beside))
