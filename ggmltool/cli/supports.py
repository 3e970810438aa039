"""`ggmltool supports`: which device could run which node, and why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggmltool.cli.command import Command
from ggmltool.cli.options import ggml_option, graph_option, json_option, output_option, scenario_argument
from ggmltool.cli.output import Output, log_lines, note
from ggmltool.cli.scenario import open_scenario
from ggmltool.views.errors import ggml_error
from ggmltool.views.explain.supports import STATES, Answered, Asked, Missing, State, only, supports_json, supports_view

if TYPE_CHECKING:
    from ggmltool.ggml.devices.cases import CaseAnswer
    from ggmltool.ggml.plan import Plan
    from ggmltool.ggml.tensor import Tensor
    from ggmltool.scenario.model import BackendSpec
    from ggmltool.scenario.run import Run


@click.command(cls=Command)
@scenario_argument
@graph_option
@click.option(
    "--by",
    type=click.Choice(["op", "node"]),
    default="op",
    show_default=True,
    help="A row for all nodes with the same op, types and answers, or a row for every node.",
)
@click.option(
    "--only", "wanted", type=click.Choice(STATES), envvar="GGMLTOOL_SUPPORTS_ONLY",
    help="Only nodes to which some backend gives this answer.",
)  # fmt: skip
@ggml_option
@json_option
@output_option
def supports(scenario: str | None, graph: str | None, by: str, wanted: State | None, json: bool, output: Output) -> int:
    """Show which backend supports which node of a graph, and the reason of every no.

    \b
    The answers, as the scheduler gets them before it begins:
      yes      it supports the op, and can use all memory that is there already
      copy     it supports the op after sources are copied, such as weights elsewhere
      offload  the same, and it takes it: the batch makes the copy worth it
      no       it does not support the op (supports_op), or cannot use the memory
               that the node has (supports_buft); the reasons stand below the table

    \b
    Example:
      ggmltool supports model.yaml
      ggmltool supports --by node --only no model.yaml
    """
    opened = open_scenario(scenario)
    name = opened.scenario.graph_name(graph)
    plan = opened.scenario.plan(name)
    log_lines(plan.log)
    run = opened.scenario.start()
    nodes = asked(run, name, plan)
    backends = [b.name for b in run.backends]
    chosen = only(nodes, wanted)
    if json:
        from ggmltool.views.json_text import json_text

        output.write(json_text(supports_json(chosen, backends, plan)))
    else:
        output.write(supports_view(chosen, len(nodes), backends, opened.title, name, by == "node", output.style))
    if plan.error is not None and not json:
        note(ggml_error(dict(plan.error)))
    return 0 if plan.ok else 1


def asked(run: Run, graph: str, plan: Plan) -> list[Asked]:
    """Every node of a graph that was just built, with the answers of all backends."""
    planned = {n.id: (n.backend, n.cause) for n in plan.nodes} if plan.ok else {}
    built = run.build(graph)
    return [_asked(run, i, t, *planned.get(t.id, (None, None))) for i, t in enumerate(built.nodes)]


def _measured(spec: BackendSpec, t: Tensor) -> CaseAnswer | None:
    """What the answer rests on where a real device's cases decide."""
    from ggmltool.ggml.device import EMPTY_OPS

    supports = spec.supports
    if supports is None or supports.cases is None or t.op in EMPTY_OPS:
        return None
    has_rule = any(rule.keys is not None and t.key in rule.keys for rule in supports.rules)
    return None if has_rule else supports.cases.answer(t)


def _asked(run: Run, index: int, t: Tensor, backend: str | None, cause: str | None) -> Asked:
    from ggmltool.ggml.op import KEY_NAMES
    from ggmltool.inspect.answers import answer

    answers = []
    for spec, b in zip(run.model.backends, run.backends, strict=True):
        a = answer(b.device, t)
        copies = tuple(Missing(c.slot, c.source.id, c.why) for c in a.copies)
        state: State = "no" if not a.runs else "copy" if copies else "yes"
        if a.runs and cause == "1.off" and b.name == backend:
            state = "offload"
        answers.append(Answered(state, a.why_not, copies, a.lacks, _measured(spec, t)))
    sources = tuple(s.type.name if s is not None else "–" for s in t.src)
    return Asked(index, t.id, KEY_NAMES[t.key].upper(), t.type.name, t.ne, sources, backend, tuple(answers))
