"""The captured graphs that a command compares: files of captures, or of a model one for each size of ubatch."""

from __future__ import annotations

from pathlib import Path

import click

from ggmltool.cli.errors import CliError
from ggmltool.cli.progress import progress
from ggmltool.cli.scenario import Opened, open_scenario

MAX_CAPTURES = 64
UBATCH = 512
"""The ubatch of llama.cpp where nobody names one."""
_BATCH = 2048


def open_captures(names: tuple[str, ...], ubatches: list[int], n_ctx: int | None) -> list[Opened]:
    """The scenarios that are named, or the default one; a GGUF file gives a capture for each of `ubatches`.

    Raises click.UsageError for a ubatch or a context without a model to capture, and CliError.
    """
    from ggmltool.sources.llama.capture import is_gguf

    models = [name for name in names if is_gguf(Path(name))]
    if (ubatches or n_ctx is not None) and not models:
        option = "-ub" if ubatches else "-c"
        raise click.UsageError(f"{option} makes another graph: it needs the model itself, MODEL.gguf, not its capture")
    sizes = ubatches or [UBATCH]
    if len(models) * len(sizes) > MAX_CAPTURES:
        raise CliError(f"{len(models) * len(sizes)} graphs are too many to capture, {MAX_CAPTURES} are allowed")
    out = []
    with progress("capturing", len(models) * len(sizes), "graphs") as done:
        for name in names or (None,):
            if name not in models or name is None:
                out.append(open_scenario(name))
                continue
            for n_ubatch in sizes:
                out.append(_capture(name, n_ubatch, n_ctx or 0))
                done()
    return out


def _capture(name: str, n_ubatch: int, n_ctx: int) -> Opened:
    """The graph of a whole ubatch of a prompt, in a batch that is no smaller. Raises CliError."""
    from ggmltool import load
    from ggmltool.sources.llama.capture import capture
    from ggmltool.sources.llama.errors import CaptureError
    from ggmltool.sources.llama.options import CaptureOptions

    options = CaptureOptions(n_ctx=n_ctx, n_batch=max(_BATCH, n_ubatch), n_ubatch=n_ubatch)
    try:
        return Opened(load(capture(Path(name), options).scenario), name)
    except CaptureError as error:
        raise CliError(str(error)) from None
