"""Where scenarios come from: files, samples, dicts, models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ggmltool.api.scenario import Scenario

if TYPE_CHECKING:
    from ggmltool.sources.llama.options import CaptureOptions


def load(source: str | Path | dict[str, Any], ggml: str | None = None) -> Scenario:
    """Read a scenario: a path (`.yaml`, `.json`, each also `.gz`), the name of a sample where there is no such file,
    "-" for standard input, a dict, or a GGUF file, whose graph is captured as `capture` does.

    `ggml` is the release to plan it as, by default the scenario's own `ggml`, else the newest.

    Raises ScenarioError for a mistake in it, with its place, GgmlError for a node that ggml would refuse, and
    CaptureError for a model where llama.cpp's library is missing or refuses it.
    """
    from ggmltool.scenario.load import load_model

    argument = ""
    if not isinstance(source, dict):
        from ggmltool.scenario.samples import ENDINGS, scenario_path

        argument = str(source)
        source = scenario_path(argument) if isinstance(source, str) else source
        if source != "-" and not str(source).endswith(ENDINGS) and _is_gguf(source):
            return capture(source)
    return Scenario(load_model(source, ggml=ggml), argument, ggml)


def _is_gguf(path: str | Path) -> bool:
    from ggmltool.sources.llama.capture import is_gguf

    return is_gguf(Path(path))


def capture(
    model: str | Path, options: CaptureOptions | None = None, *, weights: bool = False, **settings: Any
) -> Scenario:
    """The graph that llama.cpp builds for a GGUF file, as a scenario.

    The settings are llama.cpp's and the batch, by name: `capture("model.gguf", n_ctx=8192, phase="token")`; they are
    the fields of CaptureOptions, and stand in for those of `options`. With `weights`, and for a `prompt` or `tokens`
    always, it says where the weights' values are, so that it can be computed. Needs the extra `llama`. Raises
    CaptureError where there is no such library or it refuses the model, TypeError for a setting that is not there.
    """
    from ggmltool.scenario.load import load_model
    from ggmltool.sources.llama.capture import add_weights
    from ggmltool.sources.llama.capture import capture as captured
    from ggmltool.sources.llama.options import CaptureOptions

    chosen = replace(options or CaptureOptions(), **settings)
    path = Path(model)
    scenario = captured(path, chosen).scenario
    folder = path.resolve().parent
    if weights or chosen.prompt or chosen.tokens:
        add_weights(scenario, path, folder)
    return Scenario(load_model(scenario, folder=folder), str(model))
