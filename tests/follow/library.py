"""The library that is followed: its files in a folder, and what it does with scenarios."""

from __future__ import annotations

import mmap
import os
import signal
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ggmltool.ggml.releases.release import Release
from ggmltool.oracle import ChildError, OracleRun, run_on
from ggmltool.oracle.fork import Abort, run_forked
from ggmltool.oracle.lib import Files, Lib, OracleUnavailable, load, open_library
from ggmltool.scenario.spec import ScenarioSpec

_DYNSYM = 11
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


@cache
def exported(file: Path) -> frozenset[str]:
    """The names of the symbols that a file defines for others; none where it is no such library."""
    with file.open("rb") as opened:
        if opened.read(6) != b"\x7fELF\x02\x01":
            return frozenset()
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return frozenset(_names(data))


def _names(data: mmap.mmap) -> set[str]:
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, n = struct.unpack_from("<HH", data, 0x3A)
    sections = [_SECTION.unpack_from(data, start + i * size) for i in range(n)]
    found: set[str] = set()
    for section in sections:
        if section[1] == _DYNSYM:
            texts = sections[section[6]][4]
            for at in range(section[4], section[4] + section[5], _SYMBOL.size):
                name, _, _, defined_in, _, _ = _SYMBOL.unpack_from(data, at)
                if defined_in:
                    found.add(data[texts + name : data.find(b"\0", texts + name)].decode())
    return found


BASE = "ggml_backend_sched_new"
CPU = "ggml_backend_cpu_init"
"""Functions by which the file with the scheduler and the one with the CPU backend are known."""


PATIENCE = 60
"""Seconds that a child may take: ggml goes round in circles on some graphs."""


def bound_children() -> None:
    """Ends every process that this one forks from now on after a while."""
    signal.alarm(0)
    os.register_at_fork(after_in_child=lambda: signal.alarm(PATIENCE) and None)


@dataclass(frozen=True, slots=True)
class Library:
    """A ggml on disk, to be handed to other processes too."""

    files: Files

    @property
    def lib(self) -> Lib:
        """The library, loaded when it is first asked for. Raises OracleUnavailable."""
        return open_library(self.files)

    @property
    def exports(self) -> frozenset[str]:
        """The functions of ggml's C interface that it exports."""
        return frozenset(name for file in set(self.files) for name in exported(file) if name.startswith("ggml_"))

    def runs(self, wanted: Sequence[tuple[bool, bool, ScenarioSpec]]) -> list[OracleRun | None]:
        """What it does with each of these models: (whether it computes, whether the scheduler prints, the model).

        None for one that the mock devices cannot be made for.
        """
        done = {}
        for values, debug in dict.fromkeys((values, debug) for values, debug, _ in wanted):
            models = [model for *how, model in wanted if how == [values, debug]]
            done[values, debug] = iter(self._some(models, 2 if debug else 0, values))
        return [next(done[values, debug]) for values, debug, _ in wanted]

    def _some(self, models: Sequence[ScenarioSpec], debug: int, values: bool) -> list[OracleRun | None]:
        try:
            return list(run_on(self.lib, models, debug, values))
        except ChildError:
            return [None] if len(models) == 1 else [r for m in models for r in self._some([m], debug, values)]


def each_forked(lib: Lib, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """What a function gives for each item, in one child for as many as ggml survives; Abort for what it does not."""
    try:
        done = lib.run_forked(lambda: list(map(function, items)))
    except ChildError as error:
        done = Abort(str(error).strip().splitlines()[-1])
    if not isinstance(done, Abort):
        return list(done)
    if len(items) == 1:
        return [done]
    half = len(items) // 2
    return each_forked(lib, function, items[:half]) + each_forked(lib, function, items[half:])


def library_at(path: Path) -> Library:
    """The library that a file is, or the one in a folder. Raises OracleUnavailable where there is none."""
    path = path.resolve()
    if path.is_file():
        places = [path, *(p for p in sorted(path.parent.glob("*.so*")) if p != path and p.is_file())]
    else:
        places = [p for p in sorted(path.rglob("*.so*")) if p.is_file()]
    base = next((p for p in places if BASE in exported(p)), None)
    cpu = next((p for p in ([base] if base else []) + places if CPU in exported(p)), None)
    if base is None or cpu is None:
        lacked = BASE if base is None else CPU
        raise OracleUnavailable(f"There is no library at {path} that exports {lacked}")
    return Library(Files(base, cpu))


def library_of(release: Release) -> Library | None:
    """The library that judges a release, if it is here. It is not loaded: two of one name cannot be in one process."""
    try:
        file = run_forked(lambda: load(release).files.base, lambda _: None)
    except ChildError:
        return None
    return None if isinstance(file, Abort) else library_at(file)
