"""A visit to a program that uses ggml: launched, running, or dumped. It is stopped where it calls ggml, and let go."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from signal import SIGKILL, Signals
from types import TracebackType
from typing import IO, Literal, Self

from ggmltool.attach.files.corefile import CoreFile, program_dumped, read_core, remarks
from ggmltool.attach.files.emulator import NO_UNICORN, DeadLink, has_unicorn
from ggmltool.attach.files.instance import Instance, instances_of, nothing_found, prepare, without
from ggmltool.attach.files.loaded import LoadedFiles, has_ggml
from ggmltool.attach.gdb.guards import BreakpointRestorer, SignalGuard
from ggmltool.attach.gdb.link import Dies, GdbLink, Late, LinkLost, ProgramStop
from ggmltool.attach.gdb.machines import Remote, children_of, died, gdb_for, lacks, own_machine, program_of, why_not
from ggmltool.attach.gdb.program import Gdb, Launched, why_lost
from ggmltool.state.errors import AttachError, LinkError

__all__ = ["AttachError", "AttachSession", "Instance", "Remote"]

_NAMED = 4
"""So many files are named that are missing."""

Kind = Literal["launched", "pid", "core", "remote", "served"]

ABORT = "ggml_abort"
"""Where GGML_ASSERT and GGML_ABORT end; a program that comes here, whatever was waited for, is told of."""
DEADLY = frozenset({"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT"})
"""Signals that end a program that has no handler for them."""
_OTHERS = ("SIGSTOP", "SIGTRAP", "SIGINT")
"""Signals that gdb keeps to itself, which a program gets all the same when somebody else sent them; SIGINT only where
a gdbserver holds the program."""


class AttachSession:
    """A context manager; at its end the program goes on by itself, whatever happened. `link` is the way to gdb, `kind`
    where the program comes from, `pid` its process (0: none here), `name` what it is called in messages, `dump` what a
    core dump says of itself, `remarks` what is the matter with it. `instances` are the copies of ggml that were found,
    `instance` the one meant: the one that the program stopped in, else the first. `stopped` is the stop that it stands
    at, `ended` how it ended ("": not yet)."""

    def __init__(self, link: GdbLink, kind: Kind, pid: int, name: str, files: LoadedFiles | None = None) -> None:
        self.link = link
        self.kind = kind
        self.pid = pid
        self.name = name
        self.launched: Launched | None = None
        self.dump: CoreFile | None = None
        self.remarks: tuple[str, ...] = ()
        self.instances: tuple[Instance, ...] = ()
        self.stopped: ProgramStop | None = None
        self.ended = ""
        self._exits = ExitStack()
        self._meant = 0
        self._files = files or LoadedFiles(link, pid if kind in ("launched", "pid") else 0)
        self._functions: dict[int, str] = {}
        self._aborts: frozenset[int] = frozenset()
        self.entered = (0, 0)
        self._points: list[int] = []
        self._wanted: tuple[str, ...] = ()
        self._attached = kind in ("launched", "pid", "remote")
        self._let_go = False
        self._restorer = BreakpointRestorer(pid) if kind in ("launched", "pid") else None
        self._still = 0.0
        self._children = 0
        self._since: float | None = None

    @classmethod
    def launch(cls, arguments: Sequence[str], gdb_program: str | None = None) -> Self:
        """Start a program, our child with our streams; it waits for the first `stop_at`. `gdb_program` is the gdb to
        take, as for the other ways. Raises AttachError."""
        with _gdb(gdb_program) as (gdb, exits):
            launched = exits.enter_context(Launched(arguments, gdb))
            prepare()
            _admit(gdb, launched.pid, arguments[0])
            session = cls(gdb.link, "launched", launched.pid, arguments[0])
            session.launched = launched
            session.link.ask("watch", True)
            launched.start()
            session._exits = exits.pop_all()
            return session

    @classmethod
    def attach(cls, pid: int, gdb_program: str | None = None) -> Self:
        """Stop a running process. Raises AttachError."""
        with _gdb(gdb_program) as (gdb, exits):
            if gdb.link.guard is not None:
                gdb.link.guard.keep_on()
            files = LoadedFiles(gdb.link, pid)
            prepare()
            files.look_ahead()
            began = _admit(gdb, pid, f"process {pid}")
            session = cls(gdb.link, "pid", pid, f"process {pid} ({program_of(pid)})", files)
            return session._looked(exits, began)

    @classmethod
    def remote(cls, remote: Remote, gdb_program: str | None = None) -> Self:
        """Stop a program that a gdbserver holds. Raises AttachError, and OSError for files that are not there."""
        remote.check()
        with _gdb(gdb_program, remote.machine, remote.name) as (gdb, exits):
            prepare()
            if gdb.link.guard is not None:
                gdb.link.guard.keep_on()
                gdb.link.guard.by, gdb.link.guard.halts = "SIGINT", gdb.halt
            began = remote.join(gdb.link)
            session = cls(gdb.link, "remote", 0, remote.name)
            return session._looked(exits, began)

    @classmethod
    def core(
        cls, core: str, program: str | None = None, sysroot: str | None = None, gdb_program: str | None = None
    ) -> Self:
        """Open a core dump; `program` is what dumped it, if gdb does not find it by itself, `sysroot` a folder with the
        files of the machine that it died on. Raises AttachError."""
        said = read_core(Path(core))
        program = program or program_dumped(said, sysroot)
        if program is not None:
            with open(program, "rb"):  # noqa: PTH123 - it raises what is the matter with it
                pass
        with _gdb(gdb_program, said.machine, core, DeadLink) as (gdb, exits):
            try:
                gdb.link.ask("core", program, core, sysroot)
            except LinkError as error:
                raise AttachError(f"{core}: {error}") from None
            session = cls(gdb.link, "core", 0, core)
            session.dump = said
            if isinstance(gdb.link, DeadLink):
                gdb.link.dump = said
            session.remarks = (*remarks(said, program, sysroot), *(() if has_unicorn() else (NO_UNICORN,)))
            return session._looked(exits)

    @classmethod
    def served(cls, requests: IO[bytes], answers: IO[bytes]) -> Self:
        """The program in the user's own gdb, which is asked through two pipes, and keeps it."""
        link = GdbLink(requests, answers)
        about = link.ask("about")
        if about["core"]:
            link = DeadLink(requests, answers)
        else:
            link.pid = link.ask("readable")
        session = cls(link, "served", about["pid"], Path(about["program"] or "the program").name)
        return session._looked()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        here = not (self.ended or self.link.gone) and self.kind in ("launched", "pid")
        killed = died(self.pid) if here and isinstance(error, AttachError | LinkError) else ""
        if killed:
            self.ended = f"was ended by {killed}" if killed in Signals.__members__ else "has ended"
        self.close()
        if killed:
            raise AttachError(f"{self.name} {self.ended} while it was looked at", refused=True) from None

    @property
    def instance(self) -> Instance:
        """The copy of ggml that is meant. Raises AttachError if there is none, or one that is not known."""
        if not self.instances:
            raise AttachError(self._nothing())
        found = self.instances[self._meant]
        if found.refusal:
            raise AttachError(found.refusal)
        return found

    @property
    def stood_still(self) -> float:
        """How long the program stood still because of us until now, in seconds."""
        return self._still + (time.monotonic() - self._since if self._since is not None else 0.0)

    def mean(self, instance: Instance) -> None:
        """Look at another copy of ggml from now on."""
        self._meant = self.instances.index(instance)

    def look(self) -> bool:
        """Find ggml in the files that are loaded now; whether there is anything new."""
        found = self._files.look()
        if found:
            self.instances = instances_of(
                self.link, self._files.symbols, self._files.tells_structs, self._files.version
            )
            self._meant = 0
        return found

    def stop_at(
        self, functions: Sequence[str], seconds: float | None = None, all_told: float | None = None
    ) -> ProgramStop:
        """Let the program run until it enters one of these functions, in any copy of ggml, loaded yet or not; it stands
        at the very first instruction. `all_told`: how long it is waited for with what came before. Raises
        AttachError if it ends before, or does not come there in time."""
        until = None if seconds is None else time.monotonic() + seconds
        self._set_points(functions)
        while True:
            try:
                stop = self._go(until)
            except Late:
                raise AttachError(
                    self._never(functions, f"was waited for {all_told or seconds:.3g} seconds"), refused=True
                ) from None
            if stop.reason == "breakpoint" and stop.pc in self._functions:
                self._arrived(stop)
                return stop
            if stop.reason in ("exited", "gone"):
                raise AttachError(self._never(functions, self.ended), refused=True)

    def function(self) -> str:
        """The function that the program has just entered, "" elsewhere."""
        return self._functions.get(self.stopped.pc, "") if self.stopped else ""

    def finish(self, seconds: float | None = None) -> ProgramStop:
        """Let it run until the function returns that it has just entered. Raises AttachError if it does not."""
        entered = self.function()
        if self.stopped is None or not entered:
            raise AttachError("the program does not stand at the beginning of a function")
        sp, back = self.link.ask("entered")
        self._set_points(())
        number = self.link.ask("break", [back], self.stopped.thread)
        until = None if seconds is None else time.monotonic() + seconds
        try:
            while True:
                stop = self._go(until)
                if stop.reason == "breakpoint" and stop.pc == back and 0 <= stop.sp - sp <= 8:
                    self.stopped = stop
                    return stop
                if stop.reason in ("exited", "gone"):
                    raise AttachError(f"{self.name} {self.ended}, in {entered}", refused=True)
        except Late:
            raise AttachError(f"{entered} did not return in {seconds:g} seconds", refused=True) from None
        finally:
            with suppress(LinkError):
                self.link.ask("delete", number)

    def go(self, seconds: float | None = None) -> ProgramStop:
        """Let it run until it stops at a breakpoint, whoever's, for so long at most; what else happens to it passes.
        Raises AttachError if it ends before, or does not stop in time."""
        try:
            self.stopped = stop = self._go(None if seconds is None else time.monotonic() + seconds)
        except Late:
            raise AttachError(f"{self.name} did not stop in {seconds:g} seconds", refused=True) from None
        if stop.reason in ("exited", "gone"):
            raise AttachError(f"{self.name} {self.ended}", refused=True)
        return stop

    def pass_by(self) -> None:
        """Stop at no function any more, but where ggml gives up."""
        self._set_points(())

    def detach(self) -> None:
        """Let the program go on by itself; nothing of us is left in it."""
        if not self._attached:
            return
        self._attached = False
        guard = self.link.guard
        if guard is not None:
            guard.leave()
        if self.link.gone:
            self._let_go = True
            self.ended = "was ended"
        with suppress(LinkError):
            self._drain()
            self.link.ask("detach")
            self._let_go = True
        self._goes()

    def close(self) -> None:
        """Let go, and end gdb."""
        try:
            self.detach()
        finally:
            try:
                self._exits.close()
            finally:
                if self._restorer:
                    if not self._let_go:
                        self._restorer.restore()
                    self._restorer.close()

    def wait(self) -> int:
        """What a launched program ends with, as subprocess says it; it was let go before. Its signals of the terminal
        are its own."""
        return self.launched.wait() if self.launched else 0

    def _set_points(self, functions: Sequence[str]) -> None:
        self._wanted = tuple(functions)
        self.link.ask("delete", self._points)
        self._functions = {i.symbols[f]: f for i in self.instances for f in functions if f in i.symbols}
        self._aborts = frozenset(i.symbols[ABORT] for i in self.instances if ABORT in i.symbols) - set(self._functions)
        self._points = self.link.ask("break", [*self._functions, *self._aborts])

    def _go(self, until: float | None) -> ProgramStop:
        """Let it run until something happens that is not ours to pass over. Raises Late."""
        signal: str | None = None
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            stop = self._resume(left, signal)
            signal = None
            guard = self.link.guard
            if stop.reason == "signal":
                if guard and stop.signal == guard.by and guard.halted_in_vain:
                    guard.halted_in_vain = False
                elif stop.signal in _OTHERS:
                    signal = stop.signal
                elif stop.signal in DEADLY and not self._handles(stop.signal):
                    self.stopped = stop
                    raise Dies(self.name, stop.signal)
            elif stop.reason == "exec":
                self._files.forget()
                self.instances = ()
                self.look()
                found = self.instances
                if self.kind == "launched" and not found and any(map(self._files.has_own_ggml, self._files.without)):
                    # A program that we have started does not run at all if its ggml has no symbols.
                    os.kill(self.pid, SIGKILL)
                    self.ended = "was not run"
                    raise AttachError(self._nothing())
                # Where breakpoints were there may be nothing now.
                self._set_points(self._wanted)
            elif stop.reason == "stopped":
                if self.look():
                    self._set_points(self._wanted)
            elif stop.reason == "breakpoint" and stop.pc in self._aborts:
                self._arrived(stop)
                raise Dies(self.name)
            else:
                return stop

    def _handles(self, signal: str) -> bool:
        if self.kind == "remote":
            return handles(self.link.ask("status"), signal)
        with suppress(OSError):
            status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8", errors="replace")
            return handles(status, signal)
        return False

    def _resume(self, seconds: float | None, signal: str | None) -> ProgramStop:
        if self._restorer:
            self._restorer.marks = self.link.marks()
        self._goes()
        self.stopped = None
        try:
            stop = self.link.go(seconds, signal)
        except LinkLost as error:
            if self._restorer:
                self._restorer.restore()
            raise AttachError(f"{error}; {self.name} goes on without it") from None
        self._since = time.monotonic()
        self._children += stop.children
        if stop.reason in ("exited", "gone"):
            self._attached = False
            self._let_go = True
            self._since = None
            how = f"ended with {stop.signal or f'status {stop.status}'}"
            self.ended = "was ended" if stop.reason == "gone" else how
        return stop

    def _goes(self) -> None:
        self._still = self.stood_still
        self._since = None

    def _drain(self) -> None:
        """Take back the signal by which the program should have been halted and was not."""
        guard = self.link.guard
        if guard is not None and guard.halted_in_vain:
            self._set_points(())
            with suppress(Late):
                self._resume(1.0, None)
            guard.halted_in_vain = False

    def _arrived(self, stop: ProgramStop) -> None:
        self.stopped = stop
        self._meant = next(n for n, i in enumerate(self.instances) if stop.pc in i.symbols.values())
        found = self.instances[self._meant]
        if not found.version and found.has("ggml_version"):
            files = self._files
            self.instances = instances_of(self.link, files.symbols, files.tells_structs, files.version, calls=True)

    def _nothing(self) -> str:
        files = self._files
        begun = self.kind in ("pid", "remote")
        child = next(filter(has_ggml, children_of(self.pid)), 0) if self.kind == "pid" else 0
        if child:
            return f"{self.name} has no ggml; its child {child} ({program_of(child)}) has it: ggmltool attach {child}"
        said = nothing_found(self.name, files.symbols, files.without, len(files), begun)
        missing = files.missing if self.kind == "remote" else ()
        if not missing:
            return said
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        return f"{said}; gdb does not have {', '.join(missing[:_NAMED])}{more}: say with --sysroot where they are here"

    def _never(self, functions: Sequence[str], when: str) -> str:
        if not self.instances:
            return f"{self._nothing()}; it {when}{self._started()}"
        missing = [f for f in self.instance.inlined if f in functions]
        if not self._functions:
            has_none = without(missing) if missing else f"has no {' and no '.join(functions)}"
            return f"{self.name} {when}; its ggml ({self.instance.files[0]}){': ' if missing else ' '}{has_none}"
        called = dict.fromkeys(self._functions.values())
        when += f" ({without(missing)})" if missing else ""
        sched = [f for f in called if f.startswith("ggml_backend_sched_")]
        alone = ", or computed a graph without a scheduler" if sched and len(sched) < len(called) else ""
        *others, last = sched or called
        listed = " or ".join([", ".join(others), last] if others else [last])
        return f"{self.name} {when} before it called {listed}{alone}{self._started()}"

    def _started(self) -> str:
        """Other processes, in one of which ggml may be."""
        if not self._children:
            return ""
        started = "another process" if self._children == 1 else f"{self._children} other processes"
        return (
            f". It started {started}, which `attach` does not follow: start the program with ggml itself behind `--`, "
            "or attach to it by its number while it runs"
        )

    def _looked(self, exits: ExitStack | None = None, began: float | None = None) -> Self:
        """This session, which takes over what ends gdb, with ggml found in what is loaded already."""
        self._since = began
        if exits is not None:
            self._exits = exits.pop_all()
        try:
            if self._attached:
                self.link.ask("watch", True)
            self.look()
        except BaseException:
            self.close()
            raise
        return self


def handles(status: str, signal: str) -> bool:
    """Whether a process has a handler for a signal, or ignores it, by the lines of its /proc/PID/status."""
    bit = 1 << (Signals[signal] - 1)
    with suppress(ValueError):
        for line in status.splitlines():
            name, _, mask = line.partition(":")
            if name in ("SigCgt", "SigIgn") and int(mask, 16) & bit:
                return True
    return False


@contextmanager
def _gdb(
    named: str | None, machine: str = "", what: str = "", link: type[GdbLink] = GdbLink
) -> Iterator[tuple[Gdb, ExitStack]]:
    """A gdb that knows a machine ("": ours), and what ends it. Raises AttachError."""
    if sys.platform != "linux":
        raise AttachError("`attach` works on Linux alone: it looks into programs by gdb and /proc")
    with ExitStack() as exits:
        path = gdb_for(machine, named)
        gdb = exits.enter_context(Gdb(path, exits.enter_context(SignalGuard()), link))
        if machine not in ("", own_machine()):
            try:
                knows = gdb.link.ask("knows", machine)
            except LinkLost as error:
                raise AttachError(f"{error}; {why_lost(path, gdb.said())}") from None
            if not knows:
                raise AttachError(lacks(what, machine, path))
        yield gdb, exits


def _admit(gdb: Gdb, pid: int, name: str) -> float:
    try:
        gdb.link.ask("ready")
        began = time.monotonic()
        gdb.link.admit(pid)
    except LinkLost as error:
        raise AttachError(f"{name}: {error}; {why_lost(gdb.path, gdb.said())}") from None
    except LinkError as error:
        raise AttachError(f"cannot attach to {name}: {why_not(pid) or error}") from None
    return began
