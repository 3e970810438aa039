"""A program that has died, or is about to: what it says, which tensors it means, and the graph that it was at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from msgspec import structs

from ggmltool.attach.calls import COMPUTE, FUNCTIONS
from ggmltool.attach.devices.asking import ask, with_answers, with_devices
from ggmltool.attach.devices.backends import Questions, op_names, type_names
from ggmltool.attach.end.abort import AbortReport, read_abort, read_death
from ggmltool.attach.end.found import Suspect, graph_of, schedulers_dumped, schedulers_held, suspects
from ggmltool.attach.gdb.link import mappings_of
from ggmltool.attach.reading import ProcessReader, read_snapshot
from ggmltool.attach.session import AttachSession
from ggmltool.attach.state import Answers, Snapshot
from ggmltool.attach.write.written import Written, decided, with_assignments, written
from ggmltool.ggml.state import SchedState
from ggmltool.state.errors import AttachError, LinkError

CALLS = FUNCTIONS["any"]
_COMPUTE = COMPUTE[0]


class EndNames(NamedTuple):
    """Names of types by number, of ops by number and first parameter, of the buffer types of buffers by address."""

    types: Mapping[int, str]
    ops: Mapping[tuple[int, int], str]
    buffers: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a program, which is called `name` and whose ggml decides as the release `ggml`; `remarks` are what is
    the matter with its dump. `snapshot`, `answers` and `written` are of the graph that it was at, `decided` what its
    scheduler had decided of it, None of a graph that was not allocated; all None where none was found, which `without`
    then says. `schedulers` is how many there are, `names` what the suspects' types, ops and buffers are called."""

    name: str
    ggml: str
    remarks: tuple[str, ...]
    abort: AbortReport
    suspects: tuple[Suspect, ...]
    names: EndNames
    snapshot: Snapshot | None = None
    answers: Answers | None = None
    written: Written | None = None
    decided: dict[str, Any] | None = None
    without: str = ""
    schedulers: int = 0


def ended(session: AttachSession, sched: int = 0, graph: int = 0, signal: str = "") -> Ended:
    """What can be said of a program that stands at the entry of ggml_abort, has received a signal, or was dumped.
    `sched` and `graph` are those of the call that it was last seen to enter. Raises AttachError."""
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
    reader, without = ProcessReader(session), ""
    snapshot: Snapshot | None
    try:
        reader, state = _schedulers(session, abort, sched)
        snapshot = _snapshot(session, reader, abort, state[0], graph)
    except AttachError as error:
        snapshot, state, without = None, [], str(error)
    graph_of_it = (*snapshot.graph.nodes, *snapshot.graph.leafs) if snapshot is not None else ()
    found = tuple(suspects(link, reader, abort, graph_of_it))
    names, ggml = _names(session, reader, found), session.instance.release.name
    out = Ended(
        session.name, ggml, session.remarks, abort, found, names, snapshot, without=without, schedulers=len(state)
    )
    if snapshot is None:
        return out
    try:
        answers = ask(session, snapshot)
        if session.dump is not None:
            snapshot, answers = with_answers(with_devices(snapshot), answers)
            out = replace(out, snapshot=snapshot)
        made = written(snapshot, answers)
        if not snapshot.sched.is_alloc or snapshot.function not in CALLS[2:]:
            return replace(out, answers=answers, written=made)
        done = decided(snapshot, made.ids, made.names, made.step, answers)
        return replace(out, answers=answers, written=with_assignments(made, done), decided=done)
    except AttachError as error:
        return replace(out, without=str(error))


def _schedulers(session: AttachSession, abort: AbortReport, sched: int) -> tuple[ProcessReader, list[SchedState]]:
    """The scheduler that is meant, and the others, of the first copy of ggml that has one: where the program stands in
    none of them, nothing else tells which one it used. Raises AttachError if there is none."""
    meant = session.instance
    others = [i for i in session.instances if i is not meant and not i.refusal and session.dump is not None]
    why: AttachError | None = None
    for instance in (meant, *others):
        session.mean(instance)
        reader = ProcessReader(session)
        try:
            return reader, _scheduler(session, reader, abort, sched)
        except AttachError as error:
            why = why or error
    session.mean(meant)
    raise why or AttachError("there is no ggml")


def _scheduler(session: AttachSession, reader: ProcessReader, abort: AbortReport, sched: int) -> list[SchedState]:
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


def _snapshot(
    session: AttachSession, reader: ProcessReader, abort: AbortReport, sched: SchedState, graph: int
) -> Snapshot:
    """The graph, as it was when the call came that ended the program. Raises AttachError."""
    if not graph:
        graph = graph_of(session.link, reader, sched, abort.frames).address
    function = next((f for f in CALLS if f in abort.calls), _COMPUTE if sched.is_alloc else CALLS[1])
    if function in CALLS[2:] and not sched.is_alloc:
        function = CALLS[1]
    snapshot = read_snapshot(session, sched.address, graph, function, "within")
    if snapshot.sched.is_reset or snapshot.sched.is_alloc:
        return snapshot
    # Amid splitting or allocating it is neither new nor done. What splitting has set is forgotten, as
    # ggml_backend_sched_reset does; what the user has set cannot be told from it.
    sched = structs.replace(snapshot.sched, is_reset=True, tensor_backend_ids={}, tensor_copies={}, splits=())
    note = "backends that the program may have chosen itself: the scheduler had already begun to choose"
    return replace(snapshot, sched=sched, unread=(*snapshot.unread, note))


def _names(session: AttachSession, reader: ProcessReader, found: Sequence[Suspect]) -> EndNames:
    questions = Questions(session.link, mappings_of(session.link))
    tensors = [s.tensor for s in found]
    buffers = {t.buffer for t in tensors}
    for t in tensors:
        with suppress(LinkError, AttachError):
            buffers.add(reader.tensor(t.view_src).buffer if t.view_src else 0)
    for buffer in buffers - {0}:
        with suppress(LinkError, AttachError):
            (buft,) = reader.fields("ggml_backend_buffer", buffer, "buft")
            (function,) = reader.fields("ggml_backend_buffer_type", buft, "iface.get_name")
            questions.add(buffer, function, "unsigned long", buft)
    names, symbols = questions.words(), session.instance.symbols
    return EndNames(
        type_names(questions, symbols, reader.layout, (t.type for t in tensors)),
        op_names(questions, symbols, reader.layout, ((t.op, t.op_params[0]) for t in tensors)),
        names,
    )
