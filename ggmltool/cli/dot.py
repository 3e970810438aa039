"""`ggmltool dot`: the graph as a picture."""

from __future__ import annotations

import click

from ggmltool.cli.complete import complete_tensors
from ggmltool.cli.endings import ending_of
from ggmltool.cli.errors import FINE, CliError
from ggmltool.cli.logs import OpenedLog, open_either
from ggmltool.cli.moment import Look, choose, moment_command
from ggmltool.cli.output import Output, note, status_of
from ggmltool.cli.progress import progress
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.built import built_graph
from ggmltool.inspect.neighbors import near, part_of
from ggmltool.inspect.watched import Watched, graph_at, watch
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.views.plan.dot import LARGE, ggml_dot, simpler_layout, split_dot
from ggmltool.views.plan.fold_dot import fold_dot

PICTURES = ("svg", "png", "pdf")
TEXTS = (".txt", "")

HOW_TO_GET_DOT = (
    "drawing needs the program `dot` of Graphviz, which is not installed. Get it with `apt-get install graphviz`, "
    "`dnf install graphviz`, `brew install graphviz` or `winget install graphviz`, or write the text instead: "
    "ggmltool dot -o graph.dot"
)


@moment_command("dot", *PICTURES, help="Graphviz's text or a picture (default: from the file's name).")
@click.option(
    "--style",
    type=click.Choice(["ggml", "ggmltool"]),
    default="ggml",
    show_default=True,
    help="ggml's own drawing of the graph, or one with a cluster per split and the copies between them.",
)
@click.option(
    "--around",
    metavar="ID",
    shell_complete=complete_tensors,
    help="Draw only the neighborhood of this node or leaf.",
)
@click.option("--radius", type=click.IntRange(0), default=2, show_default=True, help="How many edges --around goes.")
@click.option(
    "--split",
    type=click.IntRange(0),
    metavar="N",
    help="Draw only this split, with its sources (with --style ggmltool).",
)
@click.option(
    "--fold",
    is_flag=True,
    help="Draw repeated layers once, with their count (with --style ggmltool).",
)
def dot(look: Look, style: str, around: str | None, radius: int, split: int | None, fold: bool) -> int:
    """Draw the graph: as text for Graphviz, or as a picture with -o graph.svg, .png or .pdf.

    --style ggmltool draws a cluster per split in its backend's color, and the copies between splits as dashed arrows
    with their bytes. With --fold a whole model fits, too: consecutive layers with the same ops, shapes and backends are
    one box "× 10"; the types of their weights and the parameters of their ops may differ.

    A GGML_SCHED_DEBUG=2 log can take the place of the scenario (with --style ggmltool); --graph is then a graph's
    number or a part of its title.

    \b
    Example:
      ggmltool dot --style ggmltool --fold -o model.svg model.json.gz
    """
    opened, output = open_either(look.scenario, look.moment.graph, look.release), look.output
    if isinstance(opened, OpenedLog):
        style = _style_of_log(style)
    if split is not None and style == "ggml":
        raise click.UsageError("--split needs --style ggmltool; ggml's drawing has no splits.")
    choose(split=split, around=around)
    if fold and style == "ggml":
        raise click.UsageError("--fold needs --style ggmltool; ggml's drawing has every node.")
    if fold and (split is not None or around is not None):
        raise click.UsageError("--fold draws the whole graph; leave out --split and --around.")
    format = look.format or _text_for(output)
    if format in ("png", "pdf") and output.to_terminal:
        raise CliError(f"a {format.upper()} cannot be shown on a terminal; name a file with -o graph.{format}")
    if isinstance(opened, OpenedLog):
        from ggmltool.sources.sched_log.plan import log_plan

        tensors: Tensors
        plan, tensors = log_plan(opened.graph())
        part = part_of(plan, tensors, around, radius, split)
        text = split_dot(plan, tensors, opened.title, part)
        status, drawn = FINE, len(plan.nodes if part is None else part)
    elif style == "ggml":
        name = graph_at(opened, look.moment)
        tensors = opened.tensors(name)
        nodes, leafs = built_graph(opened.scenario, name, tensors)
        part = near([t.id for t in (*nodes, *leafs)], tensors, around, radius)
        text = ggml_dot(nodes, leafs, tensors, part)
        if format != "dot":
            text = simpler_layout(text, len(nodes if part is None else part))
        status, drawn = FINE, len(nodes if part is None else part)
    else:
        watched = watch(opened, look.moment)
        plan = _planned(watched)
        tensors = opened.tensors(watched.graph)
        part = None if fold else part_of(plan, tensors, around, radius, split)
        text = fold_dot(plan, tensors, watched.title) if fold else split_dot(plan, tensors, watched.title, part)
        status, drawn = status_of(watched), 0 if fold else len(plan.nodes if part is None else part)
    if format != "dot":
        _tell_of_size(drawn)
    output.write(text if format == "dot" else _draw(text, format))
    return status


def _style_of_log(style: str) -> str:
    """The style in which a log is drawn, whatever the default is. Raises CliError for options that need shapes."""
    from ggmltool.cli.log_views import refuse_moment, refuse_options

    refuse_moment()
    refuse_options(fold="has no shapes and no views, and equal layers are recognized by them")
    if style == "ggml":
        refuse_options(style="has no shapes and types; leave --style ggml out")
    return "ggmltool"


def _tell_of_size(drawn: int) -> None:
    """Before a picture that nobody can read is drawn: what would be drawn instead."""
    if drawn > LARGE:
        note(
            f"A picture of {drawn} nodes is huge and can take Graphviz minutes; --style ggmltool --fold draws repeated "
            "layers once, --around ID or --split N a part"
        )


def _planned(watched: Watched) -> Plan:
    """The plan of --style ggmltool. Raises CliError if ggml refused before it had splits."""
    if watched.plan.error is not None and not watched.plan.splits:
        raise watched.refusal("there is no plan to draw:\n")
    return watched.plan


def _text_for(output: Output) -> str:
    """Graphviz's text, where the file's name may stand for text. Raises CliError if it is of a picture, perhaps."""
    if output.path is None or ending_of(output.path) in TEXTS:
        return "dot"
    raise CliError(f"cannot tell a format from {output.path.name}; use .svg, .png, .pdf or .dot, or say --format")


def _draw(text: str, format: str) -> bytes:
    """The picture, made by Graphviz. Raises CliError without it, or where it fails."""
    import graphviz

    try:
        with progress("drawing"):
            picture: bytes = graphviz.Source(text).pipe(format=format)
    except graphviz.ExecutableNotFound:
        raise CliError(HOW_TO_GET_DOT) from None
    except graphviz.CalledProcessError as error:
        said = (error.stderr or b"").decode("utf-8", "replace").strip()
        raise CliError(f"Graphviz failed: {said or error}") from None
    return picture
