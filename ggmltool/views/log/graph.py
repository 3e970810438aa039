"""A graph of a log on one screen: its backends, its splits, what is copied between them."""

from __future__ import annotations

from collections import Counter

from ggmltool.ask.splits.copied import copied_sums
from ggmltool.ask.splits.text import splits_table
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.copied import copied_inputs
from ggmltool.inspect.tensors import bytes_of
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Cell, Column, Style, Table, heading, render_lines
from ggmltool.show.text import count, plan_step
from ggmltool.sources.sched_log.records import LogGraph
from ggmltool.views.plan.plan import MAX_SPLITS


def log_graph_view(graph: LogGraph, plan: Plan, tensors: Tensors, title: str, style: Style, more: str) -> str:
    """The graph for people; `plan` and `tensors` are what it shows of a plan, `more` the command with all splits."""
    nodes = f"{count(len(plan.nodes), 'node')} and views" if plan.nodes else "no nodes"
    facts = [plan_step(plan), f"lines {graph.line} to {graph.last_line}", nodes]
    parts = [heading(title, facts, style), "\n", _backends(plan, tensors, style)]
    parts += ["\n", splits_table(plan, tensors, style, MAX_SPLITS)]
    if len(plan.splits) > MAX_SPLITS:
        parts.append(render_lines([f"  all of them: {more}"], style))
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
