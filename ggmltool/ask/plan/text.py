"""A plan on one screen: the devices, the splits, what is copied between devices, the buffers."""

from __future__ import annotations

from collections import Counter

from ggmltool.ask.answer import Answer
from ggmltool.ask.plan.record import PlanShown
from ggmltool.ask.splits.record import splits_table
from ggmltool.ggml.plan import Plan
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.show.colors import colors
from ggmltool.show.table import Cell, Head, Row, Style, heading, render_lines, render_table
from ggmltool.show.text import count, plan_step, printable, size

MAX_SPLITS = 12
"""Splits shown before the middle ones are left out."""

_DEVICES = (
    Head("backend"),
    Head("buffer type", cut=True, drop=2),
    Head("nodes", right=True),
    Head("splits", right=True),
    Head("copied in", right=True, drop=1),
    Head("contexts", right=True, drop=3),
    Head("compute buffer", right=True),
)


def plan(answer: Answer[PlanShown], style: Style) -> str:
    """The plan for people, with the command that shows all splits where some are left out."""
    plan, tensors, more, title = answer.facts.plan, answer.facts.tensors, answer.facts.more, answer.title
    release = [] if f", ggml {plan.ggml}" in title else [f"ggml {plan.ggml}"]
    facts = [plan_step(plan), *release, count(len(plan.nodes), "node"), count(len(plan.leafs), "leaf")]
    facts += ["ggml aborts when it computes this"] if plan.compute_error is not None else []
    parts = [heading(title, facts, style)]
    if plan.splits:
        parts += ["\n", _devices(plan, tensors, style)]
        parts += ["\n", splits_table(plan, tensors, style, MAX_SPLITS)]
        if len(plan.splits) > MAX_SPLITS and more:
            parts.append(render_lines([f"  all of them: {more}"], style))
        parts += ["\n", render_lines(_copies(plan, tensors), style)]
    return "".join(parts)


def _devices(plan: Plan, tensors: Tensors, style: Style) -> str:
    inks = colors(name for name, _ in plan.backends)
    n_nodes = Counter(node.backend for node in plan.nodes)
    n_splits = Counter(split.backend for split in plan.splits)
    copied: Counter[str] = Counter()
    for split in plan.splits:
        copied[split.backend] += sum(tensors[i].nbytes for i in split.inputs if i in tensors)
    before = _preallocated(plan, tensors)
    sizes = dict(plan.buffer_sizes)
    rows: list[Row] = []
    for name, buft in plan.backends:
        held = before.pop(buft, 0)
        rows.append(
            [
                Cell(name, inks[name].term),
                buft if buft != name else "",
                str(n_nodes[name]),
                str(n_splits[name]),
                size(copied[name]) if copied[name] else "",
                size(held) if held else "",
                size(sizes.get(name, 0)),
            ]
        )
    rows += [["", buft, "", "", "", size(held), ""] for buft, held in before.items() if held]
    return render_table(_DEVICES, rows, style)


def _preallocated(plan: Plan, tensors: Tensors) -> dict[str, int]:
    """Bytes of the graph's leafs that had memory before the graph, per buffer type."""
    held: dict[str, int] = {}
    for leaf in plan.leafs:
        info = tensors.get(leaf.id)
        if info is not None and info.has_data and info.view_src is None and leaf.buffer is not None:
            held[leaf.buffer] = held.get(leaf.buffer, 0) + info.nbytes
    return held


def _copies(plan: Plan, tensors: Tensors) -> list[str]:
    """Per pair of devices: how many tensors are copied, and bytes."""
    home = {n.id: n.backend for n in plan.nodes} | {leaf.id: leaf.backend for leaf in plan.leafs}
    pairs: Counter[tuple[str, str]] = Counter()
    nbytes: Counter[tuple[str, str]] = Counter()
    for split in plan.splits:
        for i in split.inputs:
            pair = (home.get(i) or "?", split.backend)
            pairs[pair] += 1
            nbytes[pair] += tensors[i].nbytes if i in tensors else 0
    if not pairs:
        return ["nothing is copied between backends"]
    return [
        f"copies {printable(src)} → {printable(dst)}: {count(n, 'tensor')}, {size(nbytes[src, dst])}"
        for (src, dst), n in pairs.items()
    ]
