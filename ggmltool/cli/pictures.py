"""Commands that draw, `buffers` and `dot`; pictures as SVG, a page, pixels; and graphs as Graphviz lays them out."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import click

from ggmltool.ask.buffers import Buffers
from ggmltool.ask.dot import Dot
from ggmltool.cli.derive import Asking, question_command
from ggmltool.cli.errors import FINE, CliError
from ggmltool.cli.logs import OpenedLog, open_either, refuse_moment, refuse_options
from ggmltool.cli.options import option_of
from ggmltool.cli.output import Output, ending_of, note, status_of
from ggmltool.cli.progress import progress
from ggmltool.show.svg import FONT

PICTURES = ("svg", "png", "html")
"""What a drawing can be written as."""

HOW_TO_GET_PNG = (
    "a PNG needs a program that draws SVG, and none is installed. Get one with `pip install 'ggmltool[png]'` or "
    "`apt-get install librsvg2-bin` (rsvg-convert), or write the drawing itself: -o {stem}.svg"
)
_ZOOM, _DPI = 2, 96
"""Pixels per unit of a drawing, and units per inch: Graphviz has sizes in points."""

_LETTER = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><text y="9" font-family="{}">{}</text></svg>'


def check_picture(format: str | None, output: Output, stem: str) -> None:
    """Refuse to show bytes on a terminal, and say how to write a file, such as `stem`.png. Raises CliError."""
    if format in ("png", "pdf") and output.to_terminal:
        raise CliError(f"a {format.upper()} cannot be shown on a terminal; name a file with -o {stem}.{format}")


def picture_of(svg: str, format: str, title: str, output: Output) -> str | bytes:
    """The drawing in one of the formats. Raises CliError where nothing makes a PNG of it."""
    if format == "png":
        return _png(svg, output)
    if format == "html":
        from ggmltool.show.html import picture_page

        return picture_page(svg, title)
    return svg


def _png(svg: str, output: Output) -> bytes:
    try:
        import resvg_py
    except ImportError:
        return _by_rsvg(svg, output)
    letter, none = (resvg_py.svg_to_bytes(svg_string=_LETTER.format(FONT, text)) for text in "M ")
    if letter == none:
        raise CliError(f"a PNG needs one of the fonts {FONT}; get one with `apt-get install fonts-dejavu-core`")
    try:
        return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=_ZOOM, dpi=_DPI))
    except ValueError as error:
        raise CliError(f"resvg failed: {error}") from None


def _by_rsvg(svg: str, output: Output) -> bytes:
    program = shutil.which("rsvg-convert")
    if program is None:
        stem = output.path.name.partition(".")[0] if output.path is not None else "picture"
        raise CliError(HOW_TO_GET_PNG.format(stem=stem))
    done = subprocess.run([program, "--zoom", str(_ZOOM)], input=svg.encode(), capture_output=True, check=False)
    if done.returncode:
        raise CliError(f"rsvg-convert failed: {done.stderr.decode('utf-8', 'replace').strip()}")
    return done.stdout


HOW_TO_GET_DOT = (
    "drawing needs the program `dot` of Graphviz, which is not installed. Get it with `apt-get install graphviz`, "
    "`dnf install graphviz`, `brew install graphviz` or `winget install graphviz`, or its WebAssembly build with "
    "`npm install --global @hpcc-js/wasm-graphviz-cli`; or write the text instead: ggmltool dot -o graph.dot"
)
_WASM = "wasm-graphviz-cli"


def draw(text: str, format: str) -> bytes:
    """The picture of a text for Graphviz, as svg, png or pdf. Raises CliError where nobody draws it."""
    if shutil.which("dot") is None and shutil.which(_WASM) is not None:
        return _by_wasm(text, format)
    import graphviz

    try:
        with progress("drawing"):
            picture: bytes = graphviz.Source(text).pipe(format=format)
    except graphviz.ExecutableNotFound:
        raise CliError(HOW_TO_GET_DOT) from None
    except graphviz.CalledProcessError as error:
        raise CliError(f"Graphviz failed: {_said(error.stderr) or error}") from None
    return picture


def has_pixels() -> bool:
    """Whether who draws makes PNG and PDF by itself, as the WebAssembly build does not."""
    return shutil.which("dot") is not None or shutil.which(_WASM) is None


def _by_wasm(text: str, format: str) -> bytes:
    if format != "svg":
        raise CliError(f"{_WASM} draws no {format.upper()}; install Graphviz for it, or write an .svg")
    program = shutil.which(_WASM) or _WASM
    with tempfile.TemporaryDirectory() as folder, progress("drawing"):
        path = Path(folder) / "graph.dot"
        path.write_text(text, "utf-8")
        done = subprocess.run([program, "-T", "svg", str(path)], capture_output=True, check=False)
    if done.returncode or b"<svg" not in done.stdout:
        raise CliError(f"{_WASM} failed: {_said(done.stderr or done.stdout)}")
    return done.stdout


def _said(stderr: bytes | None) -> str:
    return (stderr or b"").decode("utf-8", "replace").strip()


@question_command(Buffers)
def buffers(asking: Asking[Buffers[Any]]) -> int:
    question, format, output, view = asking.question, asking.format, asking.output, asking.question.view
    picture = format if format in PICTURES else None
    if picture is not None and view not in ("", "chart"):
        raise click.UsageError(f"only --chart is a drawing; leave out {option_of(view)}, or name a .txt or .json file.")
    if picture is not None and (question.all or question.ascii):
        wrong = option_of("all" if question.all else "ascii")
        raise click.UsageError(f"{wrong} is for text; leave it out for a drawing.")
    if question.chart and format in ("json", "csv"):
        raise click.UsageError("--chart is a drawing; --json without it has the tensors at the peak.")
    if format == "pickle" and view:
        raise click.UsageError(f"a pickle has what is allocated and freed; leave out {option_of(view)}.")
    if format == "pickle" and output.to_terminal:
        raise CliError("a pickle cannot be shown on a terminal; name a file with -o memory.pickle")
    check_picture(picture, output, "map")
    if picture is None and format != "pickle":
        return asking.answer()
    from ggmltool.inspect.built import graph_numbers

    opened = asking.open()
    answer = question.ask(opened)
    plan, memory = answer.facts.plan, answer.facts.memory
    numbers = graph_numbers(opened.scenario, plan.graph)
    if picture is not None:
        from ggmltool.ask.buffers.svg import map_svg

        drawn = map_svg(plan, memory, answer.title, numbers)
        return output.answer(answer, picture, picture_of(drawn, picture, answer.title, output))
    from ggmltool.ask.buffers.torch_snapshot import devices_of, snapshot_pickle

    named = (f"{number} is {name}" for number, name in enumerate(devices_of(plan, memory)))
    note(f"Devices in the viewer: {', '.join(named) or 'none, no memory is planned'}")
    return output.answer(answer, "pickle", snapshot_pickle(plan, memory, answer.facts.tensors, numbers))


@question_command(Dot)
def dot(asking: Asking[Dot]) -> int:
    question, output = asking.question, asking.output
    opened = open_either(asking.scenario, question.graph, asking.release)
    is_log = isinstance(opened, OpenedLog)
    if is_log:
        refuse_moment()
        refuse_options(fold="has no shapes and no views, and equal layers are recognized by them")
        if question.style == "ggml":
            refuse_options(style="has no shapes and types; leave --style ggml out")
    style = question.in_style("ggmltool" if is_log else "ggml")
    if asking.format is None and output.path is not None and ending_of(output.path) not in (".txt", ""):
        raise CliError(
            f"cannot tell a format from {output.path.name}; use .svg, .png, .pdf, .html or .dot, or say --format"
        )
    format = asking.format or "dot"
    check_picture(format, output, "graph")
    if isinstance(opened, OpenedLog):
        from ggmltool.sources.sched_log.plan import log_plan

        made = question.of_plan(*log_plan(opened.graph()), opened.title)
    else:
        made = question.draw(opened, style)
    status = FINE if made.at is None else status_of(made.at)
    if format == "dot":
        output.write(made.text)
        return status
    from ggmltool.ask.dot.splits import LARGE, simpler_layout
    from ggmltool.show.svg import finished

    if made.nodes > LARGE:
        note(
            f"A picture of {made.nodes} nodes is huge and can take Graphviz minutes; --overview fits a screen, "
            "--style ggmltool --fold draws repeated layers once, --around ID or --split N a part"
        )
    text = simpler_layout(made.text, made.nodes) if style == "ggml" else made.text
    if format == "pdf" or (format == "png" and has_pixels()):
        output.write(draw(text, format))
    else:
        output.write(picture_of(finished(draw(text, "svg").decode(), made.title), format, made.title, output))
    return status
