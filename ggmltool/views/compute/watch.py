"""Tensors as they are computed, each in brief."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ggmltool.inspect.eval_callback import WatchedNode
from ggmltool.show.table import Style, render_lines
from ggmltool.show.text import dims, printable
from ggmltool.views.compute.values import matrix_view

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHOWN_WHOLE = 64
"""Elements up to which a tensor is shown as a whole."""

ENDS = 3
"""First and last elements in JSON."""


class Summary(NamedTuple):
    """The values of a tensor in numbers; min, max and mean are those of the finite ones, None without any."""

    min: float | None
    max: float | None
    mean: float | None
    nan: int
    inf: int


def summary_of(values: NDArray[Any]) -> Summary:
    """Least, greatest and mean value, and how many are NaN or infinite."""
    import numpy as np

    if values.dtype.kind != "f":
        finite, nan, inf = values.reshape(-1), 0, 0
    else:
        nan, inf = int(np.isnan(values).sum()), int(np.isinf(values).sum())
        finite = values[np.isfinite(values)] if nan or inf else values.reshape(-1)
    if not finite.size:
        return Summary(None, None, None, nan, inf)
    return Summary(float(finite.min()), float(finite.max()), float(finite.mean(dtype=np.float64)), nan, inf)


def watched_view(node: WatchedNode, values: NDArray[Any] | None, several_steps: bool, style: Style) -> str:
    """A tensor with what it was made of, its first and last elements, and a summary; None: it cannot be read."""
    sources = ", ".join(f"{printable(name)} {type}{dims(ne)}" for name, type, ne in node.src)
    facts = [f"{node.op}({sources})", node.backend]
    if several_steps:
        facts.append(f"step {node.step}")
    if values is None:
        from ggmltool.show.table import heading

        title = heading(node.id, [f"{node.type} {dims(node.ne)}", *facts], style)
        return title + render_lines(["  its values cannot be read here"], style)
    text = matrix_view(node.id, node.type, values, style, facts, SHOWN_WHOLE)
    s = summary_of(values)
    numbers = [f"{n} {v:.5g}" for n, v in (("min", s.min), ("max", s.max), ("mean", s.mean)) if v is not None]
    counts = [f"{name} {n}" for name, n in (("NaN", s.nan), ("inf", s.inf)) if n]
    line = "  ".join([*numbers, *counts])
    return text + (render_lines([f"  {line}"], style) if line else "")
