"""A program that stands still, and the structs that its ggml has: those of its version, or those that fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from ggmltool.attach.debug_info import corrected
from ggmltool.attach.instance import HEART
from ggmltool.attach.properties import Calls
from ggmltool.ggml.releases.release import Release
from ggmltool.structs.layout import Layout, layout, layouts_of, newest_first, says_structs


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
    def link(self) -> Calls:
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


def structs_of(link: Calls, ggml: Ggml) -> Layout:
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
