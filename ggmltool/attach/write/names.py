"""What backends, devices and buffer types of a program are in a scenario: printable names, bounded, each once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ggmltool.attach.state import Answers, BackendState, DeviceState, Snapshot
from ggmltool.ggml.devices.profiles import PROFILES, profile_of_name
from ggmltool.ggml.state import BuftState
from ggmltool.ggml.version import SIZE_MAX

MAX_NAME = 200
"""Characters of a name that a program gives, at most."""


@dataclass(frozen=True, slots=True)
class ScenarioNames:
    """Names by address: of backends in the scheduler's order, and of buffer types. `own` are the buffer types that are
    called as their backend is: the scenario's backend has them without saying so."""

    backends: tuple[str, ...]
    bufts: dict[int, str]
    own: frozenset[int]

    def backend(self, index: int) -> str | None:
        """The name of a backend by its number; None for none."""
        return self.backends[index] if 0 <= index < len(self.backends) else None


def names_of(snapshot: Snapshot) -> ScenarioNames:
    """The names of all backends and buffer types that a snapshot has."""
    taken: set[str] = set()
    backends = tuple(unique(b.name, f"backend {i}", taken) for i, b in enumerate(snapshot.backends))
    bufts: dict[int, str] = {}
    # A backend's default buffer type of the same name is its own.
    for name, backend, address in zip(backends, snapshot.backends, snapshot.sched.bufts, strict=True):
        buft = snapshot.bufts.get(address)
        if buft is not None and address not in bufts and backend.name is not None and buft.name == backend.name:
            bufts[address] = name
    taken = {*bufts.values()}
    for address in (*snapshot.sched.bufts, *sorted(snapshot.bufts)):
        if address not in bufts:
            buft = snapshot.bufts.get(address)
            bufts[address] = unique(buft.name if buft else None, "memory", taken)
    own = (
        a for name, a in zip(backends, snapshot.sched.bufts, strict=True) if bufts[a] == name and a in snapshot.bufts
    )
    return ScenarioNames(backends, bufts, frozenset(own))


def unique(name: str | None, otherwise: str, taken: set[str]) -> str:
    """A name that is not taken yet, and is from now on."""
    given = clean(name or "") or otherwise
    free, n = given, 0
    while free in taken:
        n += 1
        free = f"{given}~{n}"
    taken.add(free)
    return free


def clean(text: str) -> str:
    """A program's text as a scenario can have it."""
    return "".join(c if c.isprintable() else "?" for c in text[:MAX_NAME])


def listed(names: Iterable[str], most: int = 5) -> str:
    """The first of some names."""
    all_names = list(names)
    more = f", and {len(all_names) - most} more" if len(all_names) > most else ""
    return ", ".join(all_names[:most]) + more


NO_LIMIT = SIZE_MAX >> 1
"""The largest chunk that ggml plans, for a device without the limit of those that it is like."""
_TYPES = ("cpu", "gpu", "igpu", "accel")


def backends_of(snapshot: Snapshot, names: ScenarioNames, answers: Answers | None) -> list[dict[str, Any]]:
    """The scenario's backends, in the scheduler's order, without what they answered of ops and sizes."""
    out = []
    for i, (backend, buft) in enumerate(zip(snapshot.backends, snapshot.sched.bufts, strict=True)):
        device = snapshot.devices.get(backend.device)
        entry: dict[str, Any] = {"name": names.backends[i], "profile": "recorded"}
        like = profile_of_name(backend.name or "")
        if like != "custom":
            entry["like"] = like
        if device is not None:
            entry |= _of_device(device, backend)
        if "graph_optimize" not in backend.functions:
            entry["graph_optimize"] = False
        own = buft in names.own and names.bufts[buft] == names.backends[i]
        if own:
            state = snapshot.bufts[buft]
            if state.max_size is not None and like in PROFILES and PROFILES[like].max_size != SIZE_MAX:
                entry["max_size"] = NO_LIMIT
            entry |= _of_buft(state)
        if not own or PROFILES[like].buft is not None:
            entry["buft"] = names.bufts[buft]
        if answers is not None:
            entry["supports_bufts"] = [names.bufts[b] for (k, b), yes in answers.bufts.items() if k == i and yes]
        out.append(entry)
    return out


def _of_device(device: DeviceState, backend: BackendState) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if device.type in _TYPES:
        out["type"] = device.type
    out["events"] = device.events
    if device.memory_free:
        out["memory"] = device.memory_free
    return out


def _of_buft(buft: BuftState) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if buft.alignment:
        out["alignment"] = buft.alignment
    if buft.max_size is not None and 0 < buft.max_size < SIZE_MAX:
        out["max_size"] = buft.max_size
    if buft.host is not None:
        out["host"] = buft.host
    return out


def buffer_types_of(
    snapshot: Snapshot, names: ScenarioNames, used: set[str], answers: Answers | None
) -> dict[str, dict[str, Any]]:
    """The buffer types that are no backend's own, of those that are `used` by their names."""
    return {
        name: {"device": device, **_of_buft(buft)}
        for name, device, buft in _further(snapshot, names, answers)
        if name in used
    }


def _further(snapshot: Snapshot, names: ScenarioNames, answers: Answers | None) -> Iterator[tuple[str, str, BuftState]]:
    """Name, backend and state of each: that of its device, else the first that can use it, else the last."""
    by_device: Mapping[int, str] = {
        b.device: name for b, name in zip(reversed(snapshot.backends), reversed(names.backends), strict=True)
    }
    for address, name in names.bufts.items():
        buft = snapshot.bufts.get(address)
        if buft is not None and address not in names.own:
            users = (
                [] if answers is None else sorted(i for (i, b), yes in answers.bufts.items() if b == address and yes)
            )
            user = users[0] if users else len(names.backends) - 1
            yield name, by_device.get(buft.device, names.backends[user]), buft
