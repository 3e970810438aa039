"""A log of the scheduler's debug prints in one look: its graphs, what grew, what was said, how large buffers are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.messages import messages
from ggmltool.ggml.messages.match import find_all
from ggmltool.sources.sched_log.records import Dialect, GraphSummary, LogGraph, LogSummary, Message
from ggmltool.views.palette import colors
from ggmltool.views.table import Cell, Head, Row, Style, heading, render_lines, render_table
from ggmltool.views.text import count, printable, shortened, size_between

if TYPE_CHECKING:
    from rich.text import Text

_BESIDE_MESSAGE = 24

MAX_ABORTS = 5
"""Aborts that are told of."""

MAX_ROWS = 40
"""Rows of a table before the middle ones are left out."""

_DIALECTS = {
    Dialect.Y2024: "written as by ggml of 2024",
    Dialect.Y2025: "written as by ggml of 2025",
    Dialect.Y2026: "written as by ggml of 2026",
}
_MESSAGES = (
    Head("times", right=True),
    Head("line", right=True, drop=1),
    Head("graph", right=True, drop=2),
    Head("message", cut=True),
)
_GROWN = (
    Head("buffer type", cut=True),
    Head("times", right=True),
    Head("from", right=True),
    Head("to", right=True),
    Head("largest", right=True, drop=1),
    Head("line", right=True, drop=2),
)
_BUFFERS = (Head("buffer"), Head("buffer type", cut=True), Head("lines", right=True), Head("sizes", cut=True))
_BREAKDOWN = (
    Head("device", cut=True),
    Head("total", right=True),
    Head("free", right=True, drop=2),
    Head("self", right=True),
    Head("model", right=True),
    Head("context", right=True),
    Head("compute", right=True),
    Head("unaccounted", right=True, drop=1),
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


def log_view(log: LogSummary, title: str, style: Style) -> str:
    """The summary for people."""
    groups = alike(log.graphs)
    n_graphs = len(log.graphs) + log.graphs_left_out
    facts = [count(log.n_lines, "line"), count(n_graphs, "graph")]
    if 1 < len(groups) < n_graphs:
        facts[-1] += f", {len(groups)} different"
    dialects = [_DIALECTS[d] for d in dict.fromkeys(graph.dialect for graph in log.graphs) if d is not None]
    parts = [heading(title, [*facts, *dialects], style), _aborts(log, style)]
    if groups:
        parts += ["\n", _graphs(log, groups, style)]
    notes = list(_notes(log))
    if notes:
        parts += ["\n", render_lines(notes, style)]
    for name, table in (
        ("compute buffers that were reallocated", _grown(log, style)),
        ("what ggml and llama.cpp say", _said(log, style)),
        ("buffers, as llama.cpp says", _buffers(log, style)),
        (_breakdown_title(log), _breakdown(log, style)),
    ):
        if table:
            parts += ["\n", render_lines([name], style), table]
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
    inks = colors(log.backends)
    columns = (
        Head("graph"),
        Head("line", right=True, drop=6),
        Head("title", cut=True),
        *(Head(printable(name), right=True) for name in log.backends),
        Head("splits", right=True),
        Head("inputs", right=True, drop=5),
        Head("copied", right=True, drop=2),
    )
    has_titles = any(graph.title for graph, _ in groups)
    if not has_titles:
        columns = tuple(column for column in columns if column.header != "title")
    rows: list[Row] = []
    for graph, numbers in groups:
        on = dict(graph.nodes_on)
        rows.append(
            [
                ranges(numbers),
                str(graph.line),
                *([graph.title] if has_titles else []),
                *(
                    Cell(str(on[name]), inks[name].term)
                    if on.get(name)
                    else Cell("–" if graph.level > 1 else "", "dim")
                    for name in log.backends
                ),
                str(graph.n_splits) if graph.has_headers else "",
                str(graph.n_inputs) if graph.has_headers else "",
                size_between(*graph.copied) if graph.n_inputs else "",
            ]
        )
    return render_table(columns, _some(rows, len(columns)), style)


def _some(rows: list[Row], n_columns: int) -> list[Row]:
    """The rows, without the middle ones of very many."""
    if len(rows) <= MAX_ROWS:
        return rows
    first = MAX_ROWS - MAX_ROWS // 3
    skipped = len(rows) - MAX_ROWS
    gap: Row = [Cell("⋮", "dim"), Cell(str(skipped), "dim"), Cell("more", "dim"), *[""] * (n_columns - 3)]
    return [*rows[:first], gap, *rows[first + skipped :]]


def _notes(log: LogSummary) -> Iterable[str]:
    if log.graphs:
        yield "below each backend: its nodes, but for views, which have no line in a log"
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
        yield "graphs without nodes were printed with GGML_SCHED_DEBUG=1; 2 prints nodes too"
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


def _grown(log: LogSummary, style: Style) -> str:
    rows = [
        [r.buft, str(r.count), _mib(r.first), _mib(r.last), _mib(r.largest), str(r.first_line)] for r in log.reallocs
    ]
    return render_table(_GROWN, rows, style) if rows else ""


def _said(log: LogSummary, style: Style) -> str:
    messages = sorted(log.messages, key=lambda m: (_weight(m), -m.count))
    rows: list[Row] = [
        [str(m.count), str(m.first_line), str(m.first_graph or ""), m.text if m.count > 1 else m.example]
        for m in messages
    ]
    if log.messages_left_out:
        rows.append([str(log.messages_left_out), "", "", "others"])
    if max((len(str(row[-1])) for row in rows), default=0) + _BESIDE_MESSAGE > style.width:
        return render_lines([line for row in _some(rows, len(_MESSAGES)) for line in _wrapped(row, style)], style)
    return render_table(_MESSAGES, _some(rows, len(_MESSAGES)), style) if rows else ""


def _weight(message: Message) -> int:
    """0 for what failed, 1 for a warning, 2 for all else."""
    found = find_all(message.example)
    known = messages()
    level = known[found[0].key].level if found and found[0].key in known else "info"
    return ("error", "warning", "info").index(level)


def _wrapped(row: Row, style: Style) -> list[Text]:
    """A message below its numbers, where there is no room beside them."""
    from rich.text import Text

    times, line, graph, message = (cell.text if isinstance(cell, Cell) else str(cell) for cell in row)
    if not line:
        return [Text(f"  {times} {message}", "dim")]
    where = f"  {times} × from line {line}" + (f", graph {graph}" if graph else "")
    wrapped = wrap(printable(message), max(style.width - 4, 20))
    return [Text(where, "dim"), *(Text(f"    {part}") for part in wrapped)]


def _buffers(log: LogSummary, style: Style) -> str:
    rows = [[b.kind, b.buft, str(b.count), shortened([_mib(s) for s in b.sizes], 7)] for b in log.buffers]
    return render_table(_BUFFERS, rows, style) if rows else ""


def _breakdown_title(log: LogSummary) -> str:
    return "memory breakdown in MiB, as llama.cpp says" + (
        f" (the last of {log.breakdowns})" if log.breakdowns > 1 else ""
    )


def _breakdown(log: LogSummary, style: Style) -> str:
    rows = []
    for b in log.breakdown:
        numbers = (b.total, b.free, b.self, b.model, b.context, b.compute, b.unaccounted)
        rows.append([b.device, *("" if n is None else str(n) for n in numbers)])
    return render_table(_BREAKDOWN, rows, style) if rows else ""


def _mib(value: float) -> str:
    return f"{value:.2f} MiB"
