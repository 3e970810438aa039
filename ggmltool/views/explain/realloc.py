"""Whether a plan serves another graph: the first tensor that does not fit, all others, and what ggml logs."""

from __future__ import annotations

from collections.abc import Iterator

from ggmltool.ggml.events import IdsChanged, ReallocNeeded
from ggmltool.inspect.realloc import Parting, ReallocFacts
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Cell, Column, Head, Row, Style, Table, heading, render_lines, section
from ggmltool.show.text import printable, size, wrapped
from ggmltool.views.explain.words import words

_SHOWN = 10
_OUTGROWN = Table[ReallocNeeded](
    Column("node", lambda o: o.node, cut=True),
    Column("tensor", lambda o: o.tensor, cut=True),
    Column("which", lambda o: "the node" if o.slot is None else f"source {o.slot}"),
    Column("reserved", lambda o: Cell("–", "dim") if o.old_size is None else size(o.old_size), right=True),
    Column("needed", lambda o: size(o.new_size or 0), right=True),
)


def explain_realloc_view(f: ReallocFacts, title: str, style: Style) -> str:
    """The answer in a sentence, then the numbers."""
    lines = [line for text in _sentences(f) for line in wrapped(text, style.width)]
    parts = [
        heading(f"{title}: {f.first.called} reserved, {f.second.called} next", [], style),
        "\n",
        render_lines(lines, style),
    ]
    parts += section("The two graphs, as the allocator gets them", *_graphs(f), style)
    parts += _OUTGROWN.section("Too small in the plan", f.outgrown[:_SHOWN], style)
    if len(f.outgrown) > _SHOWN:
        parts.append(render_lines([f"  +{len(f.outgrown) - _SHOWN} more"], style))
    told = [f"  {printable(line)}" for line in f.log]
    if told:
        parts.append(render_lines(["", "What a debug build of ggml logs", *told], style))
    return "".join(parts)


def _sentences(f: ReallocFacts) -> Iterator[str]:
    first, second = f.first.called, f.second.called
    if f.why is None:
        yield f"Yes: every node and source of {second} fits where the plan of {first} has it. Nothing is planned again."
        return
    yield f"No: {_why(f)}."
    grown = [g for g in f.grown if g.old_size]
    plans = "ggml waits for all backends and plans again" if f.n_buffers > 1 else "ggml plans again"
    if grown:
        sizes = ", ".join(f"{g.buft} from {size(g.old_size)} to {size(g.new_size)}" for g in grown)
        yield f"{plans}; buffers are reallocated: {sizes}."
    else:
        yield f"{plans}; the buffers are large enough and stay."
    if f.serves_back:
        yield f"The plan of {second} serves {first}: reserve {second}, and nothing is planned again for either."
    else:
        yield f"The plan of {second} does not serve {first} either: whichever comes next is planned again."
    if not f.debug_realloc:
        return
    if f.unexpected:
        yield "GGML_SCHED_DEBUG_REALLOC=1 aborts here (“unexpected graph reallocation”): the graphs have the same size."
    else:
        yield (
            "GGML_SCHED_DEBUG_REALLOC=1 does not abort here; 2 does."
            if f.n_buffers > 1
            else ("GGML_SCHED_DEBUG_REALLOC does not see it: with one backend the allocator plans again by itself.")
        )


def _why(f: ReallocFacts) -> str:
    why = f.why
    if isinstance(why, IdsChanged):
        what = "leaf" if why.is_leaf else "node"
        return (
            f"{what} {why.at} of the graph, {why.tensor}, is on {why.new_backend}, the one before on {why.old_backend}"
        )
    if why is None:
        return ""
    if not why.tensor:
        parting = f"; the first difference is at node {f.parting.at}: {_parting(f.parting)}" if f.parting else ""
        return f"{words(why)}, {why.old_size} and {why.new_size}{parting}"
    of = f", source {why.slot} of {why.node}," if why.slot is not None else ""
    needed = size(why.new_size or 0)
    if why.old_size is None:
        return f"{why.tensor}{of} was pre-allocated, and now needs {needed}"
    return f"{why.tensor}{of} has {size(why.old_size)} in the plan and needs {needed}"


def _parting(p: Parting) -> str:
    return f"{p.first or 'nothing'}, then {p.second or 'nothing'}"


def _graphs(f: ReallocFacts) -> tuple[list[Head], list[Row]]:
    inks = term_colors(f.backends)
    columns = [
        Head(""),
        Head(printable(f.first.called), right=True),
        Head(printable(f.second.called), right=True),
    ]
    rows: list[Row] = [
        [what, str(getattr(f.first, key)), str(getattr(f.second, key))]
        for what, key in (("nodes", "nodes"), ("leafs", "leafs"), ("splits", "splits"), ("inputs copied", "inputs"))
    ]
    for name, a, alone in zip(f.backends, f.first.buffers, f.alone, strict=True):
        rows.append([Cell(f"{name} needs", inks[name]), size(a), size(alone)])
    for name, a, b in zip(f.backends, f.first.buffers, f.second.buffers, strict=True):
        rows.append([Cell(f"{name} buffer after", inks[name]), size(a), size(b)])
    return columns, rows
