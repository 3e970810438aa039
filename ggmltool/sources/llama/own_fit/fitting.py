"""A --fit on its way: what it measures is written down, and all that llama.cpp says of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ggmltool.sources.llama.own_fit.log import breakdown
from ggmltool.sources.llama.own_fit.records import FitDevice, FitModel, FitParams, FitSettings, Measure, Measured, Trial


@dataclass(slots=True)
class Fitting:
    """A fit on its way: what is given, the parameters as they are now, what was said and measured so far."""

    model: FitModel
    devices: tuple[FitDevice, ...]
    settings: FitSettings
    measure_with: Measure
    params: FitParams
    log: list[str] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)

    def say(self, text: str, function: str = "common_params_fit_impl") -> None:
        """A line of the log."""
        self.log.append(f"{function}: {text}")

    def measure(self, why: str, params: FitParams | None = None) -> Measured:
        """common_get_device_memory_data_impl: measure these parameters, by default those of now."""
        asked = self.params if params is None else params
        found = self.measure_with(asked)
        for device in self.devices:
            if not device.free and not device.total:
                self.say(
                    f"device {device.name} did not report memory; --fit will not use it",
                    "common_get_device_memory_data_impl",
                )
        self.log += breakdown(self.devices, found)
        self.trials.append(Trial(why, asked, found))
        return found
