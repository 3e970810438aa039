"""A program that has died, or is about to: what it says, which tensors it means, and the graph that it was at."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ggmltool.sources.process.aborted import Abort, read_abort, read_death
from ggmltool.sources.process.asking import ask
from ggmltool.sources.process.assigned import with_assignments
from ggmltool.sources.process.decided import decided
from ggmltool.sources.process.errors import AttachError
from ggmltool.sources.process.link import LinkError
from ggmltool.sources.process.reading import Reader, read_snapshot
from ggmltool.sources.process.seeking import graph_of, schedulers_dumped, schedulers_held
from ggmltool.sources.process.session import Session
from ggmltool.sources.process.state import Answers, Function, SchedState, Snapshot
from ggmltool.sources.process.suspects import Suspect, suspects
from ggmltool.sources.process.written import Written, written

CALLS: tuple[Function, ...] = (
    "ggml_backend_sched_reserve",
    "ggml_backend_sched_alloc_graph",
    "ggml_backend_sched_graph_compute_async",
    "ggml_backend_sched_graph_compute",
)
_COMPUTE: Function = "ggml_backend_sched_graph_compute_async"


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a program. `snapshot`, `answers` and `written` are of the graph that it was at, `decided` what its
    scheduler had decided of it, None of a graph that was not allocated; all None where none was found, which
    `without` then says. `schedulers` is how many there are."""

    abort: Abort
    suspects: tuple[Suspect, ...]
    snapshot: Snapshot | None = None
    answers: Answers | None = None
    written: Written | None = None
    decided: dict[str, Any] | None = None
    without: str = ""
    schedulers: int = 0


def ended(session: Session, sched: int = 0, graph: int = 0, signal: str = "") -> Ended:
    """What can be said of a program that stands at the entry of ggml_abort, has received a signal, or was dumped.

    `sched` and `graph` are those of the call that it was last seen to enter. Raises AttachError.
    """
    link, thread = session.link, session.stopped.thread if session.stopped else 0
    try:
        if session.dump is not None:
            abort = read_death(link, session.dump.signal)
        elif signal:
            abort = read_death(link, signal, thread)
        else:
            abort = read_abort(link, thread)
    except LinkError as error:
        raise AttachError(f"gdb could not read where the program stands: {error}") from None
    reader = Reader(session)
    try:
        state = _scheduler(session, reader, abort, sched)
        snapshot = _snapshot(session, reader, abort, state[0], graph)
    except AttachError as error:
        return Ended(abort, tuple(suspects(link, reader, abort)), without=str(error))
    found = suspects(link, reader, abort, (*snapshot.graph.nodes, *snapshot.graph.leafs))
    out = Ended(abort, tuple(found), snapshot, schedulers=len(state))
    try:
        answers = ask(session, snapshot)
        made = written(snapshot, answers)
        if not snapshot.sched.is_alloc or not _computes(snapshot):
            return replace(out, answers=answers, written=made)
        done = decided(snapshot, made.ids, made.names, made.step, answers)
        return replace(out, answers=answers, written=with_assignments(made, done), decided=done)
    except AttachError as error:
        return replace(out, without=str(error))


def _scheduler(session: Session, reader: Reader, abort: Abort, sched: int) -> list[SchedState]:
    """The scheduler that is meant, and the others. Raises AttachError if there is none."""
    if sched:
        with suppress(LinkError, AttachError):
            return [reader.sched(sched)]
    held = schedulers_held(session.link, reader, abort.frames)
    if session.dump is None:
        if not held:
            raise AttachError("it was in no call of a scheduler")
        return held
    first = {s.address for s in held}
    others = [s for s in schedulers_dumped(reader, session.dump) if s.address not in first]
    if not held and not others:
        raise AttachError("there is no scheduler in the memory of the core dump")
    return [*held, *others]


def _snapshot(session: Session, reader: Reader, abort: Abort, sched: SchedState, graph: int) -> Snapshot:
    """The graph, as it was when the call came that ended the program. Raises AttachError."""
    if not graph:
        graph = graph_of(session.link, reader, sched, abort.frames).address
    function = next((f for f in CALLS if f in abort.calls), _COMPUTE if sched.is_alloc else CALLS[1])
    if function in CALLS[2:] and not sched.is_alloc:
        function = CALLS[1]
    snapshot = read_snapshot(session, sched.address, graph, function, "within")
    return _as_before(snapshot) if _is_amid(snapshot.sched) else snapshot


def _computes(snapshot: Snapshot) -> bool:
    return snapshot.function in CALLS[2:]


def _is_amid(sched: SchedState) -> bool:
    """Whether it was amid splitting or allocating: it is neither new nor done then."""
    return not sched.is_reset and not sched.is_alloc


def _as_before(snapshot: Snapshot) -> Snapshot:
    """What splitting has set is forgotten, as ggml_backend_sched_reset does; what the user has set cannot be told from
    it."""
    sched = replace(snapshot.sched, is_reset=True, backend_ids={}, copies={}, splits=())
    note = "backends that the program may have chosen itself: the scheduler had already begun to choose"
    return replace(snapshot, sched=sched, unread=(*snapshot.unread, note))


def names_of(found: Sequence[Suspect]) -> list[str]:
    """The names of tensors, as their program has them."""
    return [s.tensor.name.decode("utf-8", "replace") for s in found]
