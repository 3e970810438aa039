"""The compute buffers over time as a drawing of letters: program order to the right, offsets upwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from string import ascii_lowercase
from typing import NamedTuple

from ggmltool.ask.answer import Answer
from ggmltool.ask.buffers.record import ChartShown, buffers_of
from ggmltool.inspect.memory import Lifetime, MemoryPlan
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Column, Style, Table, heading, render_lines
from ggmltool.show.text import count, printable, size

ROWS = 16
"""Lines of the drawing of a chunk."""

_MARGIN = 14
_WIDEST = 160
_STEP_WIDTH = 4


class Grid(NamedTuple):
    """A drawing of one chunk: `cells[row][column]` is what lies at byte `offsets[row]` during `steps[column]`."""

    steps: tuple[int, ...]
    offsets: tuple[int, ...]
    cells: tuple[tuple[Lifetime | None, ...], ...]


def grid(lives: Sequence[Lifetime], nbytes: int, n_steps: int, columns: int) -> Grid:
    """Samples of a chunk of `nbytes`, the highest offset first; the first column begins before the first node.

    A column that stands for several steps shows the one with most bytes alive, so that no peak is missed.
    """
    total = n_steps + 1
    if total <= columns:
        wide = min(max(columns // total, 1), _STEP_WIDTH)
        steps = tuple(step for step in range(-1, n_steps) for _ in range(wide))
    else:
        full = _alive_bytes(lives, n_steps)
        bounds = [c * total // columns for c in range(columns + 1)]
        steps = tuple(max(range(a, b), key=lambda i: full[i]) - 1 for a, b in pairwise(bounds))
    offsets = tuple((2 * row + 1) * nbytes // (2 * ROWS) for row in reversed(range(ROWS)))
    cells = []
    for offset in offsets:
        across = [life for life in lives if life.offset <= offset < life.offset + life.size]
        cells.append(tuple(next((life for life in across if life.alive(step)), None) for step in steps))
    return Grid(steps, offsets, tuple(cells))


def _alive_bytes(lives: Sequence[Lifetime], n_steps: int) -> list[int]:
    """Bytes alive at every step, the first being -1."""
    change = [0] * (n_steps + 2)
    for life in lives:
        change[life.start + 1] += life.size
        if life.end is not None:
            change[life.end + 2] -= life.size
    return list(accumulate(change))


def chart(answer: Answer[ChartShown], style: Style) -> str:
    """A drawing per chunk, with letters for the largest tensors (each at least 1 % of its buffer) and a legend."""
    from rich.text import Text

    plan, memory, ascii = answer.facts.plan, answer.facts.memory, answer.facts.ascii
    inks = term_colors(name for name, _ in plan.backends)
    parts = [heading(answer.title, [answer.heading, f"{count(len(memory.nodes), 'step')} from left to right"], style)]
    for buffer in buffers_of(plan, memory):
        if buffer.shared is not None or buffer.peak is None:
            continue
        lives = memory.of(buffer.buft)
        large = sorted((x for x in lives if 100 * x.size >= sum(buffer.chunks)), key=lambda x: -x.size)
        letters = {id(life): letter for life, letter in zip(large, ascii_lowercase, strict=False)}
        for chunk, nbytes in enumerate(buffer.chunks):
            here = [life for life in lives if life.chunk == chunk]
            name = printable(buffer.backend) + (f", chunk {chunk}" if len(buffer.chunks) > 1 else "")
            head = Text.assemble((name, inks[buffer.backend]), f", {size(nbytes)}")
            drawing = _drawing(here, nbytes, memory, letters, style, ascii)
            parts.append(render_lines(["", head, *drawing], style))
        parts += ["\n", _legend(letters, memory).render((x for x in large if id(x) in letters), style)]
        rest = [life for life in lives if id(life) not in letters]
        if rest:
            parts.append(render_lines([f"  {_other(ascii)}  {count(len(rest), 'smaller tensor')}"], style))
    return "".join(parts)


def _other(ascii: bool) -> str:
    return "." if ascii else "░"


def _drawing(
    lives: Sequence[Lifetime], nbytes: int, memory: MemoryPlan, letters: dict[int, str], style: Style, ascii: bool
) -> Iterator[str]:
    side, corner, bottom = ("|", "+", "-") if ascii else ("│", "└", "─")
    drawn = grid(lives, nbytes, len(memory.nodes), min(max(style.width - _MARGIN, 10), _WIDEST))
    for row, cells in enumerate(drawn.cells):
        top = nbytes * (ROWS - row) // ROWS
        label = size(top) if row % 4 == 0 else ""
        line = "".join(" " if life is None else letters.get(id(life), _other(ascii)) for life in cells)
        yield f"  {label:>9} {side}{line}".rstrip()
    yield f"  {'0 B':>9} {corner}{bottom * len(drawn.steps)}"
    last = printable(memory.nodes[-1]) if memory.nodes else ""
    if last and len(last) + 6 <= len(drawn.steps):
        yield f"  {'':>9}  {'start':<{len(drawn.steps) - len(last)}}{last}"


def _legend(letters: dict[int, str], memory: MemoryPlan) -> Table[Lifetime]:
    return Table(
        Column("", lambda x: letters[id(x)]),
        Column("size", lambda x: size(x.size), right=True),
        Column("tensor", lambda x: x.tensor, cut=True),
        Column("from", lambda x: memory.nodes[x.start] if x.start >= 0 else "start", cut=True, drop=2),
        Column("to", lambda x: "end" if x.end is None else memory.nodes[x.end], cut=True, drop=1),
    )
