"""The captured graphs that a search works on, each made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from ggmltool.scenario.load import load_spec
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec
from ggmltool.sources.llama.capture import capture_many
from ggmltool.sources.llama.errors import CaptureError
from ggmltool.sources.llama.options import CaptureOptions
from ggmltool.sources.llama.place import Placer
from ggmltool.sources.llama.search.space import Setting

Devices = Callable[[ScenarioSpec], Sequence[BackendSpec]]
"""The devices to place a captured model on."""


class Captures(Protocol):
    """Where captured graphs come from."""

    def placers(self, settings: Sequence[Setting]) -> Iterator[Placer | CaptureError]:
        """The models of these settings on the devices, in their order, each as it is asked for."""


class ModelFile:
    """A GGUF file, or what llama-quantize would make of it, captured with each setting; `base` has what the settings do
    not say."""

    def __init__(
        self, path: Path, devices: Devices, base: CaptureOptions | None = None, quantization: str = ""
    ) -> None:
        self.path = path
        self.devices = devices
        self.base = base or CaptureOptions()
        self.quantization = quantization

    def placers(self, settings: Sequence[Setting]) -> Iterator[Placer | CaptureError]:
        """As Captures says. Raises CaptureError for what is no model."""
        options = [s.capture_options(self.base) for s in settings]
        for captured in capture_many(self.path, options, self.quantization):
            if isinstance(captured, CaptureError):
                yield captured
            else:
                model = load_spec(captured.scenario)
                yield Placer(model, self.devices(model))


class OneModel:
    """A model that was captured before, which has one setting."""

    def __init__(self, model: ScenarioSpec, devices: Devices) -> None:
        self.placer = Placer(model, devices(model))

    def placers(self, settings: Sequence[Setting]) -> Iterator[Placer | CaptureError]:
        """The same for every setting."""
        return (self.placer for _ in settings)
