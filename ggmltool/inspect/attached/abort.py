"""What the end of a program means: its message explained with the tensor that it means, the devices' answers for it,
and what would have avoided it, each planned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ggmltool.attach.end.ending import Ended
from ggmltool.attach.end.seeking import Suspect
from ggmltool.attach.write.written import GRAPH
from ggmltool.inspect.messages.match import Explained, explained, find
from ggmltool.inspect.opened import Opened
from ggmltool.inspect.what_if import Outcome, changes, try_changes
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import Scenario
from ggmltool.show.document import Row
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


@dataclass(frozen=True, slots=True)
class AbortFacts:
    """The end of a program. `tensors` are those that it may mean, the likeliest first. `explained` is what is known of
    its message, `planned` what our plan of its graph comes to (None: the end did not come while ggml planned),
    `changes` are such that the graph would be planned. `crashed` is the function that a signal came in, `calls` those
    of ggml around it. `without` says why there is no graph."""

    said: str
    message: str
    signal: str
    crashed: str
    thread: int
    calls: tuple[str, ...]
    tensors: tuple[EndTensor, ...]
    explained: Explained | None
    function: str | None
    nodes: int
    leafs: int
    schedulers: int
    planned: EndPlan | None
    changes: tuple[Outcome, ...]
    without: str
    notes: tuple[str, ...]

    @property
    def died(self) -> bool:
        """Whether it did: a core dump may be of a program that went on, which a debugger had stopped."""
        return bool(self.said) or self.signal not in _WENT_ON


_WENT_ON = ("", "SIGTRAP", "SIGSTOP", "SIGINT")


def explain_end(end: Ended) -> AbortFacts:
    """What an end means."""
    abort, snapshot, made = end.abort, end.snapshot, end.written
    tensors = tuple(_meant(end, suspect) for suspect in end.suspects)
    match = find(abort.said) if abort.message else None
    planned = _planned(end)
    return AbortFacts(
        abort.said,
        abort.message,
        abort.signal,
        abort.crashed,
        abort.thread,
        abort.calls,
        tensors,
        explained(match) if match is not None else None,
        snapshot.function if snapshot is not None else None,
        len(snapshot.graph.nodes) if snapshot is not None else 0,
        len(snapshot.graph.leafs) if snapshot is not None else 0,
        end.schedulers,
        planned,
        tuple(_changes(end, tensors)) if planned is not None and planned.same else (),
        end.without,
        (*_refused(end), *(made.notes if made is not None else ())),
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
    nodes = snapshot.graph.nodes if snapshot is not None else ()
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
        backends=tuple(_able(end, tensor, buffer)),
        id=end.written.ids.get(tensor.address) if end.written is not None else None,
        no_data=not tensor.data,
    )


def _able(end: Ended, tensor: TensorStruct, buffer: int) -> Iterator[EndBackend]:
    snapshot, answers = end.snapshot, end.answers
    if snapshot is None or answers is None:
        return
    lies = snapshot.buffers.get(buffer)
    for i, backend in enumerate(snapshot.backends):
        supports = answers.supports.get((tensor.address, i))
        memory = answers.bufts.get((i, lies.buft)) if lies is not None else None
        if supports is not None:
            yield EndBackend(backend.name or f"backend {i}", supports, memory)


def _name(tensor: TensorStruct) -> str:
    return tensor.name.decode("utf-8", "replace")


def _planned(end: Ended) -> EndPlan | None:
    """What the plan comes to of a graph at which ggml gave up while it planned."""
    made, snapshot = end.written, end.snapshot
    if made is None or snapshot is None or snapshot.function is None or not end.abort.message:
        return None
    if "compute" in snapshot.function or snapshot.function not in end.abort.calls:
        return None
    run = Scenario(load_spec(made.document)).start()
    plan = run.reserve(GRAPH) if made.step == "reserve" else run.alloc(GRAPH)
    if plan.ok:
        return EndPlan(None, "", False)
    error = dict(plan.error or {})
    message = str(error.get("message") or "")
    return EndPlan(message, str(error.get("explanation") or ""), message.strip() == end.abort.message.strip())


def _changes(end: Ended, tensors: tuple[EndTensor, ...]) -> list[Outcome]:
    """Changes with which the graph is planned, at the likeliest tensor of the graph."""
    made = end.written
    node = next((t.id for t in tensors if t.id is not None), None)
    if made is None or node is None:
        return []
    opened = Opened(Scenario(load_spec(made.document)))
    # An assignment silences the check and leaves the cause: the backend cannot use the memory.
    tried = (change for change in changes(opened, GRAPH, node, ()) if not change.of_node)
    return try_changes(tried, GRAPH, node, lambda _: True)[:MOST_CHANGES]
