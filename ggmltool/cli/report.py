"""`ggmltool report`: one page that explains a graph to somebody who was not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click
from msgspec import UnsetType, structs

from ggmltool.cli.complete import complete_releases, complete_sides
from ggmltool.cli.diff import with_graph
from ggmltool.cli.errors import FINE, GGML_FAILED, CliError
from ggmltool.cli.moment import Look, moment_command
from ggmltool.cli.options import Pipeline, one_release
from ggmltool.cli.output import note
from ggmltool.cli.scenario import open_scenario
from ggmltool.inspect.opened import Moment, Opened, WhatIf

if TYPE_CHECKING:
    from ggmltool.ask.report.document import ReportComparisonDocument, ReportDocument
    from ggmltool.ggml.releases.release import Release


@moment_command("html", "json", help="A page (default), or the JSON that is in it.", what_if=True)
@click.option(
    "--compare",
    metavar="B[:GRAPH]",
    shell_complete=complete_sides,
    help="Put a second scenario, or another graph, beside it.",
)
@click.option(
    "--compare-ggml",
    metavar="VERSION",
    callback=one_release,
    shell_complete=complete_releases,
    help="Put beside it what this ggml decides (of B where --compare names one).",
)
@click.option(
    "--compare-parallel/--compare-no-parallel",
    "--compare-pipeline/--compare-no-pipeline",
    "compare_pipeline",
    cls=Pipeline,
    default=None,
    help="Put beside it the plan with the four copies of pipeline parallelism, or without.",
)
@click.option(
    "--compare-op-offload/--compare-no-op-offload",
    default=None,
    help="Put beside it the plan with op offload, or without.",
)
def report(
    look: Look,
    compare: str | None,
    compare_ggml: Release | None,
    compare_pipeline: bool | None,
    compare_op_offload: bool | None,
) -> int:
    """Write a page that explains a graph: one HTML file that needs no network.

    It has the memory map of every compute buffer, with a slider that steps through every decision; the graph with its
    splits and folded layers; the story of every tensor; splits with what they copy and why they begin; what to change;
    limits; which backend supports which op; and the scenario itself. With --compare or its kin two plans stand side by
    side, and the first node where they part is marked.

    \b
    Example:
      ggmltool report -o report.html moe
      ggmltool report --after 2 -o report.html outgrown
      ggmltool report --compare-no-pipeline -o report.html pipeline
    """
    if look.format != "json" and look.output.to_terminal:
        raise CliError("a page cannot be shown on a terminal; name a file with -o report.html")
    beside = _Beside(compare, compare_ggml, WhatIf(compare_pipeline, compare_op_offload))
    opened = open_scenario(look.scenario, look.release)
    one = opened.what_if(look.what_if), look.moment
    document: ReportDocument | ReportComparisonDocument
    if not beside:
        from ggmltool.ask.report.build import report as document_of

        document = document_of(*one)
        found = [document]
    else:
        from ggmltool.ask.report.compare import compared

        document = compared(one, beside.open(look, opened))
        found = [document.a, document.b]
    return _write(look, document, found)


def _write(look: Look, document: ReportDocument | ReportComparisonDocument, found: Sequence[ReportDocument]) -> int:
    """Write the page or its data; the exit status, with ggml's words on standard error where it refused."""
    from ggmltool.show.html import page
    from ggmltool.show.text import ggml_error

    if look.json:
        look.output.write_document(document)
    else:
        look.output.write(page(document, document.title).encode())
    refused = [of.error for of in found if not isinstance(of.error, UnsetType)]
    for error in refused:
        note(ggml_error(structs.asdict(error)))
    return GGML_FAILED if refused else FINE


class _Beside(NamedTuple):
    """What is put beside the scenario: another one, another ggml, other options of the scheduler."""

    other: str | None
    release: Release | None
    what_if: WhatIf

    def __bool__(self) -> bool:
        return self.other is not None or self.release is not None or bool(str(self.what_if))

    def open(self, look: Look, first: Opened) -> tuple[Opened, Moment]:
        """The second side; what it does not say is as on the first. Raises CliError, UsageError and ScenarioError."""
        file, graph = (look.scenario, None) if self.other is None else with_graph(self.other)
        if graph is not None and look.moment.after is not None:
            raise click.UsageError(f"--after names a step, which has its own graph; leave out :{graph}.")
        opened = first
        if self.release is not None or file != look.scenario:
            if file == "-" and look.scenario == "-":
                raise CliError("standard input can be read only once; write it to a file to compare two releases")
            opened = open_scenario(first.argument if file is None else file, self.release or look.release)
        given = zip(self.what_if, look.what_if, strict=True)
        what_if = WhatIf(*(own if own is not None else same for own, same in given))
        moment = look.moment if graph is None else look.moment._replace(graph=graph)
        return opened.what_if(what_if), moment
