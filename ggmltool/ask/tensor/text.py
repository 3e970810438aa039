"""Everything about one tensor, as a table, and how its elements lie in memory."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import product
from math import prod

from ggmltool.ask.answer import Answer
from ggmltool.ask.tensor.record import StridesShown, TensorDocument
from ggmltool.inspect.use_after_free import freed_by
from ggmltool.show.table import Head, Row, Style, heading, render_lines, render_table
from ggmltool.show.text import count, printable, size

_LINE = 100
"""The most columns that a drawing of memory takes."""


def tensor(answer: Answer[TensorDocument], style: Style) -> str:
    """One line per fact."""
    shown, t = answer.facts, answer.facts.tensor
    chunk = f", chunk {t.chunk}" if t.chunk else ""
    freed = f": {freed_by(t.freed)}" if t.freed else ""
    rows: list[tuple[str, str]] = [
        ("name", t.name),
        ("struct", f"{t.address:#x} in {t.context}"),
        ("op", t.op if t.op_desc == t.op else f"{t.op} ({t.op_desc})"),
        ("op_params", " ".join(map(str, t.op_params))),
        ("type", f"{t.type}, {count(shown.type_size, 'byte')} for {count(shown.block_size, 'element')}"),
        ("ne", str(list(t.ne))),
        ("nb", str(list(t.nb))),
        ("elements", str(prod(t.ne))),
        ("nbytes", str(t.nbytes) if t.nbytes < 1024 else f"{t.nbytes} ({size(t.nbytes)})"),
        ("layout", ", ".join(t.layout)),
        ("flags", ", ".join(t.flags)),
        ("backend", "none" if t.backend is None else f"{t.backend} {t.cause or ''}".rstrip()),
        ("memory", "none" if t.buffer is None else f"{t.buffer} ({t.usage}{chunk}), offset {t.offset}{freed}"),
        ("data", f"{t.data:#x}" if t.data else "NULL"),
        ("view of", f"{t.view_src} at {t.view_offs}" if t.view_src is not None else ""),
        *((f"src[{j}]", s) for j, s in enumerate(t.src) if s is not None),
        ("use count", str(t.use_count)),
        ("used by", ", ".join(t.used_by)),
        ("copies", ", ".join(t.copies)),
    ]
    if t.hash_node is not None:
        n = t.hash_node
        uses = f"n_children {n.n_children}, n_views {n.n_views}"
        state = "allocated" if n.allocated else "not allocated"
        rows.append(("hash node", f"{uses}, buffer {n.buffer_id}, chunk {n.chunk}, offset {n.offset}, {state}"))
    wrapper = textwrap.TextWrapper(max(style.width, 40), subsequent_indent=" " * 13, break_on_hyphens=False)
    lines = [""]
    for name, value in rows:
        wrapper.initial_indent = f"  {name:<11}"
        lines += wrapper.wrap(printable(value)) if value else []
    return heading(f"{answer.title}: {shown.label}", [answer.heading], style) + render_lines(lines, style)


_STRIDES = (Head("dim"), *(Head(name, right=True) for name in ("ne", "nb", "covers", "gap")))
_SHOWN = 4


def strides(answer: Answer[StridesShown], style: Style) -> str:
    """How the elements lie in memory: each dimension's step, where the first elements are, and who follows whom."""
    t, type_size, block = answer.facts.tensor, answer.facts.type_size, answer.facts.block_size
    rows: list[Row] = []
    inner = type_size
    for i, (ne, nb) in enumerate(zip(t.ne, t.nb, strict=True)):
        steps = ne // block if i == 0 else ne
        covers = max(steps - 1, 0) * nb + inner
        rows.append([f"{i}", str(ne), str(nb), str(covers), str(nb - inner) if steps > 1 and nb >= inner else ""])
        inner = covers
    unit = "block" if block > 1 else "element"
    facts = [f"{t.type}, {unit}s of {type_size} bytes", f"{t.nbytes} bytes", *t.layout]
    parts = [heading(f"{answer.title}: {answer.facts.label}", facts, style), render_lines([""], style)]
    parts.append(render_table(_STRIDES, rows, style))
    if not prod(t.ne):
        return "".join([*parts, render_lines(["", "It has no elements."], style)])
    parts += [render_lines(["", f"byte offset of {unit} [i0, i1]", ""], style)]
    n0, n1 = min(t.ne[0] // block, _SHOWN), min(t.ne[1], _SHOWN)
    columns = (Head(""), *(Head(f"i0 = {i}", right=True) for i in range(n0)), Head(""))
    more = "…" if t.ne[0] // block > n0 else ""
    grid: list[Row] = [[f"i1 = {j}", *(str(i * t.nb[0] + j * t.nb[1]) for i in range(n0)), more] for j in range(n1)]
    if t.ne[1] > n1:
        grid.append(["⋮", *[""] * (n0 + 1)])
    parts += [render_table(columns, grid, style), render_lines(["", "in the order of memory", ""], style)]
    return "".join([*parts, render_lines(_strip(answer.facts, min(style.width, _LINE)), style)])


def _strip(shown: StridesShown, width: int) -> Sequence[str]:
    """The first elements as boxes, each with its indices, above the offset of its first byte; gaps as dots."""
    t, type_size = shown.tensor, shown.type_size
    n = [1, 1, 1, 1]
    for i in sorted(range(4), key=lambda i: t.nb[i]):
        steps = t.ne[i] // shown.block_size if i == 0 else t.ne[i]
        n[i] = min(steps, max(_LINE // max(n[0] * n[1] * n[2] * n[3], 1), 1))
    dims = max((i for i in range(4) if t.ne[i] > 1), default=0) + 1
    places: dict[int, str] = {}
    for index in (indices[::-1] for indices in product(*map(range, reversed(n)))):
        at = sum(i * nb for i, nb in zip(index, t.nb, strict=True))
        places.setdefault(at, ",".join(map(str, index[:dims])))
    boxes: list[tuple[str, int]] = []
    end = 0
    for at in sorted(places):
        if at > end:
            boxes.append(("·" * 3, end))
        boxes.append((places[at], at))
        end = at + type_size
    top, offsets = "  |", "  "
    for text, at in boxes:
        cell = max(len(text), len(str(at))) + 2
        if len(top) + cell + 2 > width:
            return [top + "…", offsets.rstrip()]
        top += text.center(cell) + "|"
        offsets += str(at).ljust(cell + 1)
    return [top, offsets + str(end)]
