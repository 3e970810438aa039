"""What is too small for a tile in a memory map: drawn together, as the pixels that it covers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from ggmltool.show.svg import Box, outline
from ggmltool.views.memory.map import Panel

if TYPE_CHECKING:
    import numpy as np


def small_area(panel: Panel, room: int) -> str:
    """The path around all tensors that are too small for a tile, pixel by pixel; coarser where that is longer than
    `room` characters. Empty if there are none."""
    if not panel.small:
        return ""
    boxes = [panel.box(life) for life in panel.small]
    cell = 1
    while len(d := _covered(boxes, panel.frame, cell)) > room:
        cell *= 2
    return d


def _covered(boxes: Iterable[Box], frame: Box, cell: int) -> str:
    import numpy as np

    wide, high = (int(-(-n // cell)) for n in (frame.x1 - frame.x0, frame.y1 - frame.y0))
    cells = np.zeros((high, wide), dtype=np.bool_)
    for box in boxes:
        x0, y0 = (int(n // cell) for n in (box.x0 - frame.x0, box.y0 - frame.y0))
        x1, y1 = (int(-(-n // cell)) for n in (box.x1 - frame.x0, box.y1 - frame.y0))
        cells[min(y0, high - 1) : max(y1, y0 + 1), min(x0, wide - 1) : max(x1, x0 + 1)] = True
    return "".join(
        outline(
            Box(
                frame.x0 + x0 * cell,
                frame.y0 + y0 * cell,
                min(frame.x0 + x1 * cell, frame.x1),
                min(frame.y0 + y1 * cell, frame.y1),
            )
        )
        for x0, y0, x1, y1 in _blocks(cells)
    )


def _blocks(cells: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> Iterator[tuple[int, int, int, int]]:
    """Rectangles of cells that are set: runs of a row, as long as the rows below have the same."""
    open_since: dict[tuple[int, int], int] = {}
    for y, row in enumerate([*cells.tolist(), []]):
        runs = set(_runs(row))
        for run in [run for run in open_since if run not in runs]:
            yield run[0], open_since.pop(run), run[1], y
        for run in runs:
            open_since.setdefault(run, y)


def _runs(row: Sequence[bool]) -> Iterator[tuple[int, int]]:
    changes = [i for i, (a, b) in enumerate(pairwise([False, *row, False])) if a != b]
    return zip(changes[::2], changes[1::2], strict=True)
