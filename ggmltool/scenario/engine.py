"""The devices, backends and buffer types of a scenario as the engine's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import Backend
from ggmltool.ggml.devices.extra import PINNED
from ggmltool.ggml.devices.profile import Profile, extra_names, make_buft, make_device, make_extra_buft
from ggmltool.ggml.devices.recorded import RECORDED, SIZES_SAID, RecordedDevice, recorded_sizes
from ggmltool.ggml.op_rules import OpRules
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.scenario.spec import BackendSpec, BufferTypeSpec, ScenarioSpec


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
            bufts[name] = make_buft(
                profile, name, spec.name, spec.alignment, spec.max_size, spec.row_padding, spec.host, spec.features
            )
            bufts[name].largest = _largest_buffer(spec, profiles)
    pinned = {name for spec in model.backends for name in _pinned_names(spec, profiles)}
    for further in model.buffer_types:
        bufts[further.name] = _further_buft(further)
        if further.name in pinned:
            bufts[further.name].largest = SIZE_MAX
    if "CPU" not in bufts:
        bufts["CPU"] = make_buft(profiles["CPU"], "CPU", "CPU")
    # Where two backends have the CPU's profile, its further types belong to the last one, the CPU itself.
    known = dict(_known_bufts(model, None if all_known else _named_bufts(model)))
    for name, buft in known.items():
        bufts.setdefault(name, buft).slack = buft.slack
    _record_sizes(model, bufts)
    for buft in bufts.values():
        buft.expanding_ops = model.release.rules.expanding_ops
    return bufts


def _record_sizes(model: ScenarioSpec, bufts: dict[str, BufferType]) -> None:
    """The buffer types with the sizes that devices answered in a process."""
    for spec in model.backends:
        if spec.answers is not None:
            for name, sizes in spec.answers.sizes.items():
                bufts[name].alloc_size = recorded_sizes(sizes, bufts[name])
                bufts[name].plain = False
                bufts[name].alloc_more = ", or ".join(filter(None, (bufts[name].alloc_more, SIZES_SAID)))


def _named_bufts(model: ScenarioSpec) -> frozenset[str]:
    """The buffer types that the scenario names somewhere."""
    names = {context.buft for context in model.contexts} | {spec.buft for spec in model.backends}
    names.update(name for spec in model.backends for name in spec.supports_bufts or ())
    names.update(name for spec in model.backends if spec.answers is not None for name in spec.answers.sizes)
    return frozenset(name for name in names if name is not None)


def _known_bufts(model: ScenarioSpec, wanted: frozenset[str] | None) -> Iterable[tuple[str, BufferType]]:
    """The buffer types that devices of these profiles have besides their own (None: all of them)."""
    profiles = profiles_of(model.release)
    for spec in model.backends:
        profile = profiles[spec.family]
        if profile.extra:
            for name, extra in extra_names(profile, spec.name).items():
                if wanted is None or name in wanted:
                    buft = make_extra_buft(
                        profile, extra, name, spec.name, spec.features, spec.alignment, spec.max_size
                    )
                    if extra.family == PINNED:
                        buft.largest = SIZE_MAX
                    elif extra.max_size is None:
                        buft.largest = _largest_buffer(spec, profiles)
                    yield name, buft


def _like(spec: BackendSpec, profiles: Mapping[str, Profile]) -> Profile:
    """The profile of the real device."""
    return profiles[spec.like or spec.family]


def _pinned_names(spec: BackendSpec, profiles: Mapping[str, Profile]) -> list[str]:
    """The host memory that a device pins. Where it cannot pin so much, ggml takes memory that is not pinned."""
    return [name for name, extra in extra_names(_like(spec, profiles), spec.name).items() if extra.family == PINNED]


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


def _largest_tensor(spec: BackendSpec, profile: Profile) -> int | None:
    """The largest tensor of an op, where the scenario says it: no larger than the largest buffer."""
    told = _own_limit(spec, profile)
    if spec.max_tensor_size is not None or told is None or profile.max_tensor_size == SIZE_MAX:
        return spec.max_tensor_size
    return min(told, profile.max_tensor_size)


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


def make_backends(model: ScenarioSpec, bufts: dict[str, BufferType]) -> list[Backend]:
    """The scenario's backends as the engine's, in priority order."""
    profiles = profiles_of(model.release)
    return [_backend(spec, profiles[spec.family], bufts, model.release.ops) for spec in model.backends]


def _backend(spec: BackendSpec, profile: Profile, bufts: dict[str, BufferType], ops: OpRules) -> Backend:
    answers = spec.answers if spec.supports is None else None
    said = spec.profile == RECORDED and spec.supports_bufts is not None
    own = [b for b in bufts.values() if b.device == spec.name and b.family != PINNED and not said]
    listed = [bufts[name] for name in spec.supports_bufts or ()]
    device = make_device(
        profile,
        spec.name,
        bufts[spec.buft or profile.buft or spec.name],
        [*own, *listed],
        type=spec.type,
        supports=spec.supports,
        any_host=False if said else None,
        offload_min_batch=spec.offload_min_batch,
        never_offloads=spec.never_offloads,
        events=spec.events,
        memory=spec.memory,
        features=spec.features,
        max_tensor_size=_largest_tensor(spec, profile),
        graph_optimize=spec.graph_optimize is not False,
        copies_async=spec.copies_async,
        sets_async=spec.sets_async,
        op_rules=ops,
    )
    if answers is not None:
        device = RecordedDevice(device, answers, spec.like, spec.graph_optimize is not False)
    return Backend(spec.name, device)
