"""Pictures as files: SVG, a page, pixels by a program that draws SVG; and graphs as Graphviz lays them out."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from ggmltool.cli.errors import CliError
from ggmltool.cli.output import Output
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
