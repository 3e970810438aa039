"""A chunk of a compute buffer as a bar of cells: what lies there now, free blocks, and the highest byte ever used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from ggmltool.debugger.screen.timeline import TensorSpan
from ggmltool.show.text import count, printable, size

if TYPE_CHECKING:
    from ggmltool.debugger.screen.look import Look
    from ggmltool.debugger.screen.scene import SceneChunk

FREE = "free"
UNUSED = "not used yet"
Owner = TensorSpan | str | None
"""What a cell shows: a tensor, a free block, what was never used yet, or nothing behind the end of the chunk."""


class Window(NamedTuple):
    """The bytes of a chunk that its bar shows, from `low` to before `high`."""

    low: int
    high: int

    def cell(self, offset: int, width: int) -> int:
        """The cell in which a byte lies."""
        return (offset - self.low) * width // max(self.high - self.low, 1)

    def offset(self, cell: int, width: int) -> int:
        """The first byte of a cell."""
        return self.low + cell * (self.high - self.low) // width


def window_of(extent: int, zoom: int, center: float) -> Window:
    """The window of a chunk: the whole at zoom 0, half of it at 1, and so on, around `center` (0 to 1)."""
    length = max(extent >> zoom, 1)
    low = min(max(int(extent * center) - length // 2, 0), max(extent - length, 0))
    return Window(low, low + length)


def owners(chunk: SceneChunk, at: int, window: Window, width: int) -> list[tuple[Owner, int]]:
    """What each cell of a bar shows, and how many tensors lie in it. A tensor is never hidden by a free block."""
    cells: list[tuple[Owner, int]] = [(None, 0)] * width
    most = [0] * width
    for offset, nbytes, owner in _ranges(chunk, at):
        first, last = max(offset, window.low), min(offset + nbytes, window.high)
        if first >= last:
            continue
        for i in range(window.cell(first, width), min(window.cell(last - 1, width), width - 1) + 1):
            there = min(last, window.offset(i + 1, width)) - max(first, window.offset(i, width))
            now, n = cells[i]
            is_span = isinstance(owner, TensorSpan)
            if now is None or (is_span and not isinstance(now, TensorSpan)) or (is_span and there > most[i]):
                cells[i], most[i] = (owner, n), there
            if is_span:
                cells[i] = (cells[i][0], n + 1)
    return cells


def _ranges(chunk: SceneChunk, at: int) -> Iterator[tuple[int, int, Owner]]:
    for span in chunk.spans:
        yield span.offset, span.size_at(at), span
    for offset, nbytes in chunk.free:
        yield offset, nbytes, FREE
    if chunk.extent > chunk.max_size:
        yield chunk.max_size, chunk.extent - chunk.max_size, UNUSED


def bar(
    cells: Sequence[tuple[Owner, int]], backend: str, selected: str, hovered: Owner, at: int, look: Look, rows: int
) -> list[Text]:
    """The rows of a bar: names in the ranges where they fit, below them sizes, then offsets."""
    out = [Text() for _ in range(rows)]
    for _, same in groupby(cells, lambda cell: id(cell[0]) if isinstance(cell[0], TensorSpan) else cell[0]):
        run = list(same)
        owner, several = run[0][0], any(n > 1 for _, n in run)
        style = look.face.hatch if owner == FREE else look.face.soft
        if isinstance(owner, TensorSpan):
            style = look.range(backend, owner.shade, owner.tensor == selected or owner is hovered)
        for row, text in enumerate(out):
            text.append(_fill(owner, row, len(run), at, several, look.colored), style)
    return out


def _fill(owner: Owner, row: int, width: int, at: int, several: bool, colored: bool) -> str:
    if owner is None:
        return " " * width
    if isinstance(owner, str):
        fill = "░" if owner == FREE else "·"
        word = f" {owner} " if row == 0 and width > len(owner) + 3 else ""
        return word.center(width, fill)
    edge = "▏" if colored else "|"
    label = (owner.tensor, size(owner.size_at(at)), str(owner.offset))[row] if row < 3 else ""
    if width == 1:
        return "┆" if several else edge
    return edge + fitted(printable(label), width - 1, whole=row > 0)


def fitted(text: str, width: int, whole: bool = False) -> str:
    """A text in exactly so many cells, cut with an ellipsis; with `whole` left out where it does not fit."""
    if cell_len(text) > width:
        if whole or width < 2:
            return " " * width
        cut = Text(text)
        cut.truncate(width, overflow="ellipsis")
        text = cut.plain
    return text + " " * (width - cell_len(text))


def chunk_title(chunk: SceneChunk, at: int, look: Look) -> Text:
    """Which buffer it is, how full, and its highest byte."""
    used = sum(span.size_at(at) for span in chunk.spans)
    name = " and ".join(map(printable, chunk.backends))
    title = Text(name, look.ink(chunk.backends[0]) + Style(bold=True))
    buft = printable(chunk.place[0])
    title.append(f" {buft}" if buft != name else "", look.face.soft)
    title.append(f" chunk {chunk.place[1]}", look.face.soft)
    if not chunk.extent:
        title.append("  nothing is planned", look.face.soft)
        return title
    title.append(f"  {size(used)} in use", look.face.bold)
    title.append(f" of {size(chunk.extent)}, {count(len(chunk.free), 'free block')}", look.face.plain)
    return title


def axis(chunk: SceneChunk, window: Window, width: int, look: Look) -> Text:
    """The offsets below a bar, with a mark at the highest byte ever used."""
    line = [" "] * width
    left, right = str(window.low), str(window.high)
    _put(line, 0, left)
    _put(line, width - len(right), right)
    if window.low < chunk.max_size <= window.high:
        at = min(window.cell(chunk.max_size - 1, width), width - 1)
        told = f" high-water {chunk.max_size} "
        end = at - len(told)
        _put(line, at, "▲")
        _put(line, end if end > len(left) else at + 1, told if end > len(left) or at + len(told) < width else "")
    return Text("".join(line), look.face.soft)


def _put(line: list[str], at: int, text: str) -> None:
    for i, char in enumerate(text, max(at, 0)):
        if i < len(line):
            line[i] = char
