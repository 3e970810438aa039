"""ggml in a process: which of the loaded files have it, in which release, and where its functions are."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ggmltool.attach.files.elf import regular_file, stands_in
from ggmltool.attach.files.emulator import Emulator, has_unicorn
from ggmltool.attach.gdb.link import FunctionCall, GdbLink
from ggmltool.ggml.printable import printable
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import NEWEST, RELEASES
from ggmltool.sources.llama.capture.packages import behavior_of
from ggmltool.sources.llama.errors import LlamaUnavailable
from ggmltool.state.errors import AttachError, LinkError
from ggmltool.state.memory.pages import c_string
from ggmltool.structs.layout import MAX_NAME, layout, layouts_of

SYMBOLS = "ggml_|gguf_"
"""What the names of ggml's functions and data begin with."""

HEART = "ggml_backend_sched_new"
"""The function that a file has in which a scheduler lies: a copy of ggml's base."""

STOPS = ("ggml_backend_sched_reserve", "ggml_backend_sched_alloc_graph", "ggml_backend_sched_graph_compute_async")
"""Functions of the scheduler, of which a file has some where link-time optimization inlined the others."""

_WITHOUT = "ggml_gallocr_alloc_graph"
"""What a copy of ggml has whose scheduler was left out."""

SCHEDULER = "hv_tensor_backend_ids"
"""A field that only ggml's own files know: debug information with that name tells the structs of ggml."""

_NO_VERSION = (("ggml_backend_dev_name", "2025-03"), (HEART, "2024-01"))
"""Releases of a ggml that does not say its version, by a function that it has, the newest first."""

_SECONDS = 2.0
"""How long a program may take to say its version."""

_LITERAL = re.compile(rb"(?:\xf3\x0f\x1e\xfa)?\x48\x8d\x05(....)\xc3", re.DOTALL)
"""A function on x86-64 that returns the address of a constant: lea rax, [rip + n]; ret."""

_NUMBER = re.compile(rb"(?:\xf3\x0f\x1e\xfa)?\xb8(....)\xc3", re.DOTALL)
"""One that returns a number: mov eax, n; ret."""

_LONGEST_NAME = 4096
"""Bytes of a tensor's name, at most."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A copy of ggml in a process. `version` is what it says of itself ("" if it says none), `release` what its plans
    are made as, `structs` the name of its layout, `note` where it may do otherwise than that release ("": nowhere that
    is known), `refusal` why it cannot be read at all. `symbols` are addresses by name, `files` those that it lies in,
    the one with the scheduler first; `tells_structs`: its debug information may know its structs. `max_name` is its
    GGML_MAX_NAME, `inlined` are functions of STOPS that link-time optimization has left no trace of."""

    version: str
    release: Release
    structs: str
    symbols: Mapping[str, int]
    files: tuple[str, ...]
    note: str = ""
    refusal: str = ""
    tells_structs: bool = True
    max_name: int = MAX_NAME
    inlined: tuple[str, ...] = ()

    def has(self, function: str) -> bool:
        """Whether it has a function."""
        return function in self.symbols

    def address(self, function: str) -> int:
        """Where a function is. Raises AttachError if it has none such."""
        found = self.symbols.get(function)
        if found is None:
            raise AttachError(f"{self.files[0]} has no {function}")
        return found


def names_ggml(file: str, root: str = "") -> bool | None:
    """Whether a name of ggml's stands anywhere in a file; None of one that cannot be read here."""
    for path in (root + file, file):
        with suppress(OSError, ValueError), regular_file(path) as opened:
            return stands_in(opened, [b"ggml_"], 0, os.fstat(opened).st_size)
    return None


def instances_of(
    link: GdbLink,
    symbols: Mapping[str, Mapping[str, int]],
    tells_structs: Callable[[str], bool],
    version: Callable[[str], str],
    calls: bool = False,
) -> tuple[Instance, ...]:
    """The copies of ggml whose symbols lie in these files; `calls`: the program may be called to ask its version.
    `tells_structs` says of a file whether its debug information may know its structs, `version` which one stands among
    its constants."""
    out = []
    hearts = [file for file, found in symbols.items() if has_heart(found)]
    for heart in hearts:
        parts = []
        for file in symbols:
            # A part (a backend, say) is of the only copy, or of the one in the same folder.
            beside = [h for h in hearts if Path(h).parent == Path(file).parent]
            if file not in hearts and heart in (beside or hearts):
                parts.append(file)
        merged: dict[str, int] = {}
        for file in (heart, *parts):
            for name, at in symbols[file].items():
                merged.setdefault(name, at)
        found = _instance(link, merged, (heart, *parts), calls, version)
        out.append(replace(found, tells_structs=tells_structs(heart)))
    return tuple(out)


def prepare() -> None:
    """Read the data that say what a ggml is like: no program need stand still for that."""
    behavior_of(NEWEST.name, 0, lambda _: True)
    layouts_of(NEWEST.name, ())
    layout(NEWEST.name)


def has_heart(symbols: Mapping[str, int]) -> bool:
    """Whether these are the functions of a copy of ggml's base."""
    return any(name in symbols for name in (HEART, *STOPS, _WITHOUT))


def _instance(
    link: GdbLink, symbols: Mapping[str, int], files: tuple[str, ...], calls: bool, constant: Callable[[str], str]
) -> Instance:
    inlined = () if HEART in symbols else tuple(name for name in STOPS if name not in symbols)
    version, address = "", _returned(link, symbols.get("ggml_version"), calls)
    if address:
        with suppress(LinkError):
            version = printable(c_string(link, address, 32))
    if not version and HEART not in symbols:
        version = constant(files[0])
    if version:
        try:
            behavior = behavior_of(version, 0, symbols.__contains__)
        except LlamaUnavailable:
            later = f"{files[0]} is ggml {version}, which is later than all that this ggmltool knows: get a newer one"
            return Instance(version, NEWEST, NEWEST.name, symbols, files, refusal=later)
        structs = layouts_of(version, symbols)[0]
        found = Instance(version, behavior.release, structs, symbols, files, behavior.note)
    elif HEART not in symbols:
        note = f"the version of this ggml cannot be told; its graphs are planned as by {NEWEST.name}"
        found = Instance("", NEWEST, NEWEST.name, symbols, files, note)
    else:
        name = next(release for function, release in _NO_VERSION if function in symbols)
        note = f"this ggml does not say its version; its graphs are planned as by {name}"
        found = Instance("", RELEASES[name], name, symbols, files, note)
    if 0 < len(inlined) < len(STOPS):
        found = replace(found, inlined=inlined, note="; ".join(filter(None, (found.note, without(inlined)))))
    return replace(found, max_name=max_name_of(link, symbols, found.structs, calls))


def without(inlined: Sequence[str]) -> str:
    """What cannot be seen of a program in which these functions were inlined."""
    called = " and ".join(inlined)
    return f"{called} {'was' if len(inlined) == 1 else 'were'} inlined by link-time optimization: calls are not seen"


def max_name_of(link: GdbLink, symbols: Mapping[str, int], structs: str, calls: bool = False) -> int:
    """GGML_MAX_NAME: the rest of what ggml_tensor_overhead returns, an object and a tensor; the usual one where that
    function is not there or cannot be asked."""
    known = layout(structs).structs
    size = _returned(link, symbols.get("ggml_tensor_overhead"), calls)
    if size is not None:
        found = size - known["ggml_object"].size - known["ggml_tensor"].size + MAX_NAME
        if 8 <= found <= _LONGEST_NAME and not found % 8:
            return found
    return MAX_NAME


def _returned(link: GdbLink, function: int | None, calls: bool) -> int | None:
    """What a function without parameters returns: read off its code, where that is one or two instructions, else run
    in unicorn, else called."""
    if function is None:
        return None
    with suppress(LinkError):
        code = link.read(function, 16)
        if found := _LITERAL.match(code):
            return function + found.end() - 1 + int.from_bytes(found[1], "little", signed=True)
        if found := _NUMBER.match(code):
            return int.from_bytes(found[1], "little")
        about = link.ask("about")
        result = Emulator(link, about["architecture"]).result(function) if has_unicorn() else None
        if result is None and calls:
            (result,) = link.call([FunctionCall(function, "unsigned long", ())], _SECONDS)
        return result
    return None


def nothing_found(
    name: str, symbols: Mapping[str, Mapping[str, int]], without: Sequence[str], loaded: int, begun: bool
) -> str:
    """Why there is no ggml in a process: what was found instead. `without` are files that have its words, but no
    symbols; `begun`: it ran before we came, so that nobody knows what it has started."""
    if symbols:
        file, found = max(symbols.items(), key=lambda item: len(item[1]))
        return f"{name} has no scheduler of ggml: {Path(file).name} has {len(found)} of ggml's functions, not {HEART}"
    if without:
        files = ", ".join(sorted({Path(file).name for file in without}))
        return (
            f"{name} has ggml in {files}, but where its functions are cannot be told: it was stripped of its symbols "
            "(build it without -s, or link it with ggml's shared library)"
        )
    hint = " (a program that it starts is not followed: name that one instead)" if begun else ""
    return f"{name} has no ggml: none of the {loaded} files that it has loaded knows a function of ggml's{hint}"
