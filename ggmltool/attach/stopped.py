"""A program that stands still, and the structs that its ggml has: those of its version, or those that fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from ggmltool.attach.devices.properties import CallsFunctions
from ggmltool.attach.files.instance import HEART
from ggmltool.attach.gdb.link import Asks
from ggmltool.ggml.releases.release import Release
from ggmltool.state.errors import LinkError
from ggmltool.structs.layout import MAX_NAME, Layout, fresh, layout, layouts_of, newest_first, says_structs
from ggmltool.structs.types import Struct

_SCHEDULER = "ggml_backend_sched"
"""The struct that only debug information of ggml's own files knows."""


def corrected(link: Asks, name: str, file: str = "", max_name: int = MAX_NAME) -> tuple[Layout | None, tuple[str, ...]]:
    """A layout with the sizes and offsets that gdb knows, of a file where one is named, and the structs in which they
    are others; None where gdb does not know the scheduler. A field that the program's struct lacks is gone.
    `max_name` is its GGML_MAX_NAME."""
    layout = fresh(name, max_name)
    asked = [
        expression
        for struct in layout.structs.values()
        for expression in (_size(struct), *(_offset(struct, field) for field in struct.members or {}))
    ]
    try:
        told = dict(zip(asked, link.ask("evaluate_all", asked, f"sizeof(struct {_SCHEDULER})", file), strict=False))
    except LinkError:
        return None, ()
    if not told:
        return None, ()
    others = tuple(tag for tag, struct in layout.structs.items() if _correct(told, struct))
    return layout, others


def _size(struct: Struct) -> str:
    return f"sizeof(struct {struct.name})"


def _offset(struct: Struct, field: str) -> str:
    return f"(unsigned long)&((struct {struct.name} *)0)->{field}"


def _correct(told: Mapping[str, int | None], struct: Struct) -> bool:
    """Give a struct the program's own offsets; whether any was another."""
    size = told[_size(struct)]
    members = struct.members or {}
    if not size or not members:
        return False
    found = {}
    for name, member in members.items():
        offset = told[_offset(struct, name)]
        if offset is not None:
            found[name] = member._replace(offset=offset)
    if not found or (found == members and size == struct.size):
        return False
    struct.members, struct.size = found, size
    return True


class Ggml(Protocol):
    """The copy of ggml in a program, as `Instance` tells it."""

    @property
    def version(self) -> str:
        """What ggml_version says."""

    @property
    def release(self) -> Release:
        """The release that decides as it does."""

    @property
    def structs(self) -> str:
        """The layout of its structs."""

    @property
    def symbols(self) -> Mapping[str, int]:
        """Addresses of its functions by name."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it lies in, the one with the scheduler first."""

    @property
    def max_name(self) -> int:
        """Its GGML_MAX_NAME."""

    @property
    def tells_structs(self) -> bool:
        """Whether its debug information may know its structs."""


class Stopped(Protocol):
    """A program that stands still, as `Session` has it."""

    @property
    def link(self) -> CallsFunctions:
        """The way to it."""

    @property
    def instance(self) -> Ggml:
        """Its ggml."""


_FOUND: WeakKeyDictionary[Any, dict[str, Layout]] = WeakKeyDictionary()
"""The layouts that were right, by the link and by what the instance says of its structs."""


def layouts_for(session: Stopped) -> Iterator[Layout]:
    """The structs that the program's ggml may have, the likeliest first: those that served before; those that its debug
    information tells; those of its version; and if that says nothing, those of all days before versions did."""
    instance = session.instance
    found = _FOUND.get(session.link, {}).get(instance.structs)
    if found is not None:
        yield found
        return
    others = _others(instance)
    for name in dict.fromkeys((*others, instance.structs)):
        if instance.tells_structs:
            own, differ = corrected(session.link, name, instance.files[0], instance.max_name)
            if own is not None and differ:
                yield own
        yield layout(name, instance.max_name)


def _others(ggml: Ggml) -> tuple[str, ...]:
    """The layouts that a ggml may have that does not say its version. Where functions may have been inlined, those that
    there are tell nothing."""
    if says_structs(ggml.version):
        return ()
    return layouts_of("", ggml.symbols) if HEART in ggml.symbols else newest_first()


def structs_of(link: CallsFunctions, ggml: Ggml) -> Layout:
    """The structs of a ggml before any of its data was read, where gdb has loaded what debug information there is:
    those that it knows, with the rest of the layout that differs least from them; else those of its version."""
    names = _others(ggml)
    best: tuple[int, Layout] | None = None
    for name in dict.fromkeys((ggml.structs, *names)):
        own, differ = corrected(link, name, ggml.files[0], ggml.max_name)
        if own is None:
            break
        if best is None or len(differ) < best[0]:
            best = len(differ), own
    return layout(ggml.structs, ggml.max_name) if best is None else best[1]


def remember(session: Stopped, types: Layout) -> None:
    """These are its structs."""
    _FOUND.setdefault(session.link, {})[session.instance.structs] = types
