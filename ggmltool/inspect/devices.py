"""Devices, backends and their buffer types, and the function tables behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from ggmltool.data import load
from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import Backend
from ggmltool.ggml.devices.profile import Profile
from ggmltool.ggml.devices.profiles import CAPS, alloc_rule
from ggmltool.ggml.devices.recorded import RECORDED
from ggmltool.ggml.op import EMPTY_OPS, KEY_NAMES
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.inspect.interfaces import Table, tables_of
from ggmltool.inspect.own_data import own_data
from ggmltool.scenario.run.devices import Computing, computing, make_backends, make_bufts, registry_of
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec

PLAIN = "ggml_nbytes"
"""The rule of buffer types in which a tensor takes its own bytes and no more."""


class _Texts(Struct, forbid_unknown_fields=True):
    """What is said of a kind of device."""

    names: str
    description: str
    leaves_out: str = ""


@cache
def _texts() -> dict[str, _Texts]:
    return load("devices.toml", dict[str, _Texts])


@cache
def _otherwise(release: str) -> dict[str, dict[Literal["description", "leaves_out"], str]]:
    """What is said of devices of a release in other words, by the profile's name."""
    of = dict[str, dict[Literal["description", "leaves_out"], str]]
    like = RELEASES[release].like
    before = {} if like is None else _otherwise(like.name)
    return before | (own_data(RELEASES[release], "devices.toml", of) or {})


class ProfileInfo(NamedTuple):
    """A kind of device that is known: what its backends are called, what it is, and what of it is not modelled."""

    name: str
    type: str
    names: str
    ggml: str
    description: str
    leaves_out: str


class EngineInfo(NamedTuple):
    """Who computes: numpy, or cupy on a GPU of this machine, with its number, name and bytes of memory.

    `refusal` is why nobody does, where the scenario asks for what there is not.
    """

    name: str = "numpy"
    gpu: int | None = None
    gpu_name: str = ""
    free: int = 0
    total: int = 0
    refusal: str = ""


NUMPY = EngineInfo()


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """A backend with its device. `memory` is bytes (None: unknown), `caps` ggml_backend_dev_caps, `bufts` the types it
    can use, `offload_min_batch` the batch from which it offloads ops (None: never), `tables` None for a device that is
    none of ggml's. `features` are what its hardware has, of `known_features`; `graph_optimize` whether it orders nodes
    its own way (None: it has no way of its own); `max_tensor_size` the largest tensor it takes (None: any).
    """

    name: str
    profile: ProfileInfo
    type: str
    memory: int | None
    caps: dict[str, bool]
    buft: str
    bufts: tuple[str, ...]
    offload_min_batch: int | None
    tables: tuple[Table, ...] | None
    features: tuple[str, ...] = ()
    known_features: tuple[str, ...] = ()
    graph_optimize: bool | None = None
    max_tensor_size: int | None = None
    engine: EngineInfo = NUMPY


class BuftInfo(NamedTuple):
    """A buffer type: sizes in bytes, the rule for a tensor's bytes in words, the ops it is limited to (None: none)."""

    name: str
    device: str
    alignment: int
    max_size: int
    is_host: bool
    alloc_size: str
    ops: tuple[str, ...] | None
    used_by: tuple[str, ...]


class RegisteredInfo(NamedTuple):
    """An entry. `slack` is how many bytes larger than asked for its buffers are."""

    number: int
    name: str
    init: str
    buft: str
    alignment: int
    slack: int


class DeviceFacts(NamedTuple):
    """A device for a file: its map, what it is, what is left out of it, and its ops.

    `ops` are those it runs, under one condition or another, or lacks: `key` is "only" or "except". `unwritten` are ops
    whose rules the entry does not have.
    """

    entry: Mapping[str, Any]
    description: str
    ggml: str
    leaves_out: str
    key: str
    ops: Sequence[str]
    unwritten: Sequence[str] = ()


def made_backends(model: ScenarioSpec) -> tuple[list[BackendInfo], list[BuftInfo]]:
    """The backends of a scenario and their buffer types, with who computes for each."""
    bufts = make_bufts(model, all_known=True)
    made = make_backends(model, bufts)
    all_bufts = list(bufts.values())
    profiles = profiles_of(model.release)
    computes = zip(model.backends, made, computing(model, made, all_bufts), strict=True)
    infos = [_backend(spec, profiles[spec.family], b, _engine(who), all_bufts) for spec, b, who in computes]
    return infos, [_buft(t, made) for t in all_bufts]


def registered(model: ScenarioSpec) -> list[RegisteredInfo]:
    """The registry of a ggml whose programs make backends by one."""
    registry = registry_of(model)
    if registry is None:
        return []
    out = []
    for i, entry in enumerate(registry.entries):
        buft = entry.default_buffer_type
        out.append(RegisteredInfo(i, entry.name, entry.init_name, buft.name, buft.alignment, buft.slack))
    return out


def profile_info(p: Profile) -> ProfileInfo:
    """A kind of device that is known."""
    texts = _texts()[p.name]
    here = _otherwise(p.ggml).get(p.name, {})
    description, leaves_out = here.get("description", texts.description), here.get("leaves_out", texts.leaves_out)
    return ProfileInfo(p.name, p.type, texts.names, p.ggml, description, leaves_out)


def _engine(who: Computing) -> EngineInfo:
    gpu = who.gpu
    if gpu is None:
        return EngineInfo(refusal=who.refusal)
    return EngineInfo("cupy", gpu.number, gpu.name, *gpu.get_memory())


def _backend(
    spec: BackendSpec, profile: Profile, backend: Backend, engine: EngineInfo, bufts: list[BufferType]
) -> BackendInfo:

    device = backend.device
    has = profile.caps | ({"events"} if device.events else set())
    return BackendInfo(
        backend.name,
        profile_info(profile) if spec.answers is None else _recorded_info(spec, profile),
        device.type,
        device.memory,
        {cap: cap in has for cap in CAPS if cap in profile.known_caps},
        device.buft.name,
        tuple(t.name for t in bufts if device.supports_buft(t)),
        device.offload_min_batch,
        tables_of(profile.name, profile.ggml),
        tuple(f for f in profile.features if f in (profile.has if spec.features is None else spec.features)),
        profile.features,
        None if profile.graph_optimize is None else device.graph_optimize is not None,
        _max_tensor_size(spec, profile),
        engine,
    )


def _recorded_info(spec: BackendSpec, profile: Profile) -> ProfileInfo:
    """A device that answers as it did in a process."""
    n = 0 if spec.answers is None else len(spec.answers.ops)
    rest = "the nearest answers" if spec.like is None else f"the rules of {spec.like}"
    told = f"a device that answers {n} questions as it did in a process, and all others by {rest}"
    return profile_info(profile)._replace(name=RECORDED, description=told, leaves_out="")


def _max_tensor_size(spec: BackendSpec, profile: Profile) -> int | None:

    if spec.max_tensor_size is not None or profile.max_tensor_size == SIZE_MAX:
        return spec.max_tensor_size
    return profile.max_tensor_size


def _buft(t: BufferType, backends: list[Backend]) -> BuftInfo:

    ops = None if t.ops is None else tuple(KEY_NAMES[key].upper() for key in sorted(t.ops))
    users = tuple(b.name for b in backends if b.device.supports_buft(t))
    return BuftInfo(t.name, t.device, t.alignment, t.max_size, t.host, alloc_rule(t), ops, users)


def chunk_limits(model: ScenarioSpec) -> dict[str, int | None]:
    """The largest chunk of each buffer type of a scenario; None if there is no such limit."""
    bufts = make_bufts(model)
    return {name: None if buft.max_size >= SIZE_MAX // 2 else buft.max_size for name, buft in bufts.items()}


def device_facts(model: ScenarioSpec) -> list[DeviceFacts]:
    """The devices of a scenario as a file has them: what their rules say, and what no rule can."""
    from ggmltool.ggml.device import NO
    from ggmltool.ggml.devices.conditions import Supports
    from ggmltool.ggml.devices.written_rules import profile_rules
    from ggmltool.ggml.releases.parts import profiles_of
    from ggmltool.scenario.devices.files import device_map
    from ggmltool.scenario.devices.supports import dump_supports
    from ggmltool.scenario.dump import op_names
    from ggmltool.scenario.run.devices import make_backends, make_bufts

    facts = []
    profiles = profiles_of(model.release)
    for spec, backend in zip(model.backends, make_backends(model, make_bufts(model)), strict=True):
        profile, table = profiles[spec.family], backend.device.table
        lacks = {key for key, answer in enumerate(table) if answer == NO}
        never, runs = op_names(lacks), op_names(set(range(len(table))) - lacks - set(EMPTY_OPS))
        key, ops = ("except", never) if len(never) <= len(runs) else ("only", runs)
        entry = device_map(spec, profile)
        rules, others = (
            ([], []) if spec.supports is not None or spec.answers is not None else profile_rules(profile.rules, table)
        )
        if rules:
            entry["supports"] = dump_supports(Supports(frozenset(), True, tuple(rules), profile=True), op_names)
        info = profile_info(profile) if spec.answers is None else _recorded_info(spec, profile)
        told = (info.description, info.ggml, info.leaves_out, key, ops, op_names(others))
        facts.append(DeviceFacts(entry, *told))
    return facts
