"""The views of `splits`, `plan` and `dot` on a graph of a log, and what to say where a log cannot tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ggmltool.cli.errors import CliError
from ggmltool.cli.logs import OpenedLog
from ggmltool.cli.moment import option_of
from ggmltool.cli.options import DOCUMENTS
from ggmltool.cli.output import Output, note
from ggmltool.show.text import plan_step
from ggmltool.sources.sched_log.plan import log_plan

if TYPE_CHECKING:
    from ggmltool.ask.splits import Splits


def refuse(what: str, why: str) -> CliError:
    """The one message for what a log cannot tell."""
    return CliError(f"{what} needs a scenario: a log {why}")


def refuse_options(**reasons: str) -> None:
    """Refuse those of these options that stand on the command line. Raises CliError."""
    ctx = click.get_current_context()
    for name, why in reasons.items():
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise refuse(option_of(name), why)


def refuse_moment() -> None:
    """Refuse --step and --after. Raises CliError."""
    refuse_options(step="shows what was printed, reserve or alloc", after="has no steps")


def refuse_what_if() -> None:
    """Refuse --pipeline and --op-offload. Raises CliError."""
    made = "shows a plan that was made with its own options"
    refuse_options(pipeline=made, op_offload=made)


def show_plan(log: OpenedLog, json: bool, output: Output) -> int:
    """`plan LOG` and `import --graph N LOG`."""
    graph = log.graph()
    if json:
        from ggmltool.ask.log.record import LogGraphDocument

        output.write_document(LogGraphDocument.of(graph, log.shown))
        return 0
    from ggmltool.ask.log.text import log_graph_view

    plan, tensors = log_plan(graph)
    more = f"ggmltool splits --format table --graph {graph.number} {log.argument}"
    output.write(log_graph_view(graph, plan, tensors, log.title, output.style, more))
    return 0


def show_splits(
    log: OpenedLog, question: Splits[Any], debug: int, causes: bool, format: str | None, output: Output
) -> int:
    """`splits LOG`: ggml's text without what stood before or within its lines, a table, counts or copies."""
    by = question.keys
    if "type" in by:
        raise refuse("--by type", "has no types")
    graph = log.graph()
    if by and graph.level == 1:
        raise CliError("this graph was printed with GGML_SCHED_DEBUG=1, which leaves out the nodes; 2 prints them")
    if "cause" in by and not any(node.cause for node in graph.nodes):
        raise CliError("this log has no causes; only a debug build of ggml prints them")
    if format in (None, "text") and not question.view:
        from ggmltool.ask.splits.sched_debug import sched_debug
        from ggmltool.sources.sched_log.records import as_debug

        counts = all(node.use_count is not None for node in graph.nodes)
        output.write_ggml(sched_debug(as_debug(graph), debug, causes, counts))
        return 0
    from ggmltool.ask.answer import Answer
    from ggmltool.ask.log.text import log_graph_notes

    plan, tensors = log_plan(graph)
    for text in log_graph_notes(graph):
        note(text)
    answer = Answer(question.of_plan(plan, tensors), log.title, plan_step(plan), plan)
    return output.answer(answer, format if format in DOCUMENTS else "text")
