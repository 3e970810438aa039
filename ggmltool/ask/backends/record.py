"""Devices, backends and their buffer types, and the function tables behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from ggmltool.data import load
from ggmltool.estimate.rates import OWN, known_rates, rates_of_backend
from ggmltool.estimate.records import Rates
from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import Backend
from ggmltool.ggml.devices.profile import CAPS, Profile, alloc_rule
from ggmltool.ggml.devices.recorded import RECORDED
from ggmltool.ggml.op import EMPTY_OPS, KEY_NAMES
from ggmltool.ggml.releases.interfaces import Duty, FunctionTable, duties_of, tables_of
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.table import RELEASES, own_data
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.scenario.devices.rates import known_devices
from ggmltool.scenario.run.devices import Computing, computing, make_backends, make_bufts, registry_of
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec
from ggmltool.show.document import Document, ReleaseDocument, Row, part

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


class ProfileInfo(Row):
    """A kind of devices: what they are called, whose code they follow, and what is left out."""

    name: str
    type: str
    names: str
    ggml: str
    description: str
    leaves_out: str


class Profiles(ReleaseDocument, kw_only=True):
    """`backends --json` without a scenario: the kinds of devices that are known."""

    view = "profiles"
    kind: Literal["profiles"] = "profiles"
    profiles: tuple[ProfileInfo, ...]


class GpuInfo(Row):
    """A GPU of this machine: its number, its name, and its memory in bytes."""

    number: int
    name: str
    free: int
    total: int


class EngineInfo(Row):
    """Who computes for a backend: null where nothing can, and `refusal` says why."""

    name: str | None
    gpu: GpuInfo | None
    refusal: str | None


class DutyInfo(Row):
    """A function that a backend may implement: whether it needs to, what it does, and what ggml does without it."""

    need: str
    does: str
    if_null: str


class BackendInfo(Row, kw_only=True):
    """A backend: its device, what it can do (`caps`, as ggml_backend_dev_caps), the buffer types that it can use,
    `offload_min_batch` the batch from which it offloads ops; `graph_optimize`: whether it orders nodes its own way
    (null: it has no way of its own). `interface` are its function tables with null for NULL, `to_implement` what a
    device of one's own has to implement."""

    name: str
    profile: str
    description: str
    type: str
    memory: int | None
    engine: EngineInfo
    caps: dict[str, bool]
    buft: str
    supports_bufts: tuple[str, ...]
    offload_min_batch: int | None
    features: tuple[str, ...]
    graph_optimize: bool | None
    max_tensor_size: int | None
    leaves_out: str
    interface: dict[str, dict[str, str | None]] | None
    to_implement: dict[str, dict[str, DutyInfo]] | UnsetType = UNSET


class BuftInfo(Row):
    """A buffer type: its device, alignment and largest buffer in bytes, the rule of its sizes, what a tensor in it can
    be used for (null: all), and the backends that use it."""

    name: str
    device: str
    alignment: int
    max_size: int
    is_host: bool
    alloc_size: str
    ops: tuple[str, ...] | None
    used_by: tuple[str, ...]


class RegisteredInfo(Row):
    """An entry of the registry of January 2024; `slack` is how many bytes larger than asked for its buffers are."""

    number: int
    name: str
    init: str
    buft: str
    alignment: int
    slack: int


class BackendList(ReleaseDocument, kw_only=True):
    """`backends --json`: the backends of a scenario or of devices, and their buffer types."""

    kind: Literal["backends"] = "backends"
    backends: tuple[BackendInfo, ...]
    buffer_types: tuple[BuftInfo, ...]
    registry: tuple[RegisteredInfo, ...] | UnsetType = UNSET


class MadeBackends(BackendList, kw_only=True):
    """The same with what is shown beside it, by backend: its function tables and what hardware of its kind can have."""

    view = "backends"
    tables: dict[str, tuple[FunctionTable, ...]]
    known_features: dict[str, tuple[str, ...]]


class Interfaces(MadeBackends, kw_only=True):
    """The same, of which the function tables are shown, and what a backend of one's own has to implement."""

    view = "interfaces"
    duties: dict[str, tuple[Duty, ...]] | None


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


def made_backends(model: ScenarioSpec, interface: bool = False) -> MadeBackends:
    """The backends of a scenario, by priority, and their buffer types, with who computes for each; with `interface` to
    show their function tables."""
    bufts = make_bufts(model, all_known=True)
    made = make_backends(model, bufts)
    all_bufts = list(bufts.values())
    profiles = profiles_of(model.release)
    families = {b.name: profiles[spec.family] for spec, b in zip(model.backends, made, strict=True)}
    tables = {name: tables_of(family.name, family.ggml) for name, family in families.items()}
    duties = duties_of(model.ggml) if interface else None
    infos = [
        _backend(spec, profiles[spec.family], b, who, all_bufts, tables[b.name], duties)
        for spec, b, who in zip(model.backends, made, computing(model, made, all_bufts), strict=True)
    ]
    registry = registry_of(model)
    entries = () if registry is None else registry.entries
    found = MadeBackends(
        ggml=model.ggml,
        backends=tuple(infos),
        buffer_types=tuple(
            BuftInfo(
                t.name,
                t.device,
                t.alignment,
                t.max_size,
                t.host,
                alloc_rule(t),
                None if t.ops is None else tuple(KEY_NAMES[key].upper() for key in sorted(t.ops)),
                tuple(b.name for b in made if b.device.supports_buft(t)),
            )
            for t in all_bufts
        ),
        registry=tuple(
            RegisteredInfo(i, entry.name, entry.init_name, buft.name, buft.alignment, buft.slack)
            for i, entry in enumerate(entries)
            for buft in (entry.default_buffer_type,)
        )
        or UNSET,
        tables={name: known for name, known in tables.items() if known is not None},
        known_features={name: family.features for name, family in families.items()},
    )
    return part(found, Interfaces, duties=duties) if interface else found


def profile_info(p: Profile) -> ProfileInfo:
    """A kind of device that is known."""
    texts = _texts()[p.name]
    here = _otherwise(p.ggml).get(p.name, {})
    description, leaves_out = here.get("description", texts.description), here.get("leaves_out", texts.leaves_out)
    return ProfileInfo(p.name, p.type, texts.names, p.ggml, description, leaves_out)


def _backend(
    spec: BackendSpec,
    profile: Profile,
    backend: Backend,
    who: Computing,
    bufts: list[BufferType],
    tables: tuple[FunctionTable, ...] | None,
    duties: Mapping[str, Sequence[Duty]] | None,
) -> BackendInfo:
    device, gpu = backend.device, who.gpu
    engine = EngineInfo(None, None, who.refusal) if who.refusal else EngineInfo("numpy", None, None)
    if gpu is not None:
        engine = EngineInfo("cupy", GpuInfo(gpu.number, gpu.name, *gpu.get_memory()), None)
    info = profile_info(profile) if spec.answers is None else _recorded_info(spec, profile)
    has = profile.caps | ({"events"} if device.events else set())
    to_implement: dict[str, dict[str, DutyInfo]] | UnsetType = UNSET
    if tables is None and duties:
        to_implement = {
            kind: {d.field: DutyInfo(d.need, d.does, d.if_null) for d in table} for kind, table in duties.items()
        }
    largest = spec.max_tensor_size
    if largest is None and profile.max_tensor_size != SIZE_MAX:
        largest = profile.max_tensor_size
    return BackendInfo(
        name=backend.name,
        profile=info.name,
        description=info.description,
        type=device.type,
        memory=device.memory,
        engine=engine,
        caps={cap: cap in has for cap in CAPS if cap in profile.known_caps},
        buft=device.buft.name,
        supports_bufts=tuple(t.name for t in bufts if device.supports_buft(t)),
        offload_min_batch=device.offload_min_batch,
        features=tuple(f for f in profile.features if f in (profile.has if spec.features is None else spec.features)),
        graph_optimize=None if profile.graph_optimize is None else device.graph_optimize is not None,
        max_tensor_size=largest,
        leaves_out=info.leaves_out,
        interface=None if tables is None else {t.kind: {f.field: f.function for f in t.functions} for t in tables},
        to_implement=to_implement,
    )


def _recorded_info(spec: BackendSpec, profile: Profile) -> ProfileInfo:
    """A device that answers as it did in a process."""
    n = 0 if spec.answers is None else len(spec.answers.ops)
    rest = "the nearest answers" if spec.like is None else f"the rules of {spec.like}"
    told = f"a device that answers {n} questions as it did in a process, and all others by {rest}"
    return replace(profile_info(profile), name=RECORDED, description=told, leaves_out="")


def chunk_limits(model: ScenarioSpec) -> dict[str, int | None]:
    """The largest chunk of each buffer type of a scenario; None if there is no such limit."""
    bufts = make_bufts(model)
    return {name: None if buft.max_size >= SIZE_MAX // 2 else buft.max_size for name, buft in bufts.items()}


def device_facts(model: ScenarioSpec) -> list[DeviceFacts]:
    """The devices of a scenario as a file has them: what their rules say, and what no rule can."""
    from ggmltool.ggml.device import NO
    from ggmltool.ggml.devices.cases import OwnSupports
    from ggmltool.ggml.devices.written_rules import profile_rules
    from ggmltool.ggml.releases.parts import profiles_of
    from ggmltool.scenario.devices.supports import dump_supports
    from ggmltool.scenario.dump import device_map, op_names
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
            entry["supports"] = dump_supports(OwnSupports(frozenset(), True, tuple(rules), profile=True), op_names)
        info = profile_info(profile) if spec.answers is None else _recorded_info(spec, profile)
        told = (info.description, info.ggml, info.leaves_out, key, ops, op_names(others))
        facts.append(DeviceFacts(entry, *told))
    return facts


class LinkInfo(Row):
    """A way between a device and the host: bytes per second from pinned and from pageable memory, seconds to begin."""

    pinned: float
    pageable: float
    latency: float


class DeviceNumbers(Row):
    """`bandwidth` of the memory in bytes per second; the types have operations per second. Without a way to the device
    its memory is the host's. `sources`: where the numbers are from, that of `launch` (seconds of each node) and of
    the share that is `free` among them."""

    bandwidth: float
    f32: float
    f16: float
    bf16: float
    int8: float
    to_device: LinkInfo | None
    from_device: LinkInfo | None
    sources: dict[str, str]


class DeviceRates(Row):
    """A device, by its name and its backends: that of a scenario, or the families that run on a known device, the usual
    one first. `memory` and `free` are bytes, null where nothing is said of them; so are `rates`."""

    name: str
    backends: tuple[str, ...]
    memory: int | None
    free: int | None
    rates: DeviceNumbers | None


class DevicesRates(Document, kw_only=True):
    """`backends --rates --json` and `backends --measure --json`: how fast devices are at best."""

    view = "rates"
    kind: Literal["rates"] = "rates"
    devices: tuple[DeviceRates, ...]


class KnownRates(DevicesRates, kw_only=True):
    """Those of all known devices, whose sources are not shown."""

    view = "known_rates"


def rates_of_known() -> KnownRates:
    """Every known device, run by its usual backend."""
    devices = [
        DeviceRates(d.name, tuple(d.families), d.memory, d.free(d.families[0]), _numbers(known_rates(d)))
        for d in known_devices().values()
    ]
    return KnownRates(devices=tuple(devices))


def rates_of(model: ScenarioSpec) -> DevicesRates:
    """The backends of a scenario."""
    devices = []
    for spec in model.backends:
        rates = rates_of_backend(spec)
        name = rates.name if rates and rates.name != OWN else ""
        devices.append(DeviceRates(name or spec.name, (spec.name,), None, spec.memory, _numbers(rates)))
    return DevicesRates(devices=tuple(devices))


def _numbers(rates: Rates | None) -> DeviceNumbers | None:
    if rates is None:
        return None
    there, back = (None if way is None else LinkInfo(*way) for way in (rates.to_device, rates.from_device))
    return DeviceNumbers(rates.memory, rates.f32, rates.f16, rates.bf16, rates.int8, there, back, dict(rates.sources))


def measured_backends(progress: Callable[[str], None]) -> Sequence[BackendSpec]:
    """This machine's devices with the rates that were measured just now; `progress` is told which is."""
    from ggmltool.ggml.devices.profiles import profile_of_name
    from ggmltool.scenario.devices.rates import measure

    return [
        BackendSpec(m.backend, profile_of_name(m.backend), memory=m.memory or None, rates=m.rates)
        for m in measure(progress)
    ]
