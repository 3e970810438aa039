"""`ggmltool dot`: the graph as a picture."""

from __future__ import annotations

from typing import NamedTuple

import click
from click.core import ParameterSource

from ggmltool.ask.dot.folded import fold_dot
from ggmltool.ask.dot.overview import overview_dot
from ggmltool.ask.dot.splits import LARGE, ggml_dot, simpler_layout, split_dot
from ggmltool.cli.complete import complete_tensors
from ggmltool.cli.errors import FINE, CliError
from ggmltool.cli.logs import OpenedLog, open_either
from ggmltool.cli.moment import Look, choose, moment_command
from ggmltool.cli.output import Output, ending_of, note, status_of
from ggmltool.cli.pictures import check_picture, draw, has_pixels, picture_of
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.built import built_graph, near, part_of
from ggmltool.inspect.opened import Opened
from ggmltool.inspect.watched import Watched, graph_at, watch
from ggmltool.show.svg import finished

PICTURES = ("svg", "png", "pdf", "html")
TEXTS = (".txt", "")


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
@click.option(
    "--overview", is_flag=True, help="Draw a whole model on one screen: a column per layer, a box per split in it."
)
def dot(look: Look, style: str, around: str | None, radius: int, split: int | None, fold: bool, overview: bool) -> int:
    """Draw the graph: as text for Graphviz, or as a picture with -o graph.svg, .png, .pdf or .html.

    --style ggmltool draws a cluster per split in its backend's color, and the copies between splits as dashed arrows
    with their bytes. With --fold a whole model fits, too: consecutive layers with the same ops, shapes and backends are
    one box "× 10"; the types of their weights and the parameters of their ops may differ. --overview fits a screen: a
    box for what each layer does in each split, with the bytes that are copied before it.

    A GGML_SCHED_DEBUG=2 log can take the place of the scenario (with --style ggmltool); --graph is then a graph's
    number or a part of its title.

    \b
    Example:
      ggmltool dot --overview -o model.svg model.json.gz
      ggmltool dot --style ggmltool --fold -o model.svg model.json.gz
    """
    opened, output = open_either(look.scenario, look.moment.graph, look.release), look.output
    if isinstance(opened, OpenedLog):
        style = _style_of_log(style)
    if split is not None and style == "ggml":
        raise click.UsageError("--split needs --style ggmltool; ggml's drawing has no splits.")
    choose(split=split, around=around, overview=overview)
    if overview:
        style = _style_of_overview(fold)
    if fold and style == "ggml":
        raise click.UsageError("--fold needs --style ggmltool; ggml's drawing has every node.")
    if fold and (split is not None or around is not None):
        raise click.UsageError("--fold draws the whole graph; leave out --split and --around.")
    format = look.format or _text_for(output)
    check_picture(format, output, "graph")
    if isinstance(opened, OpenedLog):
        made = _of_log(opened, around, radius, split, overview)
    elif style == "ggml":
        made = _as_ggml(opened, look, around, radius, format != "dot")
    else:
        made = _of_plan(opened, look, around, radius, split, fold, overview)
    if format != "dot":
        _tell_of_size(made.drawn)
    output.write(made.text if format == "dot" else _picture(made, format, output))
    return made.status


class _Drawing(NamedTuple):
    """Text for Graphviz; what it is of, in words; how many nodes it has; and the exit status."""

    text: str
    title: str
    drawn: int
    status: int = FINE


def _of_log(opened: OpenedLog, around: str | None, radius: int, split: int | None, overview: bool) -> _Drawing:
    from ggmltool.sources.sched_log.plan import log_plan

    plan, tensors = log_plan(opened.graph())
    if overview:
        return _Drawing(overview_dot(plan, tensors, opened.title), opened.title, 0)
    part = part_of(plan, tensors, around, radius, split)
    return _Drawing(split_dot(plan, tensors, opened.title, part), opened.title, _count(plan, part))


def _as_ggml(opened: Opened, look: Look, around: str | None, radius: int, drawn: bool) -> _Drawing:
    """ggml's own drawing, laid out more simply where it is drawn and large."""
    name = graph_at(opened, look.moment)
    tensors = opened.tensors(name)
    nodes, leafs = built_graph(opened.scenario, name, tensors)
    part = near([t.id for t in (*nodes, *leafs)], tensors, around, radius)
    text, n = ggml_dot(nodes, leafs, tensors, part), len(nodes if part is None else part)
    return _Drawing(simpler_layout(text, n) if drawn else text, f"{opened.title}, graph {name}", n)


def _of_plan(
    opened: Opened, look: Look, around: str | None, radius: int, split: int | None, fold: bool, overview: bool
) -> _Drawing:
    watched = watch(opened, look.moment)
    plan, title, tensors = _planned(watched), watched.title, opened.tensors(watched.graph)
    if fold or overview:
        text = fold_dot(plan, tensors, title) if fold else overview_dot(plan, tensors, title)
        return _Drawing(text, title, 0, status_of(watched))
    part = part_of(plan, tensors, around, radius, split)
    return _Drawing(split_dot(plan, tensors, title, part), title, _count(plan, part), status_of(watched))


def _count(plan: Plan, part: frozenset[str] | None) -> int:
    return len(plan.nodes if part is None else part)


def _picture(made: _Drawing, format: str, output: Output) -> str | bytes:
    """The drawing in a format. Raises CliError where nobody draws it."""
    if format == "pdf" or (format == "png" and has_pixels()):
        return draw(made.text, format)
    svg = finished(draw(made.text, "svg").decode(), made.title)
    return picture_of(svg, format, made.title, output)


def _style_of_overview(fold: bool) -> str:
    """The style of an overview, which is ggmltool's whatever the default is. Raises UsageError for ggml's."""
    source = click.get_current_context().get_parameter_source("style")
    if fold or (source is ParameterSource.COMMANDLINE and click.get_current_context().params["style"] == "ggml"):
        raise click.UsageError(
            f"--overview is another drawing than {'--fold' if fold else '--style ggml'}; choose one."
        )
    return "ggmltool"


def _style_of_log(style: str) -> str:
    """The style in which a log is drawn, whatever the default is. Raises CliError for options that need shapes."""
    from ggmltool.cli.logs import refuse_moment, refuse_options

    refuse_moment()
    refuse_options(fold="has no shapes and no views, and equal layers are recognized by them")
    if style == "ggml":
        refuse_options(style="has no shapes and types; leave --style ggml out")
    return "ggmltool"


def _tell_of_size(drawn: int) -> None:
    """Before a picture that nobody can read is drawn: what would be drawn instead."""
    if drawn > LARGE:
        note(
            f"A picture of {drawn} nodes is huge and can take Graphviz minutes; --overview fits a screen, "
            "--style ggmltool --fold draws repeated layers once, --around ID or --split N a part"
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
    raise CliError(
        f"cannot tell a format from {output.path.name}; use .svg, .png, .pdf, .html or .dot, or say --format"
    )
