"""Computed values: as small matrices for people, as nested lists for programs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ggmltool.show.table import Style, heading, render_lines
from ggmltool.show.text import dims

if TYPE_CHECKING:
    from numpy.typing import NDArray

THRESHOLD = 1000
"""Elements from which an array is cut, as in numpy."""

MAX_WIDTH = 120
"""Columns of text that a matrix takes at most, however wide the terminal is."""

EDGE = 3
"""Rows, columns and slices shown at each end of a cut array."""


def matrix_view(
    name: str,
    type: str,
    values: NDArray[Any],
    style: Style,
    facts: Sequence[str] = (),
    threshold: int = THRESHOLD,
) -> str:
    """A tensor's values row by row. `values` has shape `ne` reversed; slices are headed in ggml's order.

    Of more than `threshold` elements only the first and the last are shown.
    """
    ne = tuple(reversed(values.shape))
    ne = (*ne, *(1,) * (4 - len(ne)))
    values = values.reshape(tuple(reversed(ne)))
    title = heading(name, [f"{type} {dims(ne)}", *facts], style)
    if 0 in ne:
        return title + render_lines(["  (empty)"], style)
    cut = values.size > threshold
    lines: list[str] = []
    slices = list(itertools.product(_shown(ne[3], cut), _shown(ne[2], cut)))
    for i3, i2 in slices:
        if i3 is None or i2 is None:
            if not lines or lines[-1] != "  …":
                lines.append("  …")
            continue
        if len(slices) > 1:
            lines.append(f"  [:, :, {i2}, {i3}]")
        lines += _rows(values[i3, i2], cut, min(style.width, MAX_WIDTH))
    return title + render_lines(lines, style)


def _shown(n: int, cut: bool, edge: int = EDGE) -> list[int | None]:
    """The indices of a dimension that are shown; None stands for those left out."""
    if not cut or n <= 2 * edge + 1:
        return list(range(n))
    return [*range(edge), None, *range(n - edge, n)]


def _rows(matrix: NDArray[Any], cut: bool, width: int) -> list[str]:
    """The rows as lines; as many columns at each end as there is room for, three at most of a large array."""
    n_rows, n_cols = matrix.shape
    rows = _shown(n_rows, cut)
    if not cut:
        lines = _aligned(matrix, rows, range(n_cols))
        if max(map(len, lines)) <= width:
            return lines
    for edge in range(EDGE if cut else max(n_cols // 2 - 1, 1), 0, -1):
        lines = _aligned(matrix, rows, _shown(n_cols, cut=True, edge=edge))
        if max(map(len, lines)) <= width:
            break
    return lines


def _aligned(matrix: NDArray[Any], rows: Sequence[int | None], cols: Sequence[int | None]) -> list[str]:
    whole = matrix.dtype.kind in "iub"

    def show(value: Any) -> str:
        return str(int(value)) if whole else f"{float(value):.5g}"

    cells = [["…" if r is None or c is None else show(matrix[r, c]) for c in cols] for r in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cols))]
    common = max(widths)
    widths = [w if c is None else common for w, c in zip(widths, cols, strict=True)]
    out = []
    for r, row in zip(rows, cells, strict=True):
        text = ["…" if r is None and c is None else cell for cell, c in zip(row, cols, strict=True)]
        out.append("  " + "  ".join(cell.rjust(w) for cell, w in zip(text, widths, strict=True)))
    return out


def nested(values: NDArray[Any]) -> list[Any]:
    """The values as nested lists; JSON has no NaN and no infinities, they become "NaN", "Infinity", "-Infinity"."""
    import numpy as np

    from ggmltool.show.document import spelled

    lists: list[Any] = values.tolist()
    return spelled(lists) if values.dtype.kind == "f" and not np.isfinite(values).all() else lists
