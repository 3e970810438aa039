"""The library that is followed: its files in a folder, and what it does with scenarios."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ggmltool.ggml.releases.release import Release
from ggmltool.oracle import ChildError, OracleRun, run_on
from ggmltool.oracle.fork import Abort, run_forked
from ggmltool.oracle.lib import Files, Lib, OracleUnavailable, load, open_library
from ggmltool.scenario.spec import ScenarioSpec
from tests.follow.elf import exported

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
