"""Calls of a program that reserve, allocate or compute a graph: which ones are stopped at, each counted once, and what
one decides, from its entry to its return."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, cast

from msgspec import structs

from ggmltool.attach.devices.asking import ask
from ggmltool.attach.gdb.link import Dies
from ggmltool.attach.reading import read_snapshot
from ggmltool.attach.session import AttachSession
from ggmltool.attach.state import Answers, Function, LeftState, Snapshot, left_by
from ggmltool.attach.write.written import Written, decided, with_assignments, written
from ggmltool.state.errors import AttachError
from ggmltool.structs.layout import layout

At = Literal["reserve", "alloc", "compute", "any"]

_SCHEDULER = "ggml_backend_sched_"
_CALLERS = 12
"""So many calls further out a scheduler is at most, where it computes."""

RESERVE: tuple[Function, ...] = ("ggml_backend_sched_reserve",)
ALLOC: tuple[Function, ...] = ("ggml_backend_sched_alloc_graph",)
COMPUTE: tuple[Function, ...] = ("ggml_backend_sched_graph_compute_async", "ggml_backend_sched_graph_compute")


def _by_wish(
    reserve: tuple[Function, ...], alloc: tuple[Function, ...], compute: tuple[Function, ...]
) -> dict[At | None, tuple[Function, ...]]:
    every = reserve + alloc + compute
    return {"reserve": reserve, "alloc": alloc, "compute": compute, "any": every, None: alloc + compute}


FUNCTIONS = _by_wish(RESERVE, ALLOC, COMPUTE)
"""By what was asked for; None: a graph that is computed, when the program lets it be allocated."""
ALONE = _by_wish(
    ("ggml_gallocr_reserve", "ggml_gallocr_reserve_n"),
    ("ggml_gallocr_alloc_graph",),
    ("ggml_backend_graph_compute", "ggml_backend_graph_compute_async"),
)
"""The same of a program that has no scheduler."""


class Called(NamedTuple):
    """A call that the program has just entered: with which scheduler (without one: which graph allocator or backend)
    and graph, in which thread by the system's number. `number` is which of those that are counted it is, from 1;
    `allocated`: the graph was allocated before, so nothing is decided any more."""

    function: Function
    sched: int
    graph: int
    number: int
    allocated: bool
    thread: int = 0


def calls(
    session: AttachSession, at: At | None, seconds: float | None = None, without: bool = False
) -> Iterator[Called]:
    """The calls that count, one after the other; the program stands at the entry of each. A call that ggml makes itself
    within another that counts is not counted again. `seconds`: how long each may be waited for. `without`: those of a
    program that has used no scheduler yet count, too. Raises AttachError where none comes any more."""
    counting = _Counting(session, at, without)
    number = 0
    while True:
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            try:
                session.stop_at(
                    counting.functions, None if until is None else max(0.1, until - time.monotonic()), seconds
                )
            except Dies:
                raise
            except AttachError as error:
                such = "such call" if number == 1 else "such calls"
                before = f"; {number} {such} came before" if number else ""
                raise AttachError(f"{error}{before}", error.refused) from None
            called = counting.counts(number + 1)
            if called is not None:
                break
        number += 1
        yield called


class _Counting:
    """Which stops count: `functions` are those to stop at."""

    def __init__(self, session: AttachSession, at: At | None, without: bool) -> None:
        self.session = session
        self.at = at
        self.functions: tuple[str, ...] = FUNCTIONS[at]
        if without:
            # A scheduler is noticed by any of its calls, whichever count.
            others = (f for f in FUNCTIONS["any"] if f not in self.functions)
            self.functions = (*self.functions, *others, *ALONE[at])
        self.without = without
        self._allocating: set[int] = set()
        self._skipped: set[int] = set()

    def counts(self, number: int) -> Called | None:
        """The call that the program has just entered, if it counts."""
        session = self.session
        name = session.function()
        if self.without and name not in ALONE["any"]:
            self._has_scheduler()
        if name not in self.functions:
            return None
        function = cast("Function", name)
        first, graph = session.link.arguments()[:2]
        if function not in ALONE["any"]:
            session.entered = first, graph
        caller = caller_of(session)
        if self.without and caller.startswith(_SCHEDULER):
            # The program was met in the midst of a graph: each of its splits would stop.
            self._has_scheduler()
            return None
        if caller in (*self.functions, *ALONE["any"]):
            return None
        computes = "compute" in function
        if function in ALONE["any"]:
            if self.without and in_scheduler(session):
                self._has_scheduler()
            # Of a program that was started here every graph was seen when it was allocated.
            seen = graph in self._allocating or session.kind != "launched"
            if not self.without or self._told(computes, seen, graph):
                return None
            allocated = computes
        else:
            is_alloc = (layout(session.instance.structs).struct("ggml_backend_sched").members or {}).get("is_alloc")
            allocated = computes and is_alloc is not None and session.link.read(first + is_alloc.offset, 1) != b"\0"
            if self._told(computes, allocated, first):
                return None
        thread = session.stopped.tid if session.stopped else 0
        return Called(function, first, graph, number, allocated, thread)

    def _has_scheduler(self) -> None:
        self.without = False
        self.functions = FUNCTIONS[self.at]

    def _told(self, computes: bool, allocated: bool, of: int) -> bool:
        """Whether a graph was counted when it was allocated, or is allocated anew the next time, as far as we know."""
        if self.at is not None:
            return False
        if not computes:
            self._allocating.add(of)
            return False
        if allocated and (of in self._allocating or of not in self._skipped):
            self._skipped.add(of)
            return True
        return False


def in_scheduler(session: AttachSession) -> bool:
    """Whether a scheduler is among those who called, as it is of a program that was met in the midst of it."""
    frames = session.link.ask("frames", _CALLERS)
    return any((frame["function"] or "").startswith(_SCHEDULER) for frame in frames)


def caller_of(session: AttachSession) -> str:
    """The function that called the one that the program has just entered, as far as symbols tell."""
    back = session.link.ask("entered")[1]
    return max(((at, name) for name, at in session.instance.symbols.items() if at <= back), default=(0, ""))[1]


@dataclass(frozen=True)
class Visited:
    """What a program had before a call and after it, and what its devices answered then and `later`. What follows from
    that is found out when it is wanted: the program need not stand still for it."""

    before: Snapshot
    after: Snapshot
    answers: Answers
    later: Answers | None

    @property
    def written(self) -> Written:
        """The scenario. Raises AttachError."""
        return self._found[0]

    @property
    def decided(self) -> dict[str, Any]:
        """What the program decided. Raises AttachError."""
        return self._found[1]

    @cached_property
    def _found(self) -> tuple[Written, dict[str, Any]]:
        made = written(self.before, self.answers, self.after, self.later)
        done = decided(self.after, made.ids, made.names, made.step, self.answers)
        if not self.before.sched.address:
            for backend in made.document["backends"]:
                done["buffer_sizes"].setdefault(backend["name"], 0)
        return with_assignments(made, done) if self.after is self.before else made, done

    @property
    def left(self) -> LeftState | None:
        """The state in which the call has left the scheduler, None of a program without one."""
        if not self.before.sched.address:
            return None
        return left_by(self.before, self.after, self.written.names.backends)


def glance(session: AttachSession, called: Called, when: Literal["before", "after"]) -> Snapshot:
    """What a program has before the call that it has just entered, or after it, which lets it return; of a compute of a
    graph that is allocated always before, for it decides nothing. No device is asked. Raises AttachError."""
    if called.allocated or called.function in ALONE["compute"]:
        when = "before"
    if when == "after":
        session.finish()
    return read_snapshot(session, called.sched, called.graph, called.function, when)


def visit(session: AttachSession) -> Visited:
    """Look at the call that the program has just entered, one of `FUNCTIONS`, and let it return. A compute of a graph
    that is allocated, or without a scheduler, decides nothing more: the program stays at its entry. Raises
    AttachError."""
    function = cast("Function", session.function())
    first, graph = session.link.arguments()[:2]
    alone = function not in FUNCTIONS["any"]
    before = read_snapshot(session, first, graph, function, "before")
    answers = ask(session, before)
    if not alone and "compute" in function and before.sched.is_alloc:
        return Visited(before, before, answers, None)
    if alone and not before.lacks_cpu and all(answers.supports.values()):
        # The only backend that there is needs no word of the program's.
        before = replace(before, sched=structs.replace(before.sched, tensor_backend_ids={}))
    if function not in ALONE["compute"]:
        session.finish()
    after = read_snapshot(session, first, graph, function, "after", before)
    return Visited(before, after, answers, None if alone else ask(session, after))
