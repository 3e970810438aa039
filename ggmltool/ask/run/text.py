"""A run step by step in brief, tensors as they are computed, and the likeliest next tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ggmltool.ask.answer import Answer
from ggmltool.ask.run.record import GraphTimes, LikelyToken, NextToken, StepReport, WatchedNode, summary_of
from ggmltool.ask.splits.record import input_bytes
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.use_after_free import uses_view
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.show.table import Cell, Column, Shown, Style, Table, heading, render_lines
from ggmltool.show.text import count, dims, ggml_error, printable, size
from ggmltool.show.values import matrix_view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ggmltool.ask.run.steps import Ran


def times_text(times: GraphTimes) -> str:
    """The per-backend timings of sched_compute_splits; backends that did nothing have no line."""
    lines = [f"sched_compute_splits times ({times.splits} splits):\n"]
    for spent in times.backends:
        if spent.copy_us or spent.compute_us:
            name = spent.backend[:5].rjust(5)
            lines.append(f"\t{name}: {spent.copy_us} us copy, {spent.compute_us} us compute\n")
    return "".join(lines)


def ran(answer: Answer[Ran], style: Style) -> str:
    """The steps, what they used of freed memory, the values, and the likeliest next tokens."""
    facts = answer.facts
    model = facts.opened.model
    graphs = [step.graph for step in model.steps if step.graph is not None] or list(model.graphs)
    infos = {id: info for graph in reversed(graphs) for id, info in facts.opened.tensors(graph).items()}
    backends = [name for name, _ in facts.plans[0].backends] if facts.plans else []
    parts = [times_text(times) for times in facts.times or ()]
    parts.append(steps_view(facts.reports, backends, infos, answer.title, style))
    parts += ["\n", text] if (text := uses_view(facts.freed, style)) else []
    for id, values in facts.values.items():
        if values is not None:
            type = infos[id].type if id in infos else str(values.dtype)
            parts += ["\n", matrix_view(id, type, values, style)]
    parts += ["\n", next_token_view(facts.next_token, style)] if facts.next_token is not None else []
    return "".join(parts)


def steps_view(steps: Sequence[StepReport], backends: Sequence[str], tensors: Tensors, title: str, style: Style) -> str:
    """One row per step, and ggml's error where the run ended with one."""
    text = heading(title, [count(len(steps), "step")], style) + "\n" + _table(backends, tensors).render(steps, style)
    errors = [error for step in steps if (error := step.failure)]
    if errors:
        text += "\n" + render_lines([ggml_error(dict(errors[0]))], style)
    return text


def _table(backends: Sequence[str], tensors: Tensors) -> Table[StepReport]:
    def planned(get: Callable[[Plan], Shown]) -> Callable[[StepReport], Shown]:
        return lambda s: get(s.plan) if s.plan is not None and s.plan.ok else None

    def copies(plan: Plan) -> int:
        return sum(len(split.inputs) for split in plan.splits)

    def copied(plan: Plan) -> str | None:
        return size(sum(input_bytes(split, tensors) for split in plan.splits)) if copies(plan) else None

    def buffer(name: str) -> Column[StepReport]:
        return Column(name, planned(lambda p: size(dict(p.buffer_sizes).get(name, 0))), right=True, drop=1)

    return Table(
        Column("", lambda s: s.number, right=True),
        Column("step", lambda s: s.step, cut=True),
        Column("splits", planned(lambda p: len(p.splits)), right=True),
        Column("inputs copied", planned(copies), right=True, drop=2),
        Column("bytes", planned(copied), right=True, drop=3),
        *map(buffer, backends),
        Column("", _outcome, cut=True),
    )


def _outcome(step: StepReport) -> Cell | str:
    if step.failure:
        return Cell("ggml fails", "bold red")
    return Cell("use after free", "bold red") if step.uses_freed else step.did


SHOWN_WHOLE = 64
"""Elements up to which a tensor is shown as a whole."""


def watched_view(node: WatchedNode, values: NDArray[Any] | None, several_steps: bool, style: Style) -> str:
    """A tensor with what it was made of, its first and last elements, and a summary; None: it cannot be read."""
    sources = ", ".join(f"{printable(name)} {type}{dims(ne)}" for name, type, ne in node.src)
    facts = [f"{node.op}({sources})", node.backend]
    if several_steps:
        facts.append(f"step {node.step}")
    if values is None:
        title = heading(node.id, [f"{node.type} {dims(node.ne)}", *facts], style)
        return title + render_lines(["  its values cannot be read here"], style)
    text = matrix_view(node.id, node.type, values, style, facts, SHOWN_WHOLE)
    s = summary_of(values)
    numbers = [f"{n} {v:.5g}" for n, v in (("min", s.min), ("max", s.max), ("mean", s.mean)) if v is not None]
    counts = [f"{name} {n}" for name, n in (("NaN", s.nan), ("inf", s.inf)) if n]
    line = "  ".join([*numbers, *counts])
    return text + (render_lines([f"  {line}"], style) if line else "")


def next_token_view(found: NextToken, style: Style) -> str:
    """The likeliest tokens, one row each."""
    row = f"the last of {found.n_rows} rows of {found.id}" if found.n_rows > 1 else f"by {found.id}"
    table = Table[LikelyToken](
        Column("token", lambda t: t.token, right=True),
        Column("text", lambda t: None if t.text is None else f'"{printable(t.text)}"', cut=True),
        Column("logit", lambda t: f"{t.logit:.3f}", right=True),
        Column("probability", lambda t: f"{t.probability:.1%}", right=True),
    )
    return heading("next token", [row], style) + "\n" + table.render(found.likely, style)
