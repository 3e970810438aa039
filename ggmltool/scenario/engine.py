"""The devices, backends and buffer types of a scenario as the engine's."""

from __future__ import annotations

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import Backend
from ggmltool.ggml.devices.profiles import PROFILES, make_buft, make_device
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.scenario.model import BackendSpec, BufferTypeSpec, Model


def make_bufts(model: Model) -> dict[str, BufferType]:
    """Every buffer type of the scenario by name: those of its backends, then the further ones."""
    bufts: dict[str, BufferType] = {}
    for spec in model.backends:
        profile = PROFILES[spec.profile]
        name = spec.buft or profile.buft or spec.name
        if name == spec.name:
            bufts[name] = make_buft(
                profile, name, spec.name, spec.alignment, spec.max_size, spec.row_padding, spec.host
            )
    if "CPU" not in bufts:
        bufts["CPU"] = make_buft(PROFILES["CPU"], "CPU", "CPU")
    for further in model.buffer_types:
        bufts[further.name] = _further_buft(further)
    return bufts


def _further_buft(spec: BufferTypeSpec) -> BufferType:
    return BufferType(
        spec.name,
        spec.device,
        spec.alignment,
        SIZE_MAX if spec.max_size is None else spec.max_size,
        spec.row_padding,
        spec.host,
        spec.ops,
    )


def make_backends(model: Model, bufts: dict[str, BufferType]) -> list[Backend]:
    """The scenario's backends as the engine's, in priority order."""
    return [_backend(spec, bufts) for spec in model.backends]


def _backend(spec: BackendSpec, bufts: dict[str, BufferType]) -> Backend:
    profile = PROFILES[spec.profile]
    own = [b for b in bufts.values() if b.device == spec.name]
    listed = [bufts[name] for name in spec.supports_bufts or ()]
    device = make_device(
        profile,
        spec.name,
        bufts[spec.buft or profile.buft or spec.name],
        [*own, *listed],
        type=spec.type,
        supports=(spec.supports.keys, spec.supports.exclude) if spec.supports is not None else None,
        offload_min_batch=spec.offload_min_batch,
        never_offloads=spec.never_offloads,
        events=spec.events,
        memory=spec.memory,
    )
    return Backend(spec.name, device)
