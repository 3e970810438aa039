"""Who lays out graphs: Graphviz of the system, or its build as WebAssembly that npm has."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from ggmltool.cli.errors import CliError
from ggmltool.cli.progress import progress

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
