"""The devices, backends and buffer types of a scenario as the engine's."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import Backend, Device
from ggmltool.ggml.devices.profile import PINNED, Profile, extra_names, make_buft, make_device, make_extra_buft
from ggmltool.ggml.devices.recorded import RECORDED, SIZES_SAID, RecordedDevice, recorded_sizes
from ggmltool.ggml.errors import NotComputable
from ggmltool.ggml.op import OpRules
from ggmltool.ggml.releases import parts
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec

if TYPE_CHECKING:
    from ggmltool.ggml.devices.gpu import Gpu
    from ggmltool.ggml.releases.parts import Registry


def make_bufts(model: ScenarioSpec, all_known: bool = False) -> dict[str, BufferType]:
    """Every buffer type of the scenario by name: those of its backends, then the further ones.

    Of the types that its devices are known to have besides, those that the scenario names, or `all_known`.
    """
    bufts: dict[str, BufferType] = {}
    profiles = profiles_of(model.release)
    for spec in model.backends:
        profile = profiles[spec.family]
        name = spec.buft or profile.buft or spec.name
        if name == spec.name:
            bufts[name] = make_buft(_said(spec, profile), name, spec.name)
            bufts[name].largest = _largest_buffer(spec, profiles)
    # Where a device cannot pin so much host memory, ggml takes memory that is not pinned.
    extras = [extra for b in model.backends for extra in extra_names(_like(b, profiles), b.name).items()]
    pinned = {name for name, extra in extras if extra.family == PINNED}
    for b in model.buffer_types:
        max_size = SIZE_MAX if b.max_size is None else b.max_size
        bufts[b.name] = BufferType(b.name, b.device, b.alignment, max_size, b.row_padding, b.host, b.ops)
        if b.name in pinned:
            bufts[b.name].largest = SIZE_MAX
    if "CPU" not in bufts:
        bufts["CPU"] = make_buft(profiles["CPU"], "CPU", "CPU")
    # Where two backends have the CPU's profile, its further types belong to the last one, the CPU itself.
    named = {context.buft for context in model.contexts} | {spec.buft for spec in model.backends}
    for spec in model.backends:
        named.update(spec.supports_bufts or ())
        named.update(spec.answers.sizes if spec.answers is not None else ())
    known = dict(_known_bufts(model, None if all_known else named))
    for name, buft in known.items():
        bufts.setdefault(name, buft).slack = buft.slack
    for spec in model.backends:
        for name, sizes in spec.answers.sizes.items() if spec.answers is not None else ():
            bufts[name].alloc_size = recorded_sizes(sizes, bufts[name])
            bufts[name].plain = False
            bufts[name].alloc_more = ", or ".join(filter(None, (bufts[name].alloc_more, SIZES_SAID)))
    for buft in bufts.values():
        buft.expanding_ops = model.release.rules.expanding_ops
    return bufts


def _known_bufts(model: ScenarioSpec, wanted: Container[str | None] | None) -> Iterable[tuple[str, BufferType]]:
    """The buffer types that devices of these profiles have besides their own (None: all of them)."""
    profiles = profiles_of(model.release)
    for spec in model.backends:
        profile = profiles[spec.family]
        for name, extra in extra_names(profile, spec.name).items():
            if wanted is None or name in wanted:
                buft = make_extra_buft(_said(spec, profile), extra, name, spec.name)
                if extra.family == PINNED:
                    buft.largest = SIZE_MAX
                elif extra.max_size is None:
                    buft.largest = _largest_buffer(spec, profiles)
                yield name, buft


def _said(spec: BackendSpec, profile: Profile) -> Profile:
    """A device's profile, with what the scenario says of its memory and its hardware."""
    return profile.but(
        alignment=spec.alignment,
        max_size=spec.max_size,
        row_padding=spec.row_padding,
        host=spec.host,
        has=spec.features,
    )


def _like(spec: BackendSpec, profiles: Mapping[str, Profile]) -> Profile:
    """The profile of the real device."""
    return profiles[spec.like or spec.family]


def _own_limit(spec: BackendSpec, profile: Profile) -> int | None:
    """The largest buffer, where the scenario says it.

    Of Vulkan, get_max_size is no limit but the size of blocks, of which a program's device has told.
    """
    told = spec.max_size
    of_blocks = spec.profile == RECORDED and told is not None and told >= profile.max_size
    return None if of_blocks and profile.max_tensor_size != SIZE_MAX else told


def _largest_buffer(spec: BackendSpec, profiles: Mapping[str, Profile]) -> int:
    """The largest buffer that a device can make: Vulkan's blocks are larger for larger tensors."""
    profile = _like(spec, profiles)
    told = _own_limit(spec, profile)
    if told is not None:
        return told
    if profile.max_tensor_size == SIZE_MAX:
        return profile.max_size
    return max(profile.max_size, profile.max_tensor_size if spec.max_tensor_size is None else spec.max_tensor_size)


def make_backends(model: ScenarioSpec, bufts: dict[str, BufferType]) -> list[Backend]:
    """The scenario's backends as the engine's, in priority order."""
    profiles = profiles_of(model.release)
    return [_backend(spec, profiles[spec.family], bufts, model.release.ops) for spec in model.backends]


def _backend(spec: BackendSpec, profile: Profile, bufts: dict[str, BufferType], ops: OpRules) -> Backend:
    answers = spec.answers if spec.supports is None else None
    said = spec.profile == RECORDED and spec.supports_bufts is not None
    own = [b for b in bufts.values() if b.device == spec.name and b.family != PINNED and not said]
    listed = [bufts[name] for name in spec.supports_bufts or ()]
    # The largest tensor of an op, where the scenario says it: no larger than the largest buffer.
    limit, largest_tensor = _own_limit(spec, profile), spec.max_tensor_size
    if largest_tensor is None and limit is not None and profile.max_tensor_size != SIZE_MAX:
        largest_tensor = min(limit, profile.max_tensor_size)
    buft = bufts[spec.buft or profile.buft or spec.name]
    profile = profile.but(
        type=spec.type,
        any_host=False if said else None,
        offload_min_batch=spec.offload_min_batch,
        events=spec.events,
        has=spec.features,
        max_tensor_size=largest_tensor,
        copies_async=spec.copies_async,
        sets_async=spec.sets_async,
    )
    if spec.never_offloads:
        profile = replace(profile, offload_min_batch=None)
    if spec.graph_optimize is False:
        profile = replace(profile, graph_optimize=None)
    more = [*own, *listed]
    device = make_device(profile, spec.name, buft, more, supports=spec.supports, memory=spec.memory, op_rules=ops)
    if answers is not None:
        device = RecordedDevice(device, answers, spec.like, spec.graph_optimize is not False)
    return Backend(spec.name, device)


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
    devices = list(backends)
    for backend, gpu in [(backend, _gpu_of(model, backend.device, devices, every)) for backend in devices]:
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
    every, devices = list(bufts), list(backends)
    for backend in devices:
        try:
            out.append(Computing(_gpu_of(model, backend.device, devices, every)))
        except NotComputable as error:
            out.append(Computing(None, error.message))
    return out


def _gpu_of(model: ScenarioSpec, device: Device, every: Sequence[Backend], bufts: Sequence[BufferType]) -> Gpu | None:
    """The GPU of this machine that computes for a device; None where numpy does."""
    spec = next(spec for spec in model.backends if spec.name == device.name)
    if spec.engine == "numpy" or (spec.engine == "auto" and spec.profile != "CUDA"):
        return None
    refusal, remedy = _no_gpu(model, device, every, bufts), ""
    if not refusal:
        from ggmltool.ggml.devices.gpu import find

        found = find()
        if found.gpus:
            digits = spec.name[len(spec.name.rstrip("0123456789")) :]
            return found.gpus[int(digits or 0) % len(found.gpus)]
        refusal, remedy = found.why, f"{found.remedy}; "
    if spec.engine == "auto":
        return None
    raise NotComputable(
        "ggml_backend_dev_init",
        f"{spec.name} has the engine cupy: {refusal}",
        explanation=f"{remedy}with `engine: numpy` or `auto` it is computed by numpy; planning is the same",
    )


def _no_gpu(model: ScenarioSpec, device: Device, every: Sequence[Backend], bufts: Sequence[BufferType]) -> str:
    """Why no GPU can stand for the device; empty if one can."""
    if not model.release.takes_gpus:
        return f"ggml {model.ggml} is computed by numpy only"
    if device.type == "cpu":
        return "it is a CPU, and cupy computes on NVIDIA's GPUs"
    foreign = [b.name for b in bufts if device.supports_buft(b) and (b.host or b.device != device.name)]
    if foreign:
        return f"it uses memory of other devices ({', '.join(foreign)}), but a GPU computes only in its own"
    own = [b for b in bufts if b.device == device.name and b.family != PINNED]
    others = [b.device for b in every if b.device is not device]
    users = [d.name for d in others if any(d.supports_buft(b) for b in own)]
    if users:
        return f"other devices ({', '.join(users)}) use its memory, but a GPU's is its own"
    return ""


_INIT = {
    "CPU": "ggml_backend_reg_cpu_init",
    "CUDA": "ggml_backend_reg_cuda_init",
    "ROCm": "ggml_backend_reg_cuda_init",
    "Metal": "ggml_backend_reg_metal_init",
}
"""The functions that make backends, by profile, in the order of ggml_backend_registry_init."""


def registry_of(model: ScenarioSpec) -> Registry | None:
    """The CPU first, the devices of CUDA, then Metal, and what the scenario describes itself behind them.

    None where programs make no backends by a registry. Raises LineAssert if there are more than 16.
    """
    registry = parts.registry_of(model.release)
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
