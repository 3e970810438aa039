"""The backends, buffer types and scheduler options of a scenario; devices in files of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ggmltool.ggml.devices.profile import Profile, extra_names
from ggmltool.ggml.devices.profiles import PROFILES, profile_of_name
from ggmltool.ggml.devices.recorded import RECORDED
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.scenario.data import inside_folder
from ggmltool.scenario.devices.rates import known, read_rates
from ggmltool.scenario.devices.supports import read_supports
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted
from ggmltool.scenario.past import read_past
from ggmltool.scenario.samples import FILES
from ggmltool.scenario.spec import (
    BackendKeys,
    BackendSpec,
    BufferTypeKeys,
    BufferTypeSpec,
    SchedulerKeys,
    SchedulerSpec,
    as_profile,
)
from ggmltool.scenario.text.text import read_document
from ggmltool.scenario.values import (
    as_id,
    as_list,
    as_map,
    as_size,
    as_text,
    as_word,
    at,
    check_keys,
    key_names,
    kind_of,
    read_keys,
)
from ggmltool.scenario.versions import check_profile

Profiles = Mapping[str, Profile]


def read_backends(value: object, folder: Path | None = None, release: Release | None = None) -> list[BackendSpec]:
    """The list `backends`, by default the CPU alone; files it names lie in `folder`. Raises Mistake, also for a profile
    that the release does not have."""
    if value is None:
        value = ["CPU"]
    out: list[BackendSpec] = []
    names: set[str] = set()
    for i, item in enumerate(as_list(value, "backends")):
        spec = at(i, read_backend, item, folder)
        if spec.name in names:
            raise Mistake(f"two backends are called {quoted(spec.name)}", "", i)
        if release is not None:
            at(i, check_profile, spec, release)
        names.add(spec.name)
        out.append(spec)
    if not out:
        raise Mistake("there must be a backend", "for example [CPU]")
    return out


def read_backend(value: object, folder: Path | None = None, by_file: bool = True) -> BackendSpec:
    """A backend; without `by_file`, as a device file has it, whose profile is a name. Raises Mistake."""
    if isinstance(value, str):
        name = as_id(value, "a backend's name")
        return BackendSpec(name, profile_of_name(name))
    if not isinstance(value, dict):
        raise Mistake(f"a backend must be a name or a map, not {kind_of(value)}")
    given = as_map(value, "a backend")
    check_keys(given, key_names(BackendKeys), "a backend")
    if by_file and is_device_file(given.get("profile")):
        file = at("profile", _profile_file, given["profile"], folder)
        given = {**file, **{key: value for key, value in given.items() if key != "profile"}}
    if given.get("name") is None:
        raise Mistake("a backend needs a name", "{name: ..., ...}")
    name = at("name", as_id, given["name"], "name")
    written = given.get("profile")
    profile = profile_of_name(name) if written is None else at("profile", as_profile, written, "profile")
    family = profile
    if profile == RECORDED:
        like = given.get("like")
        family = "custom" if like is None else at("like", as_word, like, "like", PROFILES)
    for key in ("like", "answers") if profile != RECORDED else ():
        if given.get(key) is not None:
            raise Mistake(f"{key} is for devices with the profile {RECORDED}", f"profile: {RECORDED}", key, on_key=True)
    if isinstance(rates := given.get("rates"), str):
        given = at("rates", _with_device, given, rates, family)
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


def _with_device(given: dict[str, Any], rates: str, profile: str) -> dict[str, Any]:
    """The map with what is known of the device that it runs on: the memory that is free, and what the hardware has."""
    device = known(rates)
    if profile not in device.families:
        raise Mistake(f"{device.name} runs {' or '.join(device.families)}, not {profile}")
    more: dict[str, Any] = {"memory": device.free(profile)}
    if device.features is not None and profile == device.families[0]:
        more["features"] = list(device.features)
    return {**given, **{key: value for key, value in more.items() if given.get(key) is None}}


def _features(value: object, profile: str) -> frozenset[str]:
    """What the hardware has: a list of the profile's words, or text with `+` between them, which may be empty."""
    # A release may know more of them than others, and which one plans is not known here.
    of = [profiles_of(release).get(profile) for release in RELEASES.values()]
    words = tuple(dict.fromkeys(feature for one in of if one is not None for feature in one.features))
    if not words:
        raise Mistake(f"the profile {profile} has no features")
    if isinstance(value, str):
        return frozenset(as_word(word, "a feature", words) for word in value.split("+") if word)
    return frozenset(at(i, as_word, item, "a feature", words) for i, item in enumerate(as_list(value, "features")))


def _max_tensor_size(value: object, profile: str) -> int:
    if PROFILES[profile].max_tensor_size == SIZE_MAX:
        raise Mistake(f"devices with the profile {profile} have no limit on tensors; give a max_size")
    return as_size(value, "max_tensor_size")


def is_device_file(text: object) -> bool:
    """Whether a text names a file with a device, not the device or a profile."""
    return isinstance(text, str) and text.lower().endswith(FILES)


def read_device_file(path: Path, folder: Path | None = None) -> list[dict[str, Any]]:
    """The devices of a file (a map, a list of maps, or a list under `backends`) as they are written, and checked; files
    that they name lie in `folder`.

    Raises ScenarioError, with the place in that file.
    """
    document = read_document(path)
    value = document.value
    under: tuple[str, ...] = ()
    if isinstance(value, dict) and "backends" in value:
        value, under = value["backends"], ("backends",)
    items: dict[tuple[str | int, ...], object] = {under: value}
    if not isinstance(value, dict):
        items = {(*under, i): item for i, item in enumerate(value)} if isinstance(value, list) else {}
    if not items:
        raise document.error(Mistake("there is no device", "{name: ..., profile: ...}, or a list of such", *under))
    for place, item in items.items():
        try:
            read_backend(item, folder, by_file=False)
        except Mistake as mistake:
            raise document.error(mistake, *place) from None
    return [item if isinstance(item, dict) else {"name": item} for item in items.values()]


def _profile_file(file: str, folder: Path | None) -> dict[str, Any]:
    """What a file says of one device, but for its name. Raises Mistake, and ScenarioError for what stands in it."""
    devices = read_device_file(inside_folder(file, folder), folder)
    if len(devices) != 1:
        raise Mistake(f"{quoted(file)} has {len(devices)} devices, and a profile is one")
    return {key: value for key, value in devices[0].items() if key != "name"}


def _read_buffer_types(value: object, backends: list[BackendSpec]) -> list[BufferTypeSpec]:
    devices = [b.name for b in backends]
    own = _default_bufts(backends)
    out: list[BufferTypeSpec] = []
    for name, item in as_map({} if value is None else value, "buffer_types").items():
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
    if value.__class__ is str and value not in devices:
        name = as_id(value, "device")
        if name == buft or profile_of_name(name) != "custom":
            return name
    return as_word(value, "device", devices)


def default_buft(backend: BackendSpec) -> str:
    """The name of a backend's default buffer type."""
    return backend.buft or PROFILES[backend.family].buft or backend.name


def _default_bufts(backends: list[BackendSpec]) -> list[str]:
    """The names of the buffer types that are called as the backends whose default ones they are."""
    return [b.name for b in backends if default_buft(b) == b.name]


class ScenarioDevices(NamedTuple):
    """The devices of a scenario, its further buffer types, and the names of buffer types that it can use: `bufts`, and
    those that its devices are `known` to have besides."""

    backends: list[BackendSpec]
    buffer_types: list[BufferTypeSpec]
    bufts: list[str]
    known: list[str]


def devices_of(top: Mapping[str, Any], folder: Path | None = None, release: Release | None = None) -> ScenarioDevices:
    """`backends` and `buffer_types` of a scenario, for a release (None: today's rules, any profile). Raises Mistake,
    also where a backend names a buffer type that there is not."""
    backends = at("backends", read_backends, top.get("backends"), folder, release)
    further = at("buffer_types", _read_buffer_types, top.get("buffer_types"), backends)
    profiles: Profiles = PROFILES if release is None else profiles_of(release)
    bufts = list(dict.fromkeys([*_default_bufts(backends), "CPU", *(b.name for b in further)]))
    more = [name for b in backends for name in extra_names(profiles[b.family], b.name)]
    for i, backend in enumerate(backends):
        wanted: list[tuple[str, tuple[str | int, ...]]] = [(default_buft(backend), ("buft",))]
        wanted += [(name, ("supports_bufts", j)) for j, name in enumerate(backend.supports_bufts or ())]
        if backend.answers is not None:
            wanted += [(name, ("answers", "sizes", name)) for name in backend.answers.sizes]
        for name, path in wanted:
            if name not in bufts and name not in more:
                absent = _absent(name, [b.name for b in backends])
                hint = absent or did_you_mean(name, bufts) or f"there are {', '.join(bufts)}"
                raise Mistake(f"there is no buffer type {quoted(name)}", hint, "backends", i, *path)
    return ScenarioDevices(backends, further, bufts, more)


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
    if profile_of_name(name) == "custom" or name in backends:
        return ""
    return f"{name} is not in `backends`; add it there"


def as_buft(value: object, devices: ScenarioDevices) -> str:
    """A buffer type, of those of the scenario or of those its devices are known to have besides."""
    name = as_text(value, "buft")
    if name not in devices.bufts and name not in devices.known:
        _refuse_absent(name, "buft", [b.name for b in devices.backends])
    if name not in devices.bufts and (name in devices.known or did_you_mean(name, devices.known)):
        return as_word(name, "buft", [*devices.bufts, *devices.known])
    return as_word(name, "buft", devices.bufts)


def read_scheduler(value: object, backends: Sequence[BackendSpec]) -> SchedulerSpec:
    """The map `scheduler`, over these backends. Raises Mistake."""
    given = as_map({} if value is None else value, "scheduler")
    check_keys(given, key_names(SchedulerKeys), "scheduler")
    names = tuple(b.name for b in backends)
    return SchedulerSpec(**read_keys(given, SchedulerKeys, past=lambda v: read_past(v, names)))
