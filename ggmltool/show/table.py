"""Tables and lines for a terminal. Numbers are never cut or wrapped; names give way where there is little room."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar

from ggmltool.show.text import harmless, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.style import Style as StyleOfRich
    from rich.text import Text

    Styled = str | StyleOfRich
    Piece = tuple[str, Styled]
    """A part of a line, and its style ("" for none)."""

T = TypeVar("T")

_LAST_NUMBER = re.compile(r"(?<=[^\s,])[-#~]\d+$")
_GAP = 2
_MIN_NAME = 8
_DROP_FIRST = 5


@dataclass(frozen=True, slots=True)
class Head:
    """A column of rows that are made elsewhere. `cut` says that its cells may be shortened with an ellipsis; `drop`
    that the whole column may go where there is too little room, the highest number first (0: it stays), from 5 on
    before anything is cut. `numbers` says that numbers stand in cells that may be cut: such a cell ends behind a comma,
    not within a number."""

    header: str
    _: KW_ONLY
    right: bool = False
    cut: bool = False
    drop: int = 0
    numbers: bool = False


class Cell(NamedTuple):
    """A cell that has a color of its own ("" for none)."""

    text: str
    style: str = ""


Shown = str | int | Cell | None
"""What a cell can be made of; None makes an empty one."""


@dataclass(frozen=True, slots=True)
class Column(Head, Generic[T]):
    """A column that has its cells from records."""

    get: Callable[[T], Shown]


@dataclass(frozen=True, slots=True)
class Style:
    """How a view may write: the columns it has, and the colors ("": none, as when the output is a file)."""

    width: int = 100
    colors: Literal["", "standard", "256"] = ""


Row = Sequence[Shown]


class Table(Generic[T]):
    """A table of records."""

    def __init__(self, *columns: Column[T]) -> None:
        self.columns = columns

    def rows(self, records: Iterable[T]) -> list[Row]:
        """A row for each record."""
        return [[column.get(record) for column in self.columns] for record in records]

    def render(self, records: Iterable[T], style: Style) -> str:
        """The table as text, as `render_table` has it."""
        return render_table(self.columns, self.rows(records), style)

    def section(self, name: str, records: Iterable[T], style: Style) -> list[str]:
        """The table under its name, nothing if there are no records."""
        return section(name, self.columns, self.rows(records), style)


def _safe(cell: Shown) -> Cell:
    if isinstance(cell, Cell):
        return Cell(printable(cell.text), cell.style)
    return Cell(printable("" if cell is None else str(cell)))


def render_table(columns: Sequence[Head], rows: Sequence[Row], style: Style) -> str:
    """The table as text, one line per row, below a header, and last the columns that there was no room for; ends with a
    newline. Where a row is short, its last cells are empty."""
    from textwrap import wrap

    from rich.cells import cell_len

    blank = [Cell("")] * len(columns)
    cells = [[*(_safe(cell) for cell in row), *blank[len(row) :]] for row in rows]
    natural = [
        max([cell_len(column.header), *(cell_len(row[i].text) for row in cells)]) for i, column in enumerate(columns)
    ]
    empty = [not any(row[i].text for row in cells) for i in range(len(columns))]
    widths = _fit(columns, natural, empty, style.width)

    def fitted(text: str, i: int) -> str:
        width = widths[i]
        if cell_len(text) > width:
            text = _cut_text(text, width, columns[i].numbers)
        pad = " " * (width - cell_len(text))
        return pad + text if columns[i].right else text + pad

    shown = [i for i, width in enumerate(widths) if width]
    lines = [_stripped([(fitted(columns[i].header, i), "dim") for i in shown])]
    lines += [_stripped([(fitted(row[i].text, i), row[i].style) for i in shown]) for row in cells]
    gone = [
        c.header for c, width, none in zip(columns, widths, empty, strict=True) if c.header and not width and not none
    ]
    text = printable(f"left out at this width: {', '.join(gone)}") if gone else ""
    left_out = wrap(text, max(style.width, 20), initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    return _written([*lines, *([(line, "dim")] for line in left_out)], style)


def _cut_text(text: str, width: int, numbers: bool) -> str:
    """The beginning of a text that is too wide, with an ellipsis; with `numbers`, only whole parts between commas.

    A name keeps the number at its end: the layer, or which of the copies it is.

    >>> _cut_text("x 0:128+32, y", 10, False), _cut_text("x 0:128+32, y", 10, True)
    ('x 0:128+3…', 'x…')
    >>> _cut_text("0–128, 256–512", 12, True), _cut_text("attn_norm-12", 10, False)
    ('0–128, …', 'attn_n…-12')
    """
    from rich.cells import cell_len, set_cell_size

    last = _LAST_NUMBER.search(text)
    end = last[0] if last and not numbers and cell_len(last[0]) <= width // 2 else ""
    kept = set_cell_size(text, max(width - 1 - cell_len(end), 0))
    if numbers:
        whole, comma, part = kept.rpartition(", ")
        kept = whole + comma if comma else part.rstrip("0123456789:+–")
        return kept.rstrip() + (" …" if comma else "…")
    return f"{kept.rstrip()}…{end}"


def _stripped(cells: Sequence[Piece]) -> list[Piece]:
    """A line of cells with gaps before and between them, without blanks at its end."""
    gap = (" " * _GAP, "")
    line = [piece for cell in cells for piece in (gap, cell)]
    while line and not line[-1][0].strip():
        line.pop()
    if line:
        line[-1] = line[-1][0].rstrip(), line[-1][1]
    return line


def _fit(columns: Sequence[Head], natural: Sequence[int], empty: Sequence[bool], width: int) -> list[int]:
    """Head widths that fit: first the cells that may be cut shrink, the widest first, then columns go; before that
    those in which nothing stands."""
    widths = list(natural)
    gone: set[int] = set()

    def excess() -> int:
        shown = [w for w in widths if w]
        return 2 + sum(shown) + _GAP * (len(shown) - 1) - width

    drops = sorted((i for i, c in enumerate(columns) if c.drop), key=lambda i: (not empty[i], -columns[i].drop))
    while excess() > 0:
        cuttable = [i for i, c in enumerate(columns) if c.cut and widths[i] > max(_MIN_NAME, len(c.header))]
        if cuttable and not (drops and (empty[drops[0]] or columns[drops[0]].drop >= _DROP_FIRST)):
            widest = max(cuttable, key=lambda i: widths[i])
            second = max([widths[i] for i in cuttable if i != widest], default=0)
            floor = max(second - 1, _MIN_NAME, len(columns[widest].header))
            widths[widest] -= max(1, min(excess(), widths[widest] - floor))
        elif drops:
            gone.add(drops.pop(0))
            widths = [0 if i in gone else n for i, n in enumerate(natural)]
        else:
            break
    return widths


def without_middle(rows: Sequence[Row], most: int, gap: Callable[[int], Row]) -> Sequence[Row]:
    """Rows without the middle ones of more than `most`; `gap` makes the row in their place from their number."""
    n = len(rows) - most
    first = most - most // 3
    return [*rows[:first], gap(n), *rows[first + n :]] if n > 0 else rows


def render_lines(lines: Sequence[str | Text], style: Style) -> str:
    """Lines as text, colored where the style says so; never wrapped. Here every view's text is made harmless: what
    comes from outside gets neither colors of its own nor anything else that a terminal obeys."""

    def pieces(line: Text) -> list[Piece]:
        whole = line.blank_copy().append_text(line)  # the style of the line is one of its parts' now
        return [(part.text, part.style or "") for part in whole.render(_console())]

    return _written([[(line, "")] if isinstance(line, str) else pieces(line) for line in lines], style)


def _written(lines: Iterable[Sequence[Piece]], style: Style) -> str:
    """Lines as text: rich decides how a style is written, and nothing else, for there may be a million lines."""
    if not style.colors:
        return "".join(harmless("".join(text for text, _ in line)).expandtabs() + "\n" for line in lines)
    from rich.color import ColorSystem

    system = ColorSystem.EIGHT_BIT if style.colors == "256" else ColorSystem.STANDARD
    get_style = _console().get_style

    def colored(text: str, named: Styled) -> str:
        text = harmless(text)
        return get_style(named).render(text, color_system=system) if named else text

    return "".join("".join(colored(*piece) for piece in _without_tabs(line)) + "\n" for line in lines)


def _without_tabs(line: Sequence[Piece]) -> Sequence[Piece]:
    if not any("\t" in text for text, _ in line):
        return line
    out, column = [], 0
    for text, style in line:
        expanded = (" " * column + text).expandtabs()[column:]
        out.append((expanded, style))
        column = len(expanded.rpartition("\n")[2]) + (0 if "\n" in expanded else column)
    return out


@cache
def _console() -> Console:
    from rich.console import Console

    return Console(_environ={}, markup=False, emoji=False, highlight=False, legacy_windows=False)


def heading(title: str, facts: Sequence[str], style: Style) -> str:
    """The top of a view: what it is about, in bold, and facts beside it or, if there is no room, below it."""
    from rich.cells import cell_len
    from rich.text import Text

    lines = [Text(printable(title), "bold")]
    for fact in map(printable, facts):
        if lines[-1].cell_len + 3 + cell_len(fact) > style.width:
            lines.append(Text("  ") + Text(fact))
        else:
            lines[-1] = Text.assemble(lines[-1], (" · ", "dim"), fact)
    return render_lines(lines, style)


def section(name: str, columns: Sequence[Head], rows: Sequence[Row], style: Style) -> list[str]:
    """A table under its name, nothing if it has no rows."""
    return [render_lines(["", name], style), render_table(columns, rows, style)] if rows else []
