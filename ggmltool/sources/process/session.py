"""A visit to a program that uses ggml: launched, running, or dumped. It is stopped where it calls ggml, and let go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import IO, Any, Literal, Self

from ggmltool.sources.process.errors import AttachError
from ggmltool.sources.process.instance import SYMBOLS, Instance, instances_of, may_have_ggml
from ggmltool.sources.process.link import Link, LinkError, Stop
from ggmltool.sources.process.program import Gdb, Launched, NoGdb

__all__ = ["AttachError", "Instance", "Session"]

Kind = Literal["launched", "pid", "core", "served"]


class Session:
    """A context manager; at its end the program goes on by itself.

    `link` is the way to gdb, `kind` where the program comes from, `pid` its process (0: a core dump). `instances` are
    the copies of ggml that were found, `instance` the one meant: the one that the program stopped in, else the first.
    """

    def __init__(self, link: Link, kind: Kind, pid: int, exits: ExitStack, launched: Launched | None = None) -> None:
        self.link = link
        self.kind = kind
        self.pid = pid
        self.launched = launched
        self.instances: tuple[Instance, ...] = ()
        self.functions: Mapping[int, str] = {}
        self.stopped: Stop | None = None
        self._exits = exits
        self._meant: Instance | None = None
        self._symbols: dict[str, Mapping[str, int]] = {}
        self._seen: set[str] = set()
        self._points: list[int] = []
        self._attached = kind != "core"

    @classmethod
    def launch(cls, arguments: Sequence[str]) -> Self:
        """Start a program, our child with our streams; it waits for the first `stop_at`. Raises AttachError."""
        with ExitStack() as exits:
            gdb = _gdb(exits)
            launched = Launched(arguments)
            with refusing(f"cannot attach to {arguments[0]}"):
                gdb.link.ask("attach", launched.pid)
            launched.start()
            return cls(gdb.link, "launched", launched.pid, exits.pop_all(), launched)
        raise AssertionError

    @classmethod
    def attach(cls, pid: int) -> Self:
        """Stop a running process. Raises AttachError."""
        with ExitStack() as exits:
            gdb = _gdb(exits)
            with refusing(f"cannot attach to process {pid}"):
                gdb.link.ask("attach", pid)
            session = cls(gdb.link, "pid", pid, exits.pop_all())
            session.look()
            return session
        raise AssertionError

    @classmethod
    def core(cls, core: str, program: str | None = None) -> Self:
        """Open a core dump; `program` is what dumped it, if gdb does not find it by itself. Raises AttachError."""
        with ExitStack() as exits:
            gdb = _gdb(exits)
            with refusing(f"cannot open {core}"):
                gdb.link.ask("core", program, core)
            session = cls(gdb.link, "core", 0, exits.pop_all())
            session.look()
            return session
        raise AssertionError

    @classmethod
    def served(cls, requests: IO[bytes], answers: IO[bytes]) -> Self:
        """The program in the user's own gdb, which is asked through two pipes, and keeps it."""
        link = Link(requests, answers)
        session = cls(link, "served", link.ask("about")["pid"], ExitStack())
        session.look()
        return session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def instance(self) -> Instance:
        """The copy of ggml that is meant. Raises AttachError if there is none."""
        if self._meant is None:
            raise AttachError("no ggml was found in the process")
        return self._meant

    def about(self) -> dict[str, Any]:
        """gdb's version, the architecture, the process, its program and files."""
        return dict(self.link.ask("about"))

    def look(self) -> None:
        """Find ggml in the files that are loaded now."""
        found = False
        for file in self.about()["libraries"]:
            if file not in self._seen:
                self._seen.add(file)
                if may_have_ggml(file, f"/proc/{self.pid}/root" if self.pid else ""):
                    symbols = self.link.ask("symbols", file, SYMBOLS)
                    if symbols:
                        self._symbols[file] = symbols
                        found = True
        if found:
            self.instances = instances_of(self.link, self._symbols, calls=False)
            self._meant = self.instances[0] if self.instances else None

    def stop_at(self, functions: Sequence[str]) -> Stop:
        """Let the program run until it enters one of these functions, in any copy of ggml, loaded yet or not; it stands
        at the very first instruction. Raises AttachError if it ends before."""
        if not self.instances:
            self._until_loaded(functions)
        self._set_points(functions)
        while True:
            self.stopped = stop = self.link.go()
            if stop.reason == "breakpoint" and stop.pc in self.functions:
                self._meant = next(i for i in self.instances if stop.pc in i.symbols.values())
                return stop
            self._goes_on(stop, functions)

    def function(self) -> str:
        """The function that the program has just entered."""
        return self.functions[self.stopped.pc] if self.stopped else ""

    def finish(self) -> Stop:
        """Let it run until the function returns that it has just entered. Raises AttachError if it does not."""
        stop = self.link.finish()
        if stop.reason != "breakpoint":
            raise AttachError(_ended(stop, f"before {self.function()} returned"), refused=True)
        self.stopped = stop
        return stop

    def detach(self) -> None:
        """Let the program go on by itself; nothing of us is left in it."""
        if self._attached and self.kind != "served":
            self._attached = False
            with suppress(LinkError):
                self.link.ask("detach")

    def close(self) -> None:
        """Let go, and end gdb."""
        self.detach()
        self._exits.close()

    def wait(self) -> int:
        """What a launched program ends with, as subprocess says it; it has to be let go before."""
        return self.launched.process.wait() if self.launched else 0

    def _until_loaded(self, functions: Sequence[str]) -> None:
        numbers = self.link.ask("break_on", list(functions))
        while not self.instances:
            stop = self.link.go()
            if stop.reason == "breakpoint":
                self.look()
            else:
                self._goes_on(stop, functions)
        self.link.ask("delete", numbers)

    def _set_points(self, functions: Sequence[str]) -> None:
        self.link.ask("delete", self._points)
        self.functions = {i.symbols[f]: f for i in self.instances for f in functions if f in i.symbols}
        self._points = self.link.ask("break", list(self.functions))

    def _goes_on(self, stop: Stop, functions: Sequence[str]) -> None:
        if stop.reason in ("exited", "gone"):
            self._attached = False
            raise AttachError(_ended(stop, f"before it called {' or '.join(functions)}"), refused=True)


def _gdb(exits: ExitStack) -> Gdb:
    try:
        return exits.enter_context(Gdb())
    except NoGdb as error:
        raise AttachError(str(error)) from None


class refusing:  # noqa: N801 - read as a verb: with refusing(...)
    """What gdb refuses is told as an AttachError that begins with these words."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, LinkError):
            raise AttachError(f"{self._words}: {error}") from None


def _ended(stop: Stop, when: str) -> str:
    if stop.reason == "exited":
        return f"the program ended with status {stop.status} {when}"
    if stop.reason == "signal":
        return f"the program received {stop.signal} {when}"
    return f"the program ended {when}"
