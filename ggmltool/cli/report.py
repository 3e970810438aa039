"""`ggmltool report`: one page that explains a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec import UnsetType, structs

from ggmltool.ask.report import ReportQuestion
from ggmltool.cli.complete import complete_releases, complete_sides
from ggmltool.cli.derive import Asking, question_command
from ggmltool.cli.diff import with_graph
from ggmltool.cli.errors import FINE, GGML_FAILED, CliError
from ggmltool.cli.options import Pipeline, one_release
from ggmltool.cli.output import note
from ggmltool.cli.scenario import open_scenario
from ggmltool.inspect.opened import Moment, Opened, WhatIf

if TYPE_CHECKING:
    from ggmltool.ask.report.document import ReportComparisonDocument, ReportDocument
    from ggmltool.ggml.releases.release import Release


@question_command(ReportQuestion)
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
    asking: Asking[ReportQuestion],
    compare: str | None,
    compare_ggml: Release | None,
    compare_pipeline: bool | None,
    compare_op_offload: bool | None,
) -> int:
    from ggmltool.ask.report.build import report as report_of
    from ggmltool.ask.report.compare import compared
    from ggmltool.show.html import page
    from ggmltool.show.text import ggml_error

    output, question = asking.output, asking.question
    if not asking.json and output.to_terminal:
        raise CliError("a page cannot be shown on a terminal; name a file with -o report.html")
    opened = asking.open()
    one = question.of(opened), question.moment
    what_if = WhatIf(compare_pipeline, compare_op_offload)
    document: ReportDocument | ReportComparisonDocument
    if compare is None and compare_ggml is None and not str(what_if):
        document = report_of(*one)
        reports = [document]
    else:
        document = compared(one, _beside(asking, opened, compare, compare_ggml, what_if))
        reports = [document.a, document.b]
    if asking.json:
        output.write_document(document)
    else:
        output.write(page(document, document.title).encode())
    refused = [of.error for of in reports if not isinstance(of.error, UnsetType)]
    for error in refused:
        note(ggml_error(structs.asdict(error)))
    return GGML_FAILED if refused else FINE


def _beside(
    asking: Asking[ReportQuestion], first: Opened, other: str | None, release: Release | None, what_if: WhatIf
) -> tuple[Opened, Moment]:
    """The second side; what is not said of it is as on the first. Raises CliError, UsageError and ScenarioError."""
    question, scenario = asking.question, asking.scenario
    file, graph = (scenario, None) if other is None else with_graph(other)
    if graph is not None and question.after is not None:
        raise click.UsageError(f"--after names a step, which has its own graph; leave out :{graph}.")
    opened = first
    if release is not None or file != scenario:
        if file == "-" and scenario == "-":
            raise CliError("standard input can be read only once; write it to a file to compare two releases")
        opened = open_scenario(first.argument if file is None else file, release or asking.release)
    given = zip(what_if, question.what_if, strict=True)
    what_if = WhatIf(*(own if own is not None else same for own, same in given))
    at = question.moment if graph is None else question.moment._replace(graph=graph)
    return opened.what_if(what_if), at
