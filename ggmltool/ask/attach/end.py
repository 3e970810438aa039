"""The end of a program: its message explained with the tensor that it means, and what would have avoided it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec.structs import astuple

from ggmltool.ask.explain.text import moves
from ggmltool.attach.end.ending import Ended
from ggmltool.attach.end.found import Suspect
from ggmltool.attach.write.written import GRAPH
from ggmltool.inspect.messages.match import explained, find
from ggmltool.inspect.opened import Opened
from ggmltool.inspect.what_if import OutcomeRow, changes, outcomes
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.show.document import ReleaseDocument, Row
from ggmltool.show.table import Column, Style, Table, heading, render_lines
from ggmltool.show.text import count, dims, printable, wrapped
from ggmltool.state.memory.tensors import TensorStruct

MOST_CHANGES = 5


class EndBackend(Row):
    """What a backend answered for a tensor: whether it supports the op, and can use the memory that the tensor lies in
    (null: not asked, or it lies nowhere)."""

    backend: str
    op: bool | None
    memory: bool | None


class EndTensor(Row):
    """A tensor that the end may be about: `buffer` is the type of its buffer (null: it has none), `node` its number in
    the graph, `known_by` how it was found (message, named, argument, register, stack), `place` and `holder` where. `id`
    is what the scenario calls it, null if it is no part of the graph."""

    name: str
    op: str
    type: str
    ne: tuple[int, ...]
    buffer: str | None
    view_of: str | None
    node: int | None
    known_by: str
    place: str
    holder: str
    backends: tuple[EndBackend, ...]
    id: str | None
    no_data: bool


class EndPlan(Row):
    """What our plan of the same graph comes to: ggml's words where it is refused; `same`: those of the program."""

    message: str | None
    explanation: str
    same: bool


class EndMeaning(Row):
    """What the message means, what brings it about, what to do, and which command tells more."""

    key: str
    means: str
    shapes: str
    remedy: str
    ask: str


class EndChange(Row):
    """A change with which the graph is planned, and what that comes to."""

    change: str
    backend: str | None
    splits: int
    copied: int


class EndDocument(ReleaseDocument, kw_only=True):
    """The end of a program, and the graph that it was at. `crashed` is the function that a signal came in, `calls` are
    those of ggml around it, `tensors` those that it may mean, the likeliest first. `died` is false of a core dump of a
    program that had not. `plan` is what our plan of the graph comes to, null where the end did not come while ggml
    planned; `without` says why there is no graph, `notes` what could not be known."""

    main_table = "tensors"
    kind: Literal["attach_end"] = "attach_end"
    name: str
    said: str
    message: str
    signal: str
    crashed: str
    died: bool
    thread: int
    calls: tuple[str, ...]
    tensors: tuple[EndTensor, ...]
    meaning: EndMeaning | None
    function: str | None
    nodes: int
    leafs: int
    schedulers: int
    plan: EndPlan | None
    changes: list[EndChange]
    without: str
    notes: tuple[str, ...]


_WENT_ON = ("", "SIGTRAP", "SIGSTOP", "SIGINT")
"""Signals of a core dump that a debugger made of a program that went on."""


def explain_end(end: Ended) -> EndDocument:
    """What an end means."""
    abort, snapshot, made = end.abort, end.snapshot, end.written
    tensors = tuple(_meant(end, suspect) for suspect in end.suspects)
    match = find(abort.said) if abort.message else None
    told = explained(match) if match is not None else None
    planned = _planned(end)
    return EndDocument(
        ggml=end.ggml,
        name=end.name,
        said=abort.said,
        message=abort.message,
        signal=abort.signal,
        crashed=abort.crashed,
        died=bool(abort.said) or abort.signal not in _WENT_ON,
        thread=abort.thread,
        calls=abort.calls,
        tensors=tensors,
        meaning=EndMeaning(told.key, *told.told) if told is not None else None,
        function=snapshot.function if snapshot is not None else None,
        nodes=len(snapshot.graph.nodes) if snapshot is not None else 0,
        leafs=len(snapshot.graph.leafs) if snapshot is not None else 0,
        schedulers=end.schedulers,
        plan=planned,
        changes=_changes(end, tensors) if planned is not None and planned.same else [],
        without=end.without,
        notes=(*end.remarks, *_refused(end), *(made.notes if made is not None else ())),
    )


def _refused(end: Ended) -> Iterator[str]:
    """The first buffer that the graph's places lie in and that is not there: ggml_gallocr_reserve_n stops at it, and a
    program that does not look at what that returns goes on to ggml_gallocr_alloc_graph."""
    snapshot = end.snapshot
    if snapshot is None or "ggml_gallocr_alloc_graph" not in end.abort.calls:
        return
    galloc = snapshot.sched.galloc
    for buft, chunks, made in zip(galloc.bufts, galloc.buf_tallocs, galloc.buffers, strict=True):
        for i, chunk in enumerate(chunks):
            if chunk.max_size and i >= len(made):
                name = snapshot.bufts[buft].name if buft in snapshot.bufts else None
                where = f"{name or 'a device'} has no buffer of {chunk.max_size} bytes for chunk {i} of the graph"
                yield f"{where}: it gave no memory, and ggml went on without"
                return


def _meant(end: Ended, suspect: Suspect) -> EndTensor:
    tensor, names, snapshot = suspect.tensor, end.names, end.snapshot
    root = snapshot.tensors.get(tensor.view_src) if snapshot is not None else None
    buffer = tensor.buffer or (root.buffer if root is not None else 0)
    nodes, backends = snapshot.graph.nodes if snapshot is not None else (), []
    if snapshot is not None and end.answers is not None:
        lies = snapshot.buffers.get(buffer)
        for i, backend in enumerate(snapshot.backends):
            supports = end.answers.supports.get((tensor.address, i))
            memory = end.answers.bufts.get((i, lies.buft)) if lies is not None else None
            if supports is not None:
                backends.append(EndBackend(backend.name or f"backend {i}", supports, memory))
    return EndTensor(
        name=_name(tensor),
        op=names.ops.get((tensor.op, tensor.op_params[0]), f"op {tensor.op}"),
        type=names.types.get(tensor.type, f"type {tensor.type}"),
        ne=tensor.ne,
        buffer=names.buffers.get(buffer, "") if buffer else None,
        view_of=_name(root) if root is not None else None,
        node=nodes.index(tensor.address) if tensor.address in nodes else None,
        known_by=suspect.how,
        place=suspect.place,
        holder=suspect.holder,
        backends=tuple(backends),
        id=end.written.ids.get(tensor.address) if end.written is not None else None,
        no_data=not tensor.data,
    )


def _name(tensor: TensorStruct) -> str:
    return tensor.name.decode("utf-8", "replace")


def _planned(end: Ended) -> EndPlan | None:
    """What the plan comes to of a graph at which ggml gave up while it planned."""
    made, snapshot = end.written, end.snapshot
    if made is None or snapshot is None or snapshot.function is None or not end.abort.message:
        return None
    if "compute" in snapshot.function or snapshot.function not in end.abort.calls:
        return None
    run = LoadedScenario(load_spec(made.document)).start()
    plan = run.reserve(GRAPH) if made.step == "reserve" else run.alloc(GRAPH)
    if plan.ok:
        return EndPlan(None, "", False)
    error = dict(plan.error or {})
    message = str(error.get("message") or "")
    return EndPlan(message, str(error.get("explanation") or ""), message.strip() == end.abort.message.strip())


def _changes(end: Ended, tensors: tuple[EndTensor, ...]) -> list[EndChange]:
    """Changes with which the graph is planned, at the likeliest tensor of the graph."""
    made = end.written
    node = next((t.id for t in tensors if t.id is not None), None)
    if made is None or node is None:
        return []
    opened = Opened(LoadedScenario(load_spec(made.document)))
    # An assignment silences the check and leaves the cause: the backend cannot use the memory.
    tried = (change for change in changes(opened, GRAPH, node, ()) if not change.of_node)
    return [EndChange(*astuple(found)) for found in outcomes(tried, GRAPH, node, lambda _: True)[:MOST_CHANGES]]


_SIGNALS = {
    "SIGSEGV": "It read or wrote where it has no memory.",
    "SIGBUS": "It read or wrote beyond a mapped file, or where its memory is gone.",
    "SIGFPE": "It divided by zero.",
    "SIGILL": "It came to an instruction that this processor does not have: a ggml that was built for another one.",
    "SIGABRT": "It called abort() itself.",
}
_CALLS = 6
_LONGEST = 120


def abort_view(facts: EndDocument, title: str, style: Style) -> str:
    """All of it."""
    # The name of a function of C++ can be as long as a page.
    crashed = facts.crashed if len(facts.crashed) <= _LONGEST else f"{facts.crashed[: _LONGEST - 1]}…"
    where = crashed or "code outside of ggml"
    said = facts.said or (f"{facts.signal} in {where}" if facts.died else f"stopped in {where}")
    told = [title]
    if facts.calls:
        more = len(facts.calls) - _CALLS
        told.append("in " + " ← ".join(facts.calls[:_CALLS]) + (f" and {more} more" if more > 0 else ""))
    if facts.signal and facts.said:
        told.append(facts.signal)
    if facts.thread > 1:
        told.append(f"thread {facts.thread}")
    name = "Changes with which this graph is planned (each one verified by planning)"
    return "".join(
        [
            heading(printable(said), told, style),
            render_lines(list(_graph(facts, style)), style),
            *_tensors(facts.tensors, style),
            render_lines(list(_meaning(facts, style)), style),
            *moves("to", {}).section(name, [OutcomeRow(*astuple(change)) for change in facts.changes], style),
        ]
    )


def _graph(facts: EndDocument, style: Style) -> Iterator[str]:
    if facts.function is not None:
        of = f" (of {facts.schedulers} schedulers)" if facts.schedulers > 1 else ""
        yield f"graph of {facts.function}{of}: {count(facts.nodes, 'node')}, {count(facts.leafs, 'leaf')}"
    if facts.without:
        yield from wrapped(f"no graph: {facts.without}", style.width)
    yield from (line for note in facts.notes for line in wrapped(f"note: {note}", style.width))


def _known(t: EndTensor) -> str:
    holder = t.holder or "a function without a symbol"
    return {
        "message": "the message has its name",
        "named": "the message has a name that is its",
        "argument": f"{t.place} of {holder}",
        "register": f"register {t.place} of {holder}",
    }.get(t.known_by, f"stack of {holder}")


def _lies(t: EndTensor) -> str:
    if t.buffer is None:
        return "no buffer" if t.no_data else "data without a buffer"
    return t.buffer or "a buffer without a name"


_ANSWERS = {(True, True): "yes", (True, False): "not its memory", (False, True): "not the op",
            (False, False): "neither op nor memory", (True, None): "yes", (False, None): "no"}  # fmt: skip


def _answers(t: EndTensor) -> str | None:
    return ", ".join(f"{a.backend}: {_ANSWERS[bool(a.op), a.memory]}" for a in t.backends) or None


_COLUMNS: tuple[Column[EndTensor], ...] = (
    Column("tensor", cut=True, get=lambda t: printable(t.name) or "(no name)"),
    Column("op", get=lambda t: t.op),
    Column("type", get=lambda t: t.type),
    Column("shape", get=lambda t: dims(t.ne)),
    Column("lies in", cut=True, get=_lies),
    Column("place", drop=2, get=lambda t: f"node {t.node}" if t.node is not None else None if t.id is None else "leaf"),
)
_TOLD: tuple[Column[EndTensor], ...] = (
    Column("supported by", cut=True, drop=4, get=_answers),
    Column("known by", cut=True, drop=3, get=_known),
)
_WIDE = 100
"""Terminal columns from which each tensor fits on one line."""


def _tensors(tensors: Sequence[EndTensor], style: Style) -> list[str]:
    name = "Tensors that it may be about" if len(tensors) > 1 else "Tensor"
    if style.width >= _WIDE or not tensors:
        return Table(*_COLUMNS, *_TOLD).section(name, tensors, style)
    below = [" · ".join(filter(None, (printable(t.name) or "(no name)", _answers(t), _known(t)))) for t in tensors]
    lines = [line for text in below for line in wrapped(text, style.width)]
    return [*Table(*_COLUMNS).section(name, tensors, style), render_lines(lines, style)]


def _meaning(facts: EndDocument, style: Style) -> Iterator[str]:
    told, planned = facts.meaning, facts.plan
    texts: list[tuple[str, str]] = []
    if told is not None:
        remedy = told.remedy.strip()
        remedy = f"{remedy[:1].upper()}{remedy[1:]}" + ("" if remedy.endswith(".") else ".") if remedy else ""
        texts = [("What it means", told.means), ("What causes it", told.shapes), ("What to do", remedy)]
    elif facts.died:
        said = [_SIGNALS.get(facts.signal, "")]
        empty = [t.name for t in facts.tensors if t.no_data]
        if empty:
            said.append(f"{empty[0] or 'A tensor'} that it had in hand has no memory (its data is NULL).")
        texts = [("What it means", " ".join(said).strip())]
    if planned is not None and planned.same:
        text = "The plan of this graph, with what the program's devices answer, ends with the same words"
        texts.append(("The plan", ": ".join(filter(None, (text, planned.explanation.rstrip(".")))) + "."))
    elif planned is not None and planned.message is not None:
        texts.append(("The plan", f"The plan of this graph ends otherwise: {planned.message}"))
    elif planned is not None:
        text = "The plan of this graph goes through: what the program ran into is not in its scenario."
        texts.append(("The plan", text))
    for name, text in texts:
        if text:
            yield from ("", name, *wrapped(printable(text), style.width))
    if told is not None and told.ask:
        yield from ("", f"See also: ggmltool {told.ask}")
