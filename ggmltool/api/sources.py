"""Where scenarios come from: files, samples, dicts, models."""

from __future__ import annotations

from dataclasses import fields, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ggmltool.scenario.spec import ScenarioSpec
    from ggmltool.sources.llama.capture.options import CaptureOptions


class Source(NamedTuple):
    """What was read: the model of the file, what it is called, and the release that was named for it."""

    model: ScenarioSpec
    argument: str
    ggml: str | None = None


def read(source: str | Path | dict[str, Any], ggml: str | None = None) -> Source:
    """A file, a sample, a dict, or what llama.cpp builds for a GGUF file (see `load`)."""
    from ggmltool.scenario.load import load_spec

    argument = ""
    if isinstance(source, str | PathLike):
        from ggmltool.scenario.samples import ENDINGS, scenario_path
        from ggmltool.sources.llama.model_file import is_model

        argument = str(source)
        source = scenario_path(argument) if isinstance(source, str) else source
        if source != "-" and not str(source).endswith(ENDINGS) and is_model(Path(source)):
            return captured(source)
    return Source(load_spec(source, ggml=ggml), argument, ggml)


def captured(
    model: str | Path,
    options: CaptureOptions | None = None,
    weights: bool = False,
    quantization: str = "",
    **settings: Any,
) -> Source:
    """The graph that llama.cpp builds for a model (see `capture`)."""
    from ggmltool.scenario.errors import did_you_mean
    from ggmltool.scenario.load import load_spec
    from ggmltool.sources.llama.capture.capture import add_weights, capture
    from ggmltool.sources.llama.capture.options import CaptureOptions
    from ggmltool.sources.llama.errors import CaptureError
    from ggmltool.state.errors import WrongArgument

    known = [field.name for field in fields(CaptureOptions)]
    wrong = next((name for name in settings if name not in known), None)
    if wrong is not None:
        hint = did_you_mean(wrong, known) or f"the settings are {', '.join(known)}"
        raise WrongArgument(f"capture: there is no setting {wrong!r}; {hint}")
    chosen = replace(options or CaptureOptions(), **settings)
    path = Path(model)
    if weights and quantization:
        raise CaptureError("weights and quantization exclude each other: the file with such weights is not made")
    scenario = capture(path, chosen, quantization).scenario
    folder = path.resolve().parent
    if weights or chosen.prompt or chosen.tokens:
        add_weights(scenario, path, folder)
    return Source(load_spec(scenario, folder=folder), str(model))
