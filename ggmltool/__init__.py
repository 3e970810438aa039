"""See what ggml's scheduler and allocator do to a graph, exactly, without the devices and without the model.

    import ggmltool
    plan = ggmltool.load("graph.yaml").plan()

Names are imported when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ggmltool.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, GgmlError, GgmlFailed
    from ggmltool.ggml.plan import Plan
    from ggmltool.scenario.errors import ScenarioError
    from ggmltool.scenario.scenario import Scenario

__all__ = [
    "GgmlAbort",
    "GgmlAssert",
    "GgmlError",
    "GgmlFailed",
    "Plan",
    "Scenario",
    "ScenarioError",
    "__version__",
    "load",
]

_HOMES = {
    "GgmlAbort": "ggmltool.ggml.errors",
    "GgmlAssert": "ggmltool.ggml.errors",
    "GgmlError": "ggmltool.ggml.errors",
    "GgmlFailed": "ggmltool.ggml.errors",
    "Plan": "ggmltool.ggml.plan",
    "Scenario": "ggmltool.scenario.scenario",
    "ScenarioError": "ggmltool.scenario.errors",
}


def load(source: str | Path | dict[str, Any], ggml: str | None = None) -> Scenario:
    """Read a scenario: a path (`.yaml`, `.json`, each also `.gz`), "-" for standard input, or a dict.

    `ggml` is the release to plan it as, by default the scenario's own `ggml`, else the newest.

    Raises ScenarioError for a mistake in it, with its place, and GgmlError for a node that ggml would refuse.
    """
    from ggmltool.scenario.load import load_model
    from ggmltool.scenario.scenario import Scenario

    return Scenario(load_model(source, ggml=ggml))


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
