"""Who computes for the backends of a scenario: numpy, or a GPU of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import Backend, Device
from ggmltool.ggml.devices.extra import PINNED
from ggmltool.ggml.errors import NotComputable
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec

if TYPE_CHECKING:
    from ggmltool.ggml.devices.gpu import Gpu


class Computing(NamedTuple):
    """Who would compute for a backend: a GPU of this machine, or numpy (None); or why it is refused."""

    gpu: Gpu | None
    refusal: str = ""


def take_gpus(model: ScenarioSpec, backends: Iterable[Backend], bufts: Iterable[BufferType]) -> None:
    """Let this machine's GPUs compute for the backends whose `engine` says so, each with its own memory.

    `auto` takes one for a CUDA device where cupy finds one. Raises NotComputable if `cupy` is asked for and there is
    none, or where the device is not one that a GPU can stand for.
    """
    every = list(bufts)
    taken = [(backend, _gpu_of(*asked)) for backend, asked in _asked(model, backends, every)]
    for backend, gpu in taken:
        if gpu is None:
            continue
        backend.device.gpu = gpu
        backend.queue = gpu.queue()
        for buft in every:
            if buft.device == backend.name:
                if buft.family == PINNED:
                    buft.pinned_by = gpu
                else:
                    buft.gpu = gpu


def computing(model: ScenarioSpec, backends: Iterable[Backend], bufts: Iterable[BufferType]) -> list[Computing]:
    """Who would compute for each backend, as `take_gpus` decides it."""
    out = []
    for _, asked in _asked(model, backends, list(bufts)):
        try:
            out.append(Computing(_gpu_of(*asked)))
        except NotComputable as error:
            out.append(Computing(None, error.message))
    return out


class _Asked(NamedTuple):
    """What decides about a device: the scenario's ggml, its words for it, the others, and all memory there is."""

    model: ScenarioSpec
    spec: BackendSpec
    device: Device
    others: list[Device]
    bufts: Sequence[BufferType]


def _asked(
    model: ScenarioSpec, backends: Iterable[Backend], bufts: Sequence[BufferType]
) -> list[tuple[Backend, _Asked]]:
    specs = {spec.name: spec for spec in model.backends}
    every = list(backends)
    devices = [backend.device for backend in every]
    return [
        (b, _Asked(model, specs[b.name], b.device, [d for d in devices if d is not b.device], bufts)) for b in every
    ]


def _gpu_of(
    model: ScenarioSpec, spec: BackendSpec, device: Device, others: Sequence[Device], bufts: Sequence[BufferType]
) -> Gpu | None:
    """The GPU of this machine that computes for a device; None where numpy does."""
    if spec.engine == "numpy" or (spec.engine == "auto" and spec.profile != "CUDA"):
        return None
    refusal, remedy = _no_gpu(model, spec, device, others, bufts), ""
    if not refusal:
        from ggmltool.ggml.devices.gpus import find

        found = find()
        if found.gpus:
            return found.gpus[_number(spec.name) % len(found.gpus)]
        refusal, remedy = found.why, f"{found.remedy}; "
    if spec.engine == "auto":
        return None
    raise NotComputable(
        "ggml_backend_dev_init",
        f"{spec.name} has the engine cupy: {refusal}",
        explanation=f"{remedy}with `engine: numpy` or `auto` it is computed by numpy; planning is the same",
    )


def _no_gpu(
    model: ScenarioSpec, spec: BackendSpec, device: Device, others: Sequence[Device], bufts: Sequence[BufferType]
) -> str:
    """Why no GPU can stand for the device; empty if one can."""
    if not model.release.takes_gpus:
        return f"ggml {model.ggml} is computed by numpy only"
    if device.type == "cpu":
        return "it is a CPU, and cupy computes on NVIDIA's GPUs"
    foreign = [b.name for b in bufts if device.supports_buft(b) and (b.host or b.device != spec.name)]
    if foreign:
        return f"it uses memory of other devices ({', '.join(foreign)}), but a GPU computes only in its own"
    own = [b for b in bufts if b.device == spec.name and b.family != PINNED]
    users = [d.name for d in others if any(d.supports_buft(b) for b in own)]
    if users:
        return f"other devices ({', '.join(users)}) use its memory, but a GPU's is its own"
    return ""


def _number(name: str) -> int:
    """The number at the end of a device's name, 0 without one."""
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits) if digits else 0
