"""The captured graphs that a command works on: files of captures, or of a model one for each of its options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ggmltool.cli.errors import CliError
from ggmltool.cli.model_options import ModelOptions, Wanted
from ggmltool.cli.progress import progress
from ggmltool.cli.scenario import open_scenario
from ggmltool.inspect.opened import Opened
from ggmltool.inspect.swept import Graph

MAX_CAPTURES = 64


def open_captures(names: Sequence[str | None], wanted: ModelOptions) -> list[Graph]:
    """The scenarios that are named, or the default one; a GGUF file gives a capture for all that is wanted.

    Raises click.UsageError for options of a capture without a model to capture, and CliError.
    """
    from ggmltool.sources.llama.capture import is_gguf

    models = [name for name in names if name is not None and is_gguf(Path(name))]
    if wanted.given and not models:
        raise CliError(f"{wanted.given[0]} changes the graph: name the model itself, MODEL.gguf, not its capture")
    each = wanted.each()
    n = len(models) * len(each)
    if n > MAX_CAPTURES:
        raise CliError(f"{n} graphs are too many to capture; the limit is {MAX_CAPTURES}")
    out = []
    with progress("capturing", n, "graphs") as done:
        for name in names or (None,):
            if name is None or name not in models:
                out.append(Graph(open_scenario(name), {}))
                continue
            for one in each:
                out.append(_capture(name, one))
                done()
    return out


def _capture(name: str, wanted: Wanted) -> Graph:
    """The graph of a whole ubatch of a prompt, in a batch that is no smaller. Raises CliError."""
    from dataclasses import replace

    from ggmltool.scenario.load import load_model
    from ggmltool.scenario.scenario import Scenario
    from ggmltool.sources.llama.capture import capture
    from ggmltool.sources.llama.errors import CaptureError

    options = wanted.options
    if "-b" not in wanted.words:
        options = replace(options, n_batch=max(options.n_batch, options.n_ubatch))
    try:
        return Graph(Opened(Scenario(load_model(capture(Path(name), options).scenario)), name), wanted.words)
    except CaptureError as error:
        raise CliError(str(error)) from None
