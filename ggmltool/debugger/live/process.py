"""A program that stands still in the user's gdb: which ggml it has, what it is busy with, what was read of it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NamedTuple

from ggmltool.ask.attach.records import NamedSnapshot
from ggmltool.attach.end.found import FoundScheduler, find, graph_of, is_graph, is_scheduler
from ggmltool.attach.gdb.link import GdbLink
from ggmltool.attach.reading import ProcessReader, read_snapshot, structs_of
from ggmltool.attach.session import AttachSession
from ggmltool.attach.state import Snapshot
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.expressions.evaluate import evaluate
from ggmltool.debugger.expressions.values import CValue
from ggmltool.debugger.live.scope import LiveMemory, LiveScope
from ggmltool.scenario.errors import nearest
from ggmltool.show.table import Style
from ggmltool.show.text import printable
from ggmltool.state.errors import AttachError, LinkError
from ggmltool.structs.declarations import ExpressionError
from ggmltool.structs.layout import Layout
from ggmltool.structs.types import Pointer, Struct, bare

_UNLIMITED = 10_000
_NOT_RUN = "the program is not being run"
_MOST_TENSORS = 1 << 20


class GdbCommand(NamedTuple):
    """A command as gdb sends it. `width` is that of gdb (None: no limit), `process` changes when the program or its
    files do, `moment` whenever it has run; `seen` is the last call that `ggml watch` noted: the addresses of function,
    scheduler and graph."""

    verb: str
    argument: str
    width: int | None
    color: bool
    folder: str
    process: tuple[int, ...]
    moment: int
    seen: tuple[Any, ...]
    running: bool

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> GdbCommand:
        """What a message says."""
        return cls(**{**message, "process": tuple(message["process"]), "seen": tuple(message["seen"])})

    @property
    def style(self) -> Style:
        """The room and the colors of gdb's terminal."""
        return Style(max(self.width or _UNLIMITED, 20), "256" if self.color else "")

    @property
    def words(self) -> list[str]:
        """The words of the argument; what is quoted is one."""
        return words_of(self.argument)

    def path(self, name: str) -> Path:
        """A file that was named, from where gdb runs."""
        return Path(self.folder, Path(name).expanduser())


def words_of(text: str) -> list[str]:
    """The words of a text; what is quoted is one."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


class GdbServer:
    """Keeps what it knows of a process as long as that lives, and of a moment until the program runs again."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        self._streams = requests, answers
        self.link = GdbLink(requests, answers)
        self._key: tuple[int, ...] | None = None
        self._moment = -1
        self._stopped: StoppedProcess | None = None
        self._variables: dict[str, CValue] = {}

    def stopped(self, command: GdbCommand) -> StoppedProcess:
        """The process as it stands. Raises AttachError where there is none, or no ggml in it."""
        if command.running:
            raise AttachError("the program runs; interrupt it first")
        if self._stopped is None or self._key != command.process:
            before = self._stopped
            self._stopped = None
            if before is not None:
                before.link.close()
            session = AttachSession.served(*self._streams)
            if not session.instances:
                if not session.link.ask("threads"):
                    raise AttachError(_NOT_RUN)
                pid = command.process[1]
                where = f"process {pid} has loaded" if pid else "what gdb has loaded has"
                raise AttachError(
                    f"no ggml was found: {where} no file with ggml_backend_sched_new. If it comes later, stop there: "
                    "break ggml_backend_sched_new"
                )
            self._stopped = StoppedProcess(session, self._variables)
            if before is not None and before.pid == command.process[1]:
                self._stopped.remember(before)
            self._key = command.process
            self._moment = command.moment
        if self._moment != command.moment:
            self._stopped.move()
            self._moment = command.moment
        self._stopped.seen = command.seen
        return self._stopped


class StoppedProcess:
    """A process with ggml: what is looked at in it, and what was read since it stands still. `made`: the scenario of
    it, until it moves."""

    def __init__(self, session: AttachSession, variables: dict[str, CValue]) -> None:
        self.session = session
        self.link = session.link
        self.pid = session.pid
        self.memory = LiveMemory(self.link)
        self.seen: tuple[Any, ...] = ()
        self.chosen = FoundScheduler(0, 0)
        self.made: object = None
        self._variables = variables
        self._last = FoundScheduler(0, 0)

    def remember(self, other: StoppedProcess) -> None:
        """Look at what another visit to the same process looked at: more files are loaded now."""
        self.chosen, self._last = other.chosen, other._last

    def move(self) -> None:
        """The program has run since."""
        self.memory.forget()
        for name in ("found", "scope", "tensors", "snapshot", "named"):
            self.__dict__.pop(name, None)
        self.made = None

    @cached_property
    def layouts(self) -> Sequence[Layout]:
        """The structs of each copy of ggml, as debug information tells them where there is some."""
        return [structs_of(self.link, copy) for copy in self.session.instances]

    @property
    def layout(self) -> Layout:
        """The structs of its ggml: of the copy that the scheduler belongs to."""
        return self.layouts[self.session.instances.index(self.session.instance)]

    def offset(self, struct: str, field: str) -> int:
        """Where a field lies in a struct of its ggml."""
        return (self.layout.structs[struct].members or {})[field].offset

    @cached_property
    def found(self) -> FoundScheduler:
        """The scheduler and the graph: those that were chosen, those that the program is busy with, those of the last
        call that was noted, those of before. Raises AttachError if there are none."""
        copies = self.session.instances
        noted = [i for i, copy in enumerate(copies) if self.seen and int(self.seen[0]) in copy.symbols.values()]
        seen = FoundScheduler(int(self.seen[1]), int(self.seen[2]), copy=noted[0]) if noted else FoundScheduler(0, 0)
        busy = FoundScheduler(0, 0) if self.chosen.sched else find(self.link, copies, self.layouts)
        for found in (self.chosen, busy, seen, self._last):
            self.session.mean(copies[found.copy])
            if found.sched and is_scheduler(self.link, self.layout, found.sched):
                self._last = self._with_graph(found)
                return self._last
        if not self.link.ask("threads"):
            raise AttachError(_NOT_RUN)
        raise AttachError(
            "no scheduler was found on the stack; stop in a function of it (break ggml_backend_sched_alloc_graph), let "
            "`ggml watch` remember its calls, or name one: ggml use ADDRESS"
        )

    def _with_graph(self, found: FoundScheduler) -> FoundScheduler:
        """With the graph of before, or the scheduler's own copy, where none was found."""
        seen = int(self.seen[2]) if self.seen and int(self.seen[1]) == found.sched else 0
        last = self._last.graph if self._last.sched == found.sched else 0
        for graph in (found.graph, seen, last):
            if graph and is_graph(self.link, self.layout, graph):
                return found._replace(graph=graph)
        reader = ProcessReader(self.session)
        try:
            return found._replace(graph=graph_of(self.link, reader, reader.sched(found.sched)).address)
        except (AttachError, LinkError):
            return found._replace(graph=self.own_graph(found.sched))

    def own_graph(self, sched: int) -> int:
        """The scheduler's copy of the graph, with what it has put into it."""
        return sched + self.offset("ggml_backend_sched", "graph")

    def choose(self, sched: int, graph: int) -> None:
        """Look at these from now on, in whichever copy of ggml they are. Raises CommandError for what is none."""
        for number, structs in enumerate(self.layouts):
            if is_scheduler(self.link, structs, sched):
                if graph and not is_graph(self.link, structs, graph):
                    raise CommandError(f"there is no graph at {graph:#x}")
                self.chosen = FoundScheduler(sched, graph, copy=number)
                self.move()
                return
        raise CommandError(f"there is no scheduler at {sched:#x}")

    @cached_property
    def tensors(self) -> Mapping[str, int]:
        """The tensors of the graph by name, its nodes first; of several with one name the first. Raises AttachError."""
        addresses: list[int] = []
        at = self.found.graph
        for part in ("nodes", "leafs"):
            n = self.memory.number(at + self.offset("ggml_cgraph", f"n_{part}"), 4)
            pointer = self.memory.number(at + self.offset("ggml_cgraph", part))
            addresses += self.memory.numbers(pointer, min(n, _MOST_TENSORS))
        name = self.offset("ggml_tensor", "name")
        names = self.link.read_many([(address + name, 64) for address in addresses])
        out: dict[str, int] = {}
        for address, raw in zip(addresses, names, strict=True):
            said = raw.partition(b"\0")[0].decode("utf-8", "surrogateescape")
            if said:
                out.setdefault(said, address)
        return out

    def tensor_named(self, name: str) -> int:
        """The address of a tensor of the graph. Raises CommandError with the nearest name."""
        found = self.tensors.get(name)
        if found is None:
            near = nearest(name, list(self.tensors))
            hint = f" Did you mean {printable(near)}?" if near else ""
            raise CommandError(f"No tensor of the graph is called {printable(name)}.{hint}")
        return found

    def tensor_at(self, text: str) -> int:
        """The tensor of a name, else that which an expression points to. Raises CommandError."""
        if not text:
            raise CommandError("Name a tensor, or write an expression that points to one.")
        name = words_of(text)
        if len(name) == 1 and name[0] in self.tensors:
            return self.tensors[name[0]]
        known = self.named.named(name[0]) if len(name) == 1 else None
        if known is not None:
            return known
        try:
            value = evaluate(text, self.scope)
        except ExpressionError:
            if text.isidentifier() or (len(name) == 1 and not set(text) & set("*&()[]>")):
                return self.tensor_named(name[0])
            raise
        t = value.bare
        target = bare(t.to) if isinstance(t, Pointer) else t
        if isinstance(target, Struct) and target.name != "ggml_tensor":
            raise CommandError(f"That is no tensor but a {value.type_name()}.")
        return (value.address or 0) if isinstance(t, Struct) else value.integer()

    @cached_property
    def snapshot(self) -> Snapshot:
        """All that the program holds of them now. Raises AttachError."""
        return read_snapshot(self.session, self.found.sched, self.found.graph, None, "within")

    @cached_property
    def named(self) -> NamedSnapshot:
        """The same with names. Raises AttachError."""
        return NamedSnapshot(self.snapshot)

    def named_with(self, tensor: int) -> NamedSnapshot:
        """The same, with a tensor that need not be of the graph. Raises AttachError for what is none."""
        seen = self.named
        if tensor in seen.snapshot.tensors:
            return seen
        try:
            state = ProcessReader(self.session).tensor(tensor)
        except LinkError:
            raise CommandError(f"there is no tensor at {tensor:#x}") from None
        return NamedSnapshot(replace(seen.snapshot, tensors={**seen.snapshot.tensors, tensor: state}))

    @cached_property
    def scope(self) -> LiveScope:
        """Where expressions are asked."""
        things: Mapping[str, int] = {}
        tensors: Mapping[str, int] = {}
        try:
            found = self.found
            at = found.sched + self.offset("ggml_backend_sched", "galloc")
            things = {"sched": found.sched, "graph": found.graph, "galloc": self.memory.number(at)}
            tensors = self.tensors
        except AttachError:
            pass
        ggml = self.session.instance
        return LiveScope(
            self.link, self.memory, self.layout, things, tensors, ggml.symbols, ggml.release, self._variables
        )  # fmt: skip
