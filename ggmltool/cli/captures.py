"""The captured graphs that a command works on: files of captures, or of a model one for each of its options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ggmltool.ask.sweep.record import Graph
from ggmltool.cli.errors import CliError
from ggmltool.cli.model_options import ModelOptions, Wanted
from ggmltool.cli.progress import progress
from ggmltool.cli.scenario import open_scenario
from ggmltool.inspect.opened import Opened

if TYPE_CHECKING:
    from ggmltool.sources.llama.capture.options import CaptureOptions

MAX_CAPTURES = 64
Phase = Literal["prompt", "token", "both"]


def open_captures(names: Sequence[str | None], wanted: ModelOptions, phase: Phase = "prompt") -> list[Graph]:
    """The scenarios that are named, or the default one; a GGUF file gives a capture of a phase for all that is wanted.

    Raises click.UsageError for options of a capture without a model to capture, and CliError.
    """
    from ggmltool.sources.llama.model_file import is_model

    models = [name for name in names if name is not None and is_model(Path(name))]
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
            for graph in _capture(name, each, phase):
                out.append(graph)
                done()
    return out


def opener(name: str | None, wanted: ModelOptions) -> Callable[[int], Graph]:
    """What gives the graphs of a prompt and a token with a context of so many tokens (0: as `wanted` says): a model is
    captured for each, what is a capture already has its own. Raises as `open_captures` does.
    """
    from ggmltool.sources.llama.model_file import is_model

    (first,) = open_captures([name], wanted, "both")
    (each,) = wanted.each()
    opened = {each.options.n_ctx: first}

    def open_for(n_ctx: int) -> Graph:
        if n_ctx not in opened and (name is None or not is_model(Path(name))):
            return first
        if n_ctx not in opened:
            words = {**each.words, "-c": str(n_ctx)}
            same = next((g for g in opened.values() if g.opened.model.meta.get("n_ctx") == n_ctx), None)
            if same is None:
                wanted_here = each._replace(options=replace(each.options, n_ctx=n_ctx), words=words)
                (same,) = _capture(str(name), [wanted_here], "both")
            opened[n_ctx] = same._replace(words=words)
        return opened[n_ctx]

    return open_for


def _capture(name: str, each: Sequence[Wanted], phase: Phase) -> Iterator[Graph]:
    """The graphs of a whole ubatch of a prompt, of a token or both, in batches that are no smaller. Raises CliError."""
    from ggmltool.scenario.load import load_spec
    from ggmltool.scenario.scenario import Scenario
    from ggmltool.sources.llama.capture.capture import capture_many
    from ggmltool.sources.llama.errors import CaptureError

    try:
        for kind, group in groupby(each, lambda wanted: wanted.quantization):
            alike = list(group)
            captures = capture_many(Path(name), [_options(wanted, phase) for wanted in alike], kind)
            for wanted, captured in zip(alike, captures, strict=True):
                if isinstance(captured, CaptureError):
                    raise captured
                yield Graph(Opened(Scenario(load_spec(captured.scenario)), name), wanted.words)
    except CaptureError as error:
        raise CliError(str(error)) from None


def _options(wanted: Wanted, phase: Phase) -> CaptureOptions:
    options = replace(wanted.options, phase=phase)
    return options if "-b" in wanted.words else replace(options, n_batch=max(options.n_batch, options.n_ubatch))
