"""See what ggml's scheduler and allocator do to a graph, exactly, without the devices and without the model.

    import ggmltool
    scenario = ggmltool.load("graph.yaml")  # or a sample: "transformer"; a dict; a GGUF file
    scenario.plan()
    scenario.explain("kq")

`ggmltool help python` is the manual's page. Names are imported when they are first used, so that importing the package
costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ggmltool.version import __version__

if _TYPE_CHECKING:
    from typing import Any

    from ggmltool.api.fitting import fit
    from ggmltool.api.loading import capture, load
    from ggmltool.api.reference import backends, explain_error, import_log, open_record, ops, samples, types
    from ggmltool.api.scenario import Scenario
    from ggmltool.ask.answer import Answer as Result
    from ggmltool.ggml.errors import Error, GgmlAbort, GgmlAssert, GgmlError, GgmlFailed
    from ggmltool.ggml.plan import Plan
    from ggmltool.scenario.errors import ScenarioError
    from ggmltool.sources.llama.capture.options import CaptureOptions
    from ggmltool.sources.llama.errors import CaptureError
    from ggmltool.state.errors import InspectError, StepRefused

__all__ = [
    "CaptureError",
    "CaptureOptions",
    "Error",
    "GgmlAbort",
    "GgmlAssert",
    "GgmlError",
    "GgmlFailed",
    "InspectError",
    "Plan",
    "Result",
    "Scenario",
    "ScenarioError",
    "StepRefused",
    "__version__",
    "backends",
    "capture",
    "explain_error",
    "fit",
    "import_log",
    "load",
    "open_record",
    "ops",
    "samples",
    "types",
]

_HOMES = {
    "CaptureError": "ggmltool.sources.llama.errors",
    "CaptureOptions": "ggmltool.sources.llama.capture.options",
    "Error": "ggmltool.ggml.errors",
    "GgmlAbort": "ggmltool.ggml.errors",
    "GgmlAssert": "ggmltool.ggml.errors",
    "GgmlError": "ggmltool.ggml.errors",
    "GgmlFailed": "ggmltool.ggml.errors",
    "InspectError": "ggmltool.state.errors",
    "Plan": "ggmltool.ggml.plan",
    "Result": "ggmltool.ask.answer",
    "Scenario": "ggmltool.api.scenario",
    "ScenarioError": "ggmltool.scenario.errors",
    "StepRefused": "ggmltool.state.errors",
    "backends": "ggmltool.api.reference",
    "capture": "ggmltool.api.loading",
    "explain_error": "ggmltool.api.reference",
    "fit": "ggmltool.api.fitting",
    "import_log": "ggmltool.api.reference",
    "load": "ggmltool.api.loading",
    "open_record": "ggmltool.api.reference",
    "ops": "ggmltool.api.reference",
    "samples": "ggmltool.api.reference",
    "types": "ggmltool.api.reference",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), "Answer" if name == "Result" else name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
