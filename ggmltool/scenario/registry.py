"""The backends of a scenario in the registry of a ggml that has one, in the order in which that ggml registers them."""

from __future__ import annotations

from functools import partial

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import Backend
from ggmltool.ggml.releases import parts
from ggmltool.ggml.releases.parts import BackendRegistry
from ggmltool.scenario.engine import make_backends, make_bufts
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec

_INIT = {
    "CPU": "ggml_backend_reg_cpu_init",
    "CUDA": "ggml_backend_reg_cuda_init",
    "ROCm": "ggml_backend_reg_cuda_init",
    "Metal": "ggml_backend_reg_metal_init",
}
"""The functions that make backends, by profile, in the order of ggml_backend_registry_init."""


def registry_of(model: ScenarioSpec) -> BackendRegistry | None:
    """The CPU first, the devices of CUDA, then Metal, and what the scenario describes itself behind them.

    None where programs make no backends by a registry. Raises LineAssert if there are more than 16.
    """
    registry = parts.registry_of(model.release, model.cpu_base_misalign)
    if registry is None:
        return None
    order = list(_INIT)
    bufts = make_bufts(model)
    made = {b.name: b for b in make_backends(model, bufts)}
    specs = model.backends
    if all(spec.family != "CPU" for spec in specs):
        specs = [BackendSpec("CPU", "CPU"), *specs]
    for spec in sorted(specs, key=lambda s: order.index(s.profile) if s.profile in order else len(order)):
        backend = made.get(spec.name)
        buft = backend.device.buft if backend is not None else bufts["CPU"]
        init = partial(_init, model, spec.name, buft)
        registry.register(spec.name, init, buft, _INIT.get(spec.family, ""))
    return registry


def _init(model: ScenarioSpec, name: str, buft: BufferType, params: str) -> Backend:
    """A new backend of this name; nobody reads `params`."""
    specs = [spec for spec in model.backends if spec.name == name] or [BackendSpec("CPU", "CPU")]
    alone = ScenarioSpec(model.name, specs, model.buffer_types, [], {}, [], release=model.release, bounds=model.bounds)
    return make_backends(alone, {**make_bufts(model), buft.name: buft})[0]
