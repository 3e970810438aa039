"""A log of the debug prints in one look: its graphs, what grew, what was said, buffer sizes; and one graph of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ask.plan.text import MAX_SPLITS
from ggmltool.ask.splits.copied import copied_sums
from ggmltool.ask.splits.record import splits_table
from ggmltool.ggml.messages import messages
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.copied import bytes_of, copied_inputs
from ggmltool.inspect.messages.match import find_all
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.show.colors import term_colors
from ggmltool.show.table import (
    Cell,
    Column,
    Head,
    Row,
    Shown,
    Style,
    Table,
    heading,
    render_lines,
    render_table,
    without_middle,
)
from ggmltool.show.text import count, plan_step, printable, shortened, size_between
from ggmltool.sources.sched_log.plan import log_plan
from ggmltool.sources.sched_log.records import (
    Breakdown,
    BufferSize,
    Dialect,
    GraphSummary,
    LogGraph,
    LogMessage,
    LogSummary,
    Realloc,
)

if TYPE_CHECKING:
    from rich.text import Text

    from ggmltool.ask.answer import Answer
    from ggmltool.ask.log.record import ImportedGraph

_BESIDE_MESSAGE = 24

MAX_ABORTS = 5
"""Aborts that are told of."""

MAX_ROWS = 40
"""Rows of a table before the middle ones are left out."""

_DIALECTS = {
    Dialect.Y2024: "format of ggml in 2024",
    Dialect.Y2025: "format of ggml in 2025",
    Dialect.Y2026: "format of ggml in 2026",
}
_MESSAGES = (
    Head("times", right=True),
    Head("line", right=True, drop=1),
    Head("graph", right=True, drop=2),
    Head("message", cut=True),
)
_REALLOCS = Table[Realloc](
    Column("buffer type", lambda r: r.buft, cut=True),
    Column("times", lambda r: r.count, right=True),
    Column("from", lambda r: f"{r.first:.2f} MiB", right=True),
    Column("to", lambda r: f"{r.last:.2f} MiB", right=True),
    Column("largest", lambda r: f"{r.largest:.2f} MiB", right=True, drop=1),
    Column("line", lambda r: r.first_line, right=True, drop=2),
)
_BUFFERS = Table[BufferSize](
    Column("buffer", lambda b: b.kind),
    Column("buffer type", lambda b: b.buft, cut=True),
    Column("lines", lambda b: b.count, right=True),
    Column("sizes", lambda b: shortened([f"{s:.2f} MiB" for s in b.sizes], 7), cut=True),
)
_BREAKDOWN = Table[Breakdown](
    Column("device", lambda b: b.device, cut=True),
    Column("total", lambda b: b.total, right=True),
    Column("free", lambda b: b.free, right=True, drop=2),
    Column("self", lambda b: b.self, right=True),
    Column("model", lambda b: b.model, right=True),
    Column("context", lambda b: b.context, right=True),
    Column("compute", lambda b: b.compute, right=True),
    Column("unaccounted", lambda b: b.unaccounted, right=True, drop=1),
)


class AlikeGraphs(NamedTuple):
    """Graphs that read the same: the first of them, and the numbers of all."""

    first: GraphSummary
    numbers: list[int]


def alike(graphs: Iterable[GraphSummary]) -> list[AlikeGraphs]:
    """The graphs grouped by title and content, in the order of their first."""
    groups: dict[tuple[object, ...], AlikeGraphs] = {}
    for graph in graphs:
        key = (graph.title, graph.fingerprint, graph.n_nodes, graph.n_splits, graph.n_inputs, graph.is_whole)
        group = groups.setdefault(key, AlikeGraphs(graph, []))
        group.numbers.append(graph.number)
    return list(groups.values())


def ranges(numbers: Sequence[int], limit: int = 4) -> str:
    """Rising numbers with runs drawn together.

    >>> ranges([1, 2, 4, 5, 6, 9])
    '1–2, 4–6, 9'
    """
    runs: list[tuple[int, int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], n)
        else:
            runs.append((n, n))
    return shortened([str(a) if a == b else f"{a}–{b}" for a, b in runs], limit)


def log_view(answer: Answer[LogSummary], style: Style) -> str:
    """The summary for people."""
    log = answer.facts
    groups = alike(log.graphs)
    n_graphs = len(log.graphs) + log.graphs_left_out
    facts = [count(log.n_lines, "line"), count(n_graphs, "graph")]
    if 1 < len(groups) < n_graphs:
        facts[-1] += f", {len(groups)} different"
    dialects = [_DIALECTS[d] for d in dict.fromkeys(graph.dialect for graph in log.graphs) if d is not None]
    parts = [heading(answer.title, [*facts, *dialects], style), _aborts(log, style)]
    if groups:
        parts += ["\n", _graphs(log, groups, style)]
    notes = list(_notes(log))
    if notes:
        parts += ["\n", render_lines(notes, style)]
    of_several = f" (the last of {log.breakdowns})" if log.breakdowns > 1 else ""
    parts += _REALLOCS.section("compute buffers that were reallocated", log.reallocs, style)
    if log.messages:
        parts += [render_lines(["", "messages of ggml and llama.cpp"], style), _said(log, style)]
    parts += _BUFFERS.section("buffers that llama.cpp reports", log.buffers, style)
    parts += _BREAKDOWN.section(f"memory breakdown of llama.cpp, in MiB{of_several}", log.breakdown, style)
    return "".join(parts)


def _aborts(log: LogSummary, style: Style) -> str:
    """Where the program died, and how to learn what it means."""
    if not log.aborts:
        return ""
    from rich.text import Text

    lines: list[str | Text] = []
    for abort in log.aborts[:MAX_ABORTS]:
        said = f"{'' if len(lines) else 'ggml '}aborted at line {abort.line}: {printable(abort.text)}"
        lines += [Text(part, "bold") for part in wrap(said, max(style.width, 40), subsequent_indent="  ")]
    if len(log.aborts) > MAX_ABORTS:
        lines.append(f"and {count(len(log.aborts) - MAX_ABORTS, 'more abort')}")
    lines.append("what it means and what to do: ggmltool explain error LOG")
    return "\n" + render_lines(lines, style)


def _graphs(log: LogSummary, groups: list[AlikeGraphs], style: Style) -> str:
    inks = term_colors(log.backends)

    def of_group(get: Callable[[GraphSummary], Shown]) -> Callable[[AlikeGraphs], Shown]:
        return lambda group: get(group.first)

    def nodes_on(name: str) -> Column[AlikeGraphs]:
        def nodes(graph: GraphSummary) -> Cell:
            n = dict(graph.nodes_on).get(name)
            return Cell(str(n), inks[name]) if n else Cell("–" if graph.level > 1 else "", "dim")

        return Column(printable(name), of_group(nodes), right=True)

    columns: list[Column[AlikeGraphs]] = [
        Column("graph", lambda group: ranges(group.numbers)),
        Column("line", of_group(lambda g: g.line), right=True, drop=6),
        Column("title", of_group(lambda g: g.title), cut=True),
        *map(nodes_on, log.backends),
        Column("splits", of_group(lambda g: g.n_splits if g.has_headers else None), right=True),
        Column("inputs", of_group(lambda g: g.n_inputs if g.has_headers else None), right=True, drop=5),
        Column("copied", of_group(lambda g: size_between(*g.copied) if g.n_inputs else None), right=True, drop=2),
    ]
    has_titles = any(graph.title for graph, _ in groups)
    table = Table(*(c for c in columns if has_titles or c.header != "title"))
    return render_table(table.columns, _some(table.rows(groups)), style)


def _some(rows: Sequence[Row]) -> Sequence[Row]:
    return without_middle(rows, MAX_ROWS, lambda n: [Cell("⋮", "dim"), Cell(str(n), "dim"), Cell("more", "dim")])


def _notes(log: LogSummary) -> Iterable[str]:
    if log.graphs:
        yield "below each backend: its nodes, except views, which have no line in a log"
        which = " --graph N" if len(log.graphs) > 1 else ""
        yield f"which ops run where: ggmltool splits --by op,backend{which} LOG"
    if log.wrapped_at:
        yield f"lines were cut at {log.wrapped_at} characters; they were joined"
    short = [graph for graph in log.graphs if graph.inputs_missing or graph.lines_cut]
    if short:
        yield f"graph {ranges([graph.number for graph in short])}: {what_is_cut(short)}"
    if log.graphs_left_out:
        yield f"{count(log.graphs_left_out, 'further graph')} counted, but not listed"
    cut = [graph.number for graph in log.graphs if not graph.is_whole]
    if cut:
        yield f"the log does not have all of graph {ranges(cut)}"
    if any(not graph.has_headers for graph in log.graphs):
        yield "headers of splits are missing in graphs without a number of splits"
    if any(graph.level == 1 for graph in log.graphs):
        yield "graphs without nodes were printed with GGML_SCHED_DEBUG=1; 2 prints nodes, too"
    if log.passes:
        yield f"{count(log.passes, 'print')} of the state after single passes skipped"
    if log.long_lines:
        yield f"{count(log.long_lines, 'line')} cut at 64 KiB"


def what_is_cut(graphs: Sequence[GraphSummary | LogGraph]) -> str:
    """What graphs lack whose lines were cut."""
    inputs, lines = (sum(numbers) for numbers in zip(*((g.inputs_missing, g.lines_cut) for g in graphs), strict=True))
    parts = [f"{count(inputs, 'input')} of splits, which their headers count, cannot be read"] if inputs else []
    parts += [f"{count(lines, 'line')} of nodes {'lacks its' if lines == 1 else 'lack their'} end"] if lines else []
    return f"{', and '.join(parts)}: the lines of the log are cut or wrapped, so sums are too low"


def _said(log: LogSummary, style: Style) -> str:
    known = messages()

    def order(m: LogMessage) -> tuple[int, int]:
        """What failed, then warnings, then all else."""
        found = find_all(m.example)
        level = known[found[0].key].level if found and found[0].key in known else "info"
        return ("error", "warning", "info").index(level), -m.count

    rows: list[Row] = [
        [str(m.count), str(m.first_line), str(m.first_graph or ""), m.text if m.count > 1 else m.example]
        for m in sorted(log.messages, key=order)
    ]
    if log.messages_left_out:
        rows.append([str(log.messages_left_out), "", "", "others"])
    if max((len(str(row[-1])) for row in rows), default=0) + _BESIDE_MESSAGE > style.width:
        return render_lines([line for row in _some(rows) for line in _wrapped(row, style)], style)
    return render_table(_MESSAGES, _some(rows), style)


def _wrapped(row: Row, style: Style) -> list[Text]:
    """A message below its numbers, if there is no room beside them."""
    from rich.text import Text

    times, line, graph, message, *_ = (cell.text if isinstance(cell, Cell) else str(cell) for cell in (*row, ""))
    if not line:
        return [Text(f"  {times} {message}", "dim")]
    where = f"  {times} × from line {line}" + (f", graph {graph}" if graph else "")
    wrapped = wrap(printable(message), max(style.width - 4, 20))
    return [Text(where, "dim"), *(Text(f"    {part}") for part in wrapped)]


def log_graph_view(answer: Answer[ImportedGraph], style: Style) -> str:
    """The graph for people."""
    graph = answer.facts
    plan, tensors = log_plan(graph)
    nodes = f"{count(len(plan.nodes), 'node')} and views" if plan.nodes else "no nodes"
    facts = [plan_step(plan), f"lines {graph.line} to {graph.last_line}", nodes]
    parts = [heading(answer.title, facts, style), "\n", _backends(plan, tensors, style)]
    parts += ["\n", splits_table(plan, tensors, style, MAX_SPLITS)]
    if len(plan.splits) > MAX_SPLITS:
        parts.append(render_lines([f"  all of them: {graph.more}"], style))
    lines = copied_sums(copied_inputs(plan, tensors)) if graph.has_headers else []
    return "".join([*parts, "\n", render_lines([*lines, *log_graph_notes(graph)], style)])


def log_graph_notes(graph: LogGraph) -> list[str]:
    """What the log does not have of this graph."""
    notes = []
    if graph.level == 1:
        notes.append("printed with GGML_SCHED_DEBUG=1, which leaves out the nodes")
    if not graph.has_headers:
        notes.append("the headers of the splits are missing: a split here is a run of nodes on one backend")
    if not graph.is_whole:
        notes.append("the log does not have all of this graph")
    return notes


def _backends(plan: Plan, tensors: Tensors, style: Style) -> str:
    inks = term_colors(name for name, _ in plan.backends)
    n_nodes = Counter(node.backend for node in plan.nodes)
    n_splits = Counter(split.backend for split in plan.splits)

    def copied(name: str) -> str | None:
        inputs = [tensors[i] for split in plan.splits if split.backend == name for i in split.inputs]
        return bytes_of(inputs) if inputs else None

    table = Table[str](
        Column("backend", lambda name: Cell(name, inks[name])),
        Column("nodes", lambda name: n_nodes[name] if plan.nodes else None, right=True),
        Column("splits", lambda name: n_splits[name], right=True),
        Column("copied in", copied, right=True),
    )
    return table.render((name for name, _ in plan.backends), style)
