"""`load` and `capture`: a scenario with a method for each command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ggmltool.api.scenario import Scenario
from ggmltool.api.sources import captured, read
from ggmltool.ask.checked import checked
from ggmltool.ggml.bounds import BOUNDS, Bounds

if TYPE_CHECKING:
    from ggmltool.ggml.releases.release import Release
    from ggmltool.sources.llama.capture.options import CaptureOptions


@checked
def load(
    source: str | Path | dict[str, Any], ggml: str | Release | None = None, *, bounds: Bounds = BOUNDS
) -> Scenario:
    """Read a scenario: a path (`.yaml`, `.json`, each also `.gz`), the name of a sample if there is no such file, "-"
    for standard input, a dict, or a model (a GGUF file, a folder of safetensors), whose graph is captured as `capture`
    does.

    `ggml` is the release to plan it as, by default the scenario's own `ggml`, else the newest. `bounds` are what
    computing it may take.

    Raises ScenarioError for a mistake in it, with its place, GgmlError for a node that ggml would refuse, and
    CaptureError for a model where llama.cpp's library is missing or refuses it.
    """
    scenario = Scenario(*read(source, ggml if isinstance(ggml, str | None) else ggml.name))
    scenario.model.bounds = bounds
    return scenario.prepared()


@checked
def capture(
    model: str | Path,
    options: CaptureOptions | None = None,
    *,
    weights: bool = False,
    quantization: str = "",
    **settings: Any,
) -> Scenario:
    """The graph that llama.cpp builds for a GGUF file or a folder of safetensors, as a scenario.

    With a `quantization`, such as "Q4_K_M", it is that of the file that llama-quantize would make.

    The settings are llama.cpp's and the batch, by name: `capture("model.gguf", n_ctx=8192, phase="token")`; they are
    the fields of CaptureOptions, and stand in for those of `options`. With `weights`, and for a `prompt` or `tokens`
    always, it says where the weights' values are, so that it can be computed. Needs the extra `llama`. Raises
    CaptureError if there is no such library or it refuses the model, InspectError for a setting that is not there.
    """
    return Scenario(*captured(model, options, weights, quantization, **settings)).prepared()
