"""The names in a memory map: inside of tiles that have room for them, and beside the peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ggmltool.inspect.memory import Lifetime
from ggmltool.show.svg import ASCENT, DESCENT, SMALL, Box, Text, fitted, text_width
from ggmltool.show.text import printable, size
from ggmltool.views.memory.map import Panel, Tile

NAME = 60
"""Characters of a name that are shown at most."""

LINE = (ASCENT + DESCENT) * SMALL
"""The height of a line."""

_PAD = 3.0
_CALLED, _LEGIBLE = 3, 7
"""How many tensors are named beside the peak, and how short a name may be cut."""
_NARROW = 30


def peak_x(panel: Panel) -> float | None:
    """The middle of the step with most bytes alive in the buffer."""
    return None if panel.buffer.peak is None else panel.x(panel.buffer.peak.step + 0.5)


def shown_name(life: Lifetime) -> str:
    """A tensor's name as it is drawn."""
    return printable(life.tensor[:NAME])


def labels(tile: Tile, line: float | None) -> list[Text]:
    """Name and size of a tensor where its tile has room for them, beside the line at the peak; else nothing."""
    box = Box(tile.box.x0 + _PAD, tile.box.y0 + _PAD / 2, tile.box.x1 - _PAD, tile.box.y1 - _PAD / 2)
    if line is not None and box.x0 - _PAD < line < box.x1 + _PAD:
        left, right = box._replace(x1=line - _PAD), box._replace(x0=line + _PAD)
        box = left if left.x1 - left.x0 > right.x1 - right.x0 else right
    wide, high = box.x1 - box.x0, box.y1 - box.y0
    name = shown_name(tile.life)
    middle = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
    long = text_width(name, SMALL)
    if high >= LINE and long <= wide:
        nbytes = size(tile.life.size)
        both = high >= 2 * LINE and text_width(nbytes, SMALL) <= wide
        y = middle[1] + (ASCENT - DESCENT) / 2 * SMALL - (LINE / 2 if both else 0)
        texts = [Text(middle[0], y, name, SMALL, "middle")]
        return texts + [Text(middle[0], y + LINE, nbytes, SMALL, "middle")] * both
    if wide >= LINE and long <= high:
        x = middle[0] + (ASCENT - DESCENT) / 2 * SMALL
        return [Text(x, middle[1], name, SMALL, "middle", upright=True)]
    cut = fitted(name, wide, SMALL) if high >= LINE else ""
    y = middle[1] + (ASCENT - DESCENT) / 2 * SMALL
    return [Text(middle[0], y, cut, SMALL, "middle")] if len(cut) >= _LEGIBLE else []


def callouts(panel: Panel, others: Sequence[Text]) -> Iterator[Text]:
    """The names of the largest tensors at the peak whose tiles have no room for one: beside the line, if it is free."""
    x, peak = peak_x(panel), panel.buffer.peak
    if x is None or peak is None:
        return
    named = {text.words for text in others}
    taken = [tile.box for tile in panel.tiles]
    for life in peak.tensors[:_CALLED]:
        box = panel.box(life)
        if life.chunk != panel.chunk or shown_name(life) in named or box.x1 - box.x0 > _NARROW:
            continue
        text = _beside(box, f"{shown_name(life)}, {size(life.size)}", panel.frame, taken)
        if text is not None:
            taken.append(text.box)
            yield text


def _beside(tile: Box, words: str, frame: Box, taken: Sequence[Box]) -> Text | None:
    """The words beside a tile, as near to its middle as nothing is in the way; None if something is everywhere."""
    middle = (tile.y0 + tile.y1) / 2
    lines = range(int((tile.y1 - tile.y0) / LINE / 2) + 1)
    for far in (side * n * LINE for n in lines for side in (1, -1)):
        y = middle + far + (ASCENT - DESCENT) / 2 * SMALL
        for text in (Text(tile.x0 - 8, y, words, SMALL, "end"), Text(tile.x1 + 8, y, words, SMALL)):
            inside = frame.x0 < text.box.x0 and text.box.x1 < frame.x1
            inside = inside and frame.y0 <= text.box.y0 and text.box.y1 <= frame.y1
            if inside and not any(text.box.meets(other) for other in taken):
                return text
    return None
