"""The sides of a comparison: backends of the scenario or known ones, and what a real ggml computes: the CPU of its
library, or a Vulkan device of this machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.device import Backend
from ggmltool.ggml.graph_copy import GraphCompute
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.ggml.sched.compute import backend_graph_compute
from ggmltool.scenario.devices.texts import read_devices
from ggmltool.scenario.errors import Mistake, did_you_mean
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec
from ggmltool.state.errors import InspectError, WrongUse

if TYPE_CHECKING:
    from ggmltool.oracle.mock import Answered
    from ggmltool.oracle.vulkan import Vulkan

LIBRARY = "library"
VULKAN = "vulkan"
OTHER = "CUDA0"
"""What the CPU is compared with where the scenario has nothing else."""


class RealSide(NamedTuple):
    """The backend that it stands for, what it is called, who computes, and the kernels for a backend."""

    spec: BackendSpec
    name: str
    engine: str
    kernels: Callable[[Backend], GraphCompute]


def real_side(model: ScenarioSpec, real: str | None) -> RealSide | None:
    """The side that a real ggml computes, by its name; None for none."""
    if real is None:
        return None
    return vulkan_side(model, backend(model, "Vulkan0")) if real == VULKAN else library_side(model, cpu(model))


def library_side(model: ScenarioSpec, cpu: BackendSpec) -> RealSide:
    """The CPU backend of the release's real library. Raises InspectError if it is missing."""
    from ggmltool.oracle import OracleUnavailable
    from ggmltool.oracle.kernels import library_kernels

    def kernels(backend: Backend) -> GraphCompute:
        try:
            return library_kernels(model.release, backend, backend_graph_compute)
        except OracleUnavailable as missing:
            raise InspectError(str(missing)) from None

    return RealSide(cpu, LIBRARY, f"ggml {model.ggml}", kernels)


def vulkan_side(model: ScenarioSpec, known: BackendSpec) -> RealSide:
    """The real Vulkan backend, as the scenario's first Vulkan device or as the `known` one. Raises InspectError if it
    is missing, or of another ggml than the scenario.
    """
    from ggmltool.oracle.kernels import vulkan_kernels

    device = real_vulkan(model)
    spec = next((b for b in model.backends if b.profile == known.profile), known)
    on = f"ggml {model.ggml} on {device.description}"
    return RealSide(
        with_hardware(spec, device), spec.name, on, lambda b: vulkan_kernels(device, b, backend_graph_compute)
    )


def real_vulkan(model: ScenarioSpec) -> Vulkan:
    """The real Vulkan backend for a scenario. Raises InspectError if it is missing, or of another ggml."""
    from ggmltool.oracle.vulkan import VulkanUnavailable, vulkan

    try:
        device = vulkan()
    except VulkanUnavailable as missing:
        raise InspectError(str(missing)) from None
    libraries = {name: release.library.version for name, release in RELEASES.items() if release.library is not None}
    if libraries.get(model.ggml) != device.version:
        like = next((name for name, version in libraries.items() if version == device.version), None)
        hint = f". Give it `--ggml {like}`" if like is not None else ""
        raise InspectError(f"The real Vulkan backend is of ggml {device.version}, not {model.ggml}{hint}")
    return device


class OnVulkan(NamedTuple):
    """A scenario whose Vulkan devices are on this machine's hardware, what that is called, and who answers for them in
    the real library.
    """

    model: ScenarioSpec
    device: str
    answered: Answered


def on_this_vulkan(model: ScenarioSpec) -> OnVulkan:
    """A scenario with this machine's Vulkan device in the place of its own.

    Raises InspectError if it has none, or as `real_vulkan`.
    """
    from ggmltool.oracle.vulkan import FAMILY, answered_by_vulkan

    if all(b.profile != FAMILY for b in model.backends):
        raise InspectError("the scenario has no Vulkan device; add Vulkan0 to its `backends`")
    device = real_vulkan(model)
    backends = [with_hardware(b, device) if b.profile == FAMILY else b for b in model.backends]
    return OnVulkan(replace(model, backends=backends), device.description, answered_by_vulkan)


def with_hardware(spec: BackendSpec, device: Vulkan) -> BackendSpec:
    """A Vulkan backend on the hardware of a device, where the scenario does not say otherwise."""
    from ggmltool.oracle.vulkan import hardware_of

    hardware = hardware_of(device)
    return replace(
        spec,
        alignment=spec.alignment or device.alignment,
        max_size=spec.max_size or device.max_size,
        features=hardware.features if spec.features is None else spec.features,
        max_tensor_size=spec.max_tensor_size or hardware.max_tensor_size,
    )


def two_backends(model: ScenarioSpec, text: str | None) -> tuple[BackendSpec, BackendSpec]:
    """The two that the option names, each of the scenario or known. Raises WrongUse."""
    if text is None:
        first = next((b.name for b in model.backends if b.profile != "CPU"), OTHER)
        text = f"{first},{cpu(model).name}"
    names = [part.strip() for part in text.split(",")]
    if len(names) != 2 or not all(names):
        raise WrongUse(f"--backends takes two, separated by a comma: {OTHER},CPU, not {text!r}.")
    first_spec, second_spec = (backend(model, name) for name in names)
    return first_spec, second_spec


def one_backend(model: ScenarioSpec, text: str | None) -> BackendSpec:
    """The one that computes where the other side is something else. Raises WrongUse."""
    if text is not None and "," in text:
        raise WrongUse(f"--backends takes one here, since the other side is not a backend: not {text!r}.")
    return cpu(model) if text is None else backend(model, text.strip())


def cpu(model: ScenarioSpec) -> BackendSpec:
    return next((b for b in model.backends if b.profile == "CPU"), None) or backend(model, "CPU")


def backend(model: ScenarioSpec, name: str) -> BackendSpec:
    own = {b.name: b for b in model.backends}
    if name in own:
        return own[name]
    try:
        spec = read_devices([name])[0]
    except Mistake as mistake:
        raise WrongUse(f"--backends: {mistake.message}.") from None
    if spec.profile == "custom":
        known = (*own, "CPU", "CUDA0", "Metal", "Vulkan0", "ROCm0", "SYCL0", "BLAS")
        hint = did_you_mean(name, known) or f"the scenario has {', '.join(own)}"
        raise WrongUse(f"--backends: no backend is called {name}; {hint}")
    return spec
