"""Small captured models that the tests of the search work on."""

from __future__ import annotations

from functools import cache

from ggmltool.scenario.devices.texts import read_devices
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec
from ggmltool.sources.llama.capture.capture import capture
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.search.space import Setting
from tests.sources.models import cached

SETTING = Setting(512, n_ubatch=64)


@cache
def model(name: str) -> ScenarioSpec:
    """A small model's two graphs."""
    return load_spec(capture(cached(name), SETTING.capture_options(CaptureOptions())).scenario)


def devices(*texts: str) -> list[BackendSpec]:
    return read_devices([*texts, *([] if any(t.startswith("CPU") for t in texts) else ["CPU"])])
