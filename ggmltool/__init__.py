"""See what ggml's scheduler and allocator do to a graph, exactly, without the devices and without the model.

    import ggmltool
    plan = ggmltool.load("graph.yaml").plan()  # or a sample: ggmltool.load("transformer")

Names are imported when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ggmltool.version import __version__

if _TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, GgmlError, GgmlFailed
    from ggmltool.ggml.plan import Plan
    from ggmltool.ggml.releases.release import Release
    from ggmltool.scenario.errors import ScenarioError
    from ggmltool.scenario.scenario import Scenario
    from ggmltool.sources.llama.errors import CaptureError
    from ggmltool.sources.llama.options import CaptureOptions

__all__ = [
    "CaptureError",
    "CaptureOptions",
    "GgmlAbort",
    "GgmlAssert",
    "GgmlError",
    "GgmlFailed",
    "Plan",
    "Scenario",
    "ScenarioError",
    "__version__",
    "capture",
    "load",
]

_HOMES = {
    "CaptureError": "ggmltool.sources.llama.errors",
    "CaptureOptions": "ggmltool.sources.llama.options",
    "GgmlAbort": "ggmltool.ggml.errors",
    "GgmlAssert": "ggmltool.ggml.errors",
    "GgmlError": "ggmltool.ggml.errors",
    "GgmlFailed": "ggmltool.ggml.errors",
    "Plan": "ggmltool.ggml.plan",
    "Scenario": "ggmltool.scenario.scenario",
    "ScenarioError": "ggmltool.scenario.errors",
}


def load(source: str | Path | dict[str, Any], ggml: str | Release | None = None) -> Scenario:
    """Read a scenario: a path (`.yaml`, `.json`, each also `.gz`), the name of a sample where there is no such file,
    "-" for standard input, or a dict.

    `ggml` is the release to plan it as, a name or a Release, by default the scenario's own `ggml`, else the newest.

    Raises ScenarioError for a mistake in it, with its place, and GgmlError for a node that ggml would refuse.
    """
    from ggmltool.scenario.load import load_model
    from ggmltool.scenario.scenario import Scenario

    if isinstance(source, str):
        from ggmltool.scenario.samples import scenario_path

        source = scenario_path(source)
    return Scenario(load_model(source, ggml=ggml))


def capture(model: str | Path, options: CaptureOptions | None = None) -> Scenario:
    """The graph that llama.cpp builds for a GGUF file, as a scenario without its weights' values.

    `options` are llama.cpp's settings and the batch (`CaptureOptions(n_ctx=8192)`), by default those of its command
    line. Needs the extra `llama`. Raises CaptureError where there is no such library or it refuses the model.
    """
    from pathlib import Path

    from ggmltool.sources.llama.capture import capture as captured
    from ggmltool.sources.llama.options import CaptureOptions

    return load(captured(Path(model), options or CaptureOptions()).scenario)


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
