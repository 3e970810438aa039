"""The backends, buffer types and scheduler options of a scenario."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from ggmltool.ggml.devices.recorded import RECORDED
from ggmltool.ggml.sched.callbacks import COPY_CALLBACKS
from ggmltool.scenario.devices.rates import RatesKeys, read_rates
from ggmltool.scenario.devices.recorded import AnswersKeys, read_answers
from ggmltool.scenario.devices.supports import OpList, SupportsKeys, op_keys, read_supports
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted
from ggmltool.scenario.kinds import (
    AT_LEAST_ONE,
    Bool,
    Count,
    Id,
    Keys,
    Size,
    any_case,
    defined,
    key_names,
    read_keys,
    said,
)
from ggmltool.scenario.past import PastKeys, read_past
from ggmltool.scenario.samples import FILES
from ggmltool.scenario.spec import BackendSpec, BufferTypeSpec, DeviceType, SchedulerSpec
from ggmltool.scenario.values import as_id, as_int, as_list, as_map, as_size, as_text, as_word, at, check_keys, kind_of

if TYPE_CHECKING:
    from ggmltool.ggml.devices.profile import Profile

MAX_GRAPH_SIZE = 1 << 28
"""Nodes a scheduler can be made for, at most; ggml reserves some hundred bytes for each."""


def profile_names() -> Iterable[str]:
    """The profiles the engine knows."""
    from ggmltool.ggml.devices.profiles import PROFILES

    return PROFILES


def read_backends(value: object, folder: Path | None = None) -> list[BackendSpec]:
    """The list `backends`, by default the CPU alone; files it names lie in `folder`. Raises Mistake."""
    if value is None:
        value = ["CPU"]
    out: list[BackendSpec] = []
    names: set[str] = set()
    for i, item in enumerate(as_list(value, "backends")):
        try:
            spec = _read_backend(item, folder)
            if spec.name in names:
                raise Mistake(f"two backends are called {quoted(spec.name)}")
        except Mistake as mistake:
            raise mistake.below(i) from None
        names.add(spec.name)
        out.append(spec)
    if not out:
        raise Mistake("there must be a backend", "for example [CPU]")
    return out


def _read_backend(value: object, folder: Path | None = None, by_file: bool = True) -> BackendSpec:
    from ggmltool.ggml.devices.profiles import profile_of_name

    if isinstance(value, str):
        name = as_id(value, "a backend's name")
        return BackendSpec(name, profile_of_name(name))
    if not isinstance(value, dict):
        raise Mistake(f"a backend must be a name or a map, not {kind_of(value)}")
    given = as_map(value, "a backend")
    check_keys(given, key_names(BackendKeys), "a backend")
    if by_file and given.get("profile").__class__ is str:
        from ggmltool.scenario.devices.files import is_device_file, profile_file

        if is_device_file(given["profile"]):
            file = at("profile", profile_file, given["profile"], folder, lambda v: read_device(v, folder))
            given = {**file, **{key: value for key, value in given.items() if key != "profile"}}
    if given.get("name") is None:
        raise Mistake("a backend needs a name", "{name: ..., ...}")
    name = at("name", as_id, given["name"], "name")
    written = given.get("profile")
    profile = profile_of_name(name) if written is None else at("profile", _profile, written, "profile")
    family = _family(given, profile)
    given = given if given.get("rates") is None else at("rates", _with_device, given, family)
    batch = given.get("offload_min_batch", 0)
    said = read_keys(
        {**given, "profile": profile},
        BackendKeys,
        supports=lambda v: read_supports(v, name, folder),
        features=lambda v: _features(v, family),
        max_tensor_size=lambda v: _max_tensor_size(v, family),
        rates=read_rates,
    )
    return BackendSpec(**said, never_offloads=batch is None or batch == "never")


def _family(given: Mapping[str, Any], profile: str) -> str:
    """The profile whose rules a backend has. Raises where keys of recorded devices stand at another."""
    if profile == RECORDED:
        like = given.get("like")
        return "custom" if like is None else at("like", as_word, like, "like", profile_names())
    for key in ("like", "answers"):
        if given.get(key) is not None:
            raise Mistake(f"{key} is for devices with the profile {RECORDED}", f"profile: {RECORDED}", key, on_key=True)
    return profile


def _with_device(given: dict[str, Any], profile: str) -> dict[str, Any]:
    """The map with what is known of the device that it runs on: the memory that is free, and what the hardware has."""
    from ggmltool.scenario.devices.known import known

    rates = given["rates"]
    if not isinstance(rates, str):
        return given
    device = known(rates)
    if profile not in device.families:
        raise Mistake(f"{device.name} runs {' or '.join(device.families)}, not {profile}")
    more: dict[str, Any] = {"memory": device.free(profile)}
    if device.features is not None and profile == device.families[0]:
        more["features"] = list(device.features)
    return {**given, **{key: value for key, value in more.items() if given.get(key) is None}}


def read_device(value: object, folder: Path | None = None) -> BackendSpec:
    """A backend as a device file has it, whose profile is a name."""
    return _read_backend(value, folder, False)


def _features(value: object, profile: str) -> frozenset[str]:
    """What the hardware has: a list of the profile's words, or text with `+` between them, which may be empty."""
    from ggmltool.ggml.releases.parts import profiles_of
    from ggmltool.ggml.releases.table import RELEASES

    # A release may know more of them than others, and which one plans is not known here.
    of = [profiles_of(release).get(profile) for release in RELEASES.values()]
    known = tuple(dict.fromkeys(feature for one in of if one is not None for feature in one.features))
    if not known:
        raise Mistake(f"the profile {profile} has no features")
    items = [word for word in value.split("+") if word] if isinstance(value, str) else as_list(value, "features")
    out: set[str] = set()
    for i, item in enumerate(items):
        try:
            out.add(as_word(item, "a feature", known))
        except Mistake as mistake:
            raise (mistake if isinstance(value, str) else mistake.below(i)) from None
    return frozenset(out)


def _max_tensor_size(value: object, profile: str) -> int:
    from ggmltool.ggml.devices.profiles import PROFILES
    from ggmltool.ggml.version import SIZE_MAX

    if PROFILES[profile].max_tensor_size == SIZE_MAX:
        raise Mistake(f"devices with the profile {profile} have no limit on tensors; give a max_size")
    return as_size(value, "max_tensor_size")


def _profile(value: object, what: str) -> str:
    return as_word(value, what, (*profile_names(), RECORDED))


def _alignment(value: object, what: str) -> int:
    alignment = as_size(value, what)
    if alignment < 1 or alignment & (alignment - 1):
        raise Mistake(f"{what} must be a power of two, not {alignment}")
    return alignment


def _max_size(value: object, what: str) -> int:
    size = as_size(value, what)
    if size < 1:
        raise Mistake(f"{what} must be at least 1 byte")
    return size


def _batch(value: object, what: str) -> int | None:
    return None if isinstance(value, str) and value == "never" else as_int(value, what)


def _names(value: object, what: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return (as_id(value, "a buffer type"),)
    return tuple(at(i, as_id, item, "a buffer type") for i, item in enumerate(as_list(value, what)))


def _profile_words() -> Meta:
    """A profile, or a file beside the scenario with a device."""
    return said(
        anyOf=[
            {"enum": [*profile_names(), RECORDED]},
            {"type": "string", "pattern": f"(?:{any_case(FILES)})$"},
        ]
    )


Alignment = Annotated[int | str, AT_LEAST_ONE, _alignment]
MaxSize = Annotated[int | str, AT_LEAST_ONE, _max_size]
RowPadding = Annotated[int, Meta(ge=0, le=1 << 32)]


class BackendKeys(Keys):
    """A device, by what is said of it."""

    name: Id
    profile: Annotated[Any, _profile_words(), _profile] | None = None
    type: DeviceType | None = None
    buft: Id | None = None
    alignment: Alignment | None = None
    max_size: MaxSize | None = None
    row_padding: RowPadding | None = None
    host: Bool | None = None
    supports: SupportsKeys | None = None
    supports_bufts: Annotated[Id | list[Id], _names] | None = None
    offload_min_batch: Annotated[Literal["never"] | Count, _batch] | None = None
    events: Bool | None = None
    memory: Size | None = None
    engine: Literal["numpy", "cupy", "auto"] | None = None
    features: Annotated[Any, defined("features")] | None = None
    graph_optimize: Bool | None = None
    max_tensor_size: Size | None = None
    rates: str | RatesKeys | None = None
    like: Annotated[str, said(enum=list(profile_names()))] | None = None
    answers: Annotated[AnswersKeys, read_answers] | None = None
    copies_async: Bool | None = None
    sets_async: Bool | None = None


class BufferTypeKeys(Keys):
    """A further buffer type."""

    device: Id
    alignment: Alignment | None = None
    max_size: MaxSize | None = None
    row_padding: RowPadding | None = None
    host: Bool | None = None
    ops: Annotated[OpList, op_keys] | None = None


class SchedulerKeys(Keys):
    """How the scheduler is made."""

    graph_size: Annotated[int, Meta(ge=1, le=MAX_GRAPH_SIZE)] | None = None
    parallel: Bool | None = None
    op_offload: Bool | None = None
    copy_callback: Annotated[str, said(enum=list(COPY_CALLBACKS))] | None = None
    past: PastKeys | None = None


def read_buffer_types(value: object, backends: list[BackendSpec]) -> list[BufferTypeSpec]:
    """The map `buffer_types`. Raises Mistake."""
    if value is None:
        return []
    devices = [b.name for b in backends]
    own = _default_bufts(backends)
    out: list[BufferTypeSpec] = []
    for name, item in as_map(value, "buffer_types").items():
        try:
            as_id(name, "a buffer type's name")
            if name in own:
                raise Mistake(f"{quoted(name)} is a backend's own buffer type already", on_key=True)
            out.append(_read_buffer_type(name, as_map(item, "a buffer type"), devices))
        except Mistake as mistake:
            raise mistake.below(name) from None
    return out


def _read_buffer_type(name: str, given: dict[str, Any], devices: list[str]) -> BufferTypeSpec:
    """A buffer type. That of a device which is not among the backends has the memory of its kind."""
    from ggmltool.ggml.devices.profiles import PROFILES, profile_of_name
    from ggmltool.ggml.version import SIZE_MAX

    check_keys(given, key_names(BufferTypeKeys), "a buffer type")
    if given.get("device") is None:
        raise Mistake("a buffer type needs a device", f"one of {', '.join(devices)}")
    said = read_keys(given, BufferTypeKeys, device=lambda v: _device(v, devices, name))
    device = said["device"]
    memory = PROFILES["custom" if device in devices or device != name else profile_of_name(device)]
    of_memory = {
        "alignment": memory.alignment,
        "max_size": None if memory.max_size == SIZE_MAX else memory.max_size,
        "row_padding": memory.row_padding,
        "host": memory.host,
    }
    return BufferTypeSpec(name, **{**of_memory, **said})


def _device(value: object, devices: list[str], buft: str) -> str:
    """The device of a buffer type: one of the scenario's, or one that the scheduler was not given.

    That is a device of a name that is known, or of the buffer type's own; anything else is a slip.
    """
    from ggmltool.ggml.devices.profiles import profile_of_name

    if value.__class__ is str and value not in devices:
        name = as_id(value, "device")
        if name == buft or profile_of_name(name) != "custom":
            return name
    return as_word(value, "device", devices)


def default_buft(backend: BackendSpec) -> str:
    """The name of a backend's default buffer type."""
    from ggmltool.ggml.devices.profiles import PROFILES

    return backend.buft or PROFILES[backend.family].buft or backend.name


def own_bufts(backends: list[BackendSpec]) -> list[str]:
    """The names of the buffer types that come with the backends; there is always the CPU's."""
    return [*_default_bufts(backends), "CPU"]


def _default_bufts(backends: list[BackendSpec]) -> list[str]:
    """The names of the buffer types that are called as the backends whose default ones they are."""
    return [b.name for b in backends if default_buft(b) == b.name]


def known_bufts(backends: list[BackendSpec], profiles: Mapping[str, Profile] | None = None) -> list[str]:
    """The names of the buffer types that the devices are known to have besides their default ones.

    `profiles` are those of the release (None: today's).
    """
    from ggmltool.ggml.devices.profiles import PROFILES, extra_names

    known = PROFILES if profiles is None else profiles
    return [name for b in backends for name in extra_names(known[b.family], b.name)]


def as_backend(value: object, what: str, backends: Sequence[str]) -> str:
    """One of the scenario's backends."""
    _refuse_absent(value, what, backends)
    return as_word(value, what, backends)


def _refuse_absent(value: object, what: str, backends: Sequence[str]) -> None:
    """Raise for a device of a known name that is not among the scenario's, however like one of them it is called."""
    if isinstance(value, str) and (absent := _absent(value, backends)):
        raise Mistake(f"{what} cannot be {quoted(value)}", absent)


def _absent(name: str, backends: Iterable[str]) -> str:
    """What to do about a name that is a known device's and not among the `backends`; "" for any other."""
    from ggmltool.ggml.devices.profiles import profile_of_name

    if profile_of_name(name) == "custom" or name in backends:
        return ""
    return f"{name} is not in `backends`; add it there"


def as_buft(value: object, bufts: list[str], known: list[str], backends: Sequence[str]) -> str:
    """A buffer type, of those of the scenario or of those its devices are known to have besides."""
    name = as_text(value, "buft")
    if name not in bufts and name not in known:
        _refuse_absent(name, "buft", backends)
    if name not in bufts and (name in known or did_you_mean(name, known)):
        return as_word(name, "buft", [*bufts, *known])
    return as_word(name, "buft", bufts)


def check_bufts(
    backends: list[BackendSpec], bufts: Iterable[str], profiles: Mapping[str, Profile] | None = None
) -> None:
    """Raise where a backend names a buffer type that there is not in the release that has these profiles."""
    names = list(bufts)
    known = known_bufts(backends, profiles)
    for i, backend in enumerate(backends):
        wanted: list[tuple[str, tuple[str | int, ...]]] = [(default_buft(backend), (i, "buft"))]
        wanted += [(name, (i, "supports_bufts", j)) for j, name in enumerate(backend.supports_bufts or ())]
        if backend.answers is not None:
            wanted += [(name, (i, "answers", "sizes", name)) for name in backend.answers.sizes]
        for name, path in wanted:
            if name not in names and name not in known:
                absent = _absent(name, [b.name for b in backends])
                hint = absent or did_you_mean(name, names) or f"there are {', '.join(names)}"
                raise Mistake(f"there is no buffer type {quoted(name)}", hint, *path)


def read_scheduler(value: object, backends: Sequence[BackendSpec]) -> SchedulerSpec:
    """The map `scheduler`, over these backends. Raises Mistake."""
    if value is None:
        return SchedulerSpec()
    given = as_map(value, "scheduler")
    check_keys(given, key_names(SchedulerKeys), "scheduler")
    names = tuple(b.name for b in backends)
    return SchedulerSpec(**read_keys(given, SchedulerKeys, past=lambda v: read_past(v, names)))
