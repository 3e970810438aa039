"""`ggmltool dot`: the graph as a picture."""

from __future__ import annotations

import click

from ggmltool.cli.command import Command
from ggmltool.cli.errors import GGML_FAILED, CliError
from ggmltool.cli.options import format_option, graph_option, output_option, scenario_argument, step_option
from ggmltool.cli.output import Output, log_lines
from ggmltool.cli.scenario import built_graph, open_scenario, tensor_infos
from ggmltool.views.dot import ggml_dot, simpler_layout, split_dot
from ggmltool.views.errors import ggml_error

PICTURES = ("svg", "png", "pdf")
TEXTS = (".dot", ".gv", ".txt", "")

HOW_TO_GET_DOT = (
    "drawing needs the program `dot` of Graphviz, which is not installed. Get it with `apt-get install graphviz`, "
    "`dnf install graphviz`, `brew install graphviz` or `winget install graphviz`, or write the text instead: "
    "ggmltool dot -o graph.dot"
)


@click.command(cls=Command)
@scenario_argument
@graph_option
@step_option
@click.option(
    "--style",
    type=click.Choice(["ggml", "ggmltool"]),
    default="ggml",
    show_default=True,
    help="ggml's own drawing of the graph, or one with a cluster per split and the copies between them.",
)
@format_option("dot", *PICTURES, help="Graphviz's text or a picture (default: from the file's name).")
@output_option
def dot(scenario: str | None, graph: str | None, step: str, style: str, format: str | None, output: Output) -> int:
    """Draw the graph: as text for Graphviz, or as a picture with -o graph.svg, .png or .pdf.

    With --style ggmltool: a cluster per split in its backend's colour, the copies between splits as dashed arrows
    with their bytes.

    \b
    Example:
      ggmltool dot --style ggmltool -o graph.svg model.yaml
    """
    format = format or _format_of(output)
    if format in ("png", "pdf") and output.to_terminal:
        raise CliError(f"a {format.upper()} is nothing for a terminal; name a file with -o graph.{format}")
    opened = open_scenario(scenario)
    name = opened.scenario.graph_name(graph)
    tensors = tensor_infos(opened.model, name)
    if style == "ggml":
        nodes, leafs = built_graph(opened.scenario, name, tensors)
        text = ggml_dot(nodes, leafs, tensors)
        if format != "dot":
            text = simpler_layout(text, len(nodes))
    else:
        plan = opened.scenario.plan(name, step)
        log_lines(plan.log)
        if plan.error is not None:
            raise CliError(f"there is no plan to draw:\n{ggml_error(dict(plan.error))}", GGML_FAILED)
        text = split_dot(plan, tensors, opened.title)
    output.write(text if format == "dot" else _draw(text, format))
    return 0


def _format_of(output: Output) -> str:
    if output.path is None:
        return "dot"
    suffix = output.path.suffix.lower()
    if suffix[1:] in PICTURES:
        return suffix[1:]
    if suffix in TEXTS:
        return "dot"
    raise CliError(f"cannot tell a format from {output.path.name}; use .svg, .png, .pdf or .dot, or say --format")


def _draw(text: str, format: str) -> bytes:
    """The picture, made by Graphviz. Raises CliError without it, or where it fails."""
    import graphviz

    try:
        picture: bytes = graphviz.Source(text).pipe(format=format)
    except graphviz.ExecutableNotFound:
        raise CliError(HOW_TO_GET_DOT) from None
    except graphviz.CalledProcessError as error:
        said = (error.stderr or b"").decode("utf-8", "replace").strip()
        raise CliError(f"Graphviz failed: {said or error}") from None
    return picture
