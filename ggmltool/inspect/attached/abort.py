"""What the end of a program means: its message explained with the tensor that it means, the devices' answers for it,
and what would have avoided it, each planned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ggmltool.attach.end.ending import Ended
from ggmltool.attach.end.seeking import Suspect
from ggmltool.attach.state import TensorState
from ggmltool.attach.write.written import GRAPH
from ggmltool.inspect.messages.explain import Explained, explained
from ggmltool.inspect.messages.match import find
from ggmltool.inspect.node import changes
from ggmltool.inspect.opened import Opened
from ggmltool.inspect.what_if import Outcome, try_changes
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import Scenario

MOST_CHANGES = 5


class Able(NamedTuple):
    """What a backend answered for a tensor: whether it supports the op, and can use the memory that the tensor lies in
    (None: not asked, or it lies nowhere)."""

    backend: str
    op: bool | None
    memory: bool | None


class Meant(NamedTuple):
    """A tensor that an end may be about. `buffer` is the type of the buffer that it lies in, None if in none; `view_of`
    the tensor that it is a view of. `how`, `place` and `holder` are those of `Suspect`; `id` is what it is called in
    the scenario, None if it is no part of the graph, `position` its number among the nodes, None of what is no node."""

    name: str
    id: str | None
    op: str
    type: str
    ne: tuple[int, ...]
    buffer: str | None
    view_of: str | None
    no_data: bool
    how: str
    place: str
    holder: str
    position: int | None
    able: tuple[Able, ...]


class Planned(NamedTuple):
    """What a plan of the graph comes to: ggml's words where it is refused. `same`: those that the program died with."""

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
    tensors: tuple[Meant, ...]
    explained: Explained | None
    function: str | None
    nodes: int
    leafs: int
    schedulers: int
    planned: Planned | None
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
    for buft, chunks in zip(galloc.bufts, galloc.chunks, strict=True):
        for i, chunk in enumerate(chunks):
            if chunk.max_size and not chunk.buffer:
                name = snapshot.bufts[buft].name if buft in snapshot.bufts else None
                where = f"{name or 'a device'} has no buffer of {chunk.max_size} bytes for chunk {i} of the graph"
                yield f"{where}: it gave no memory, and ggml went on without"
                return


def _meant(end: Ended, suspect: Suspect) -> Meant:
    tensor, names, snapshot = suspect.tensor, end.names, end.snapshot
    root = snapshot.tensors.get(tensor.view_src) if snapshot is not None else None
    buffer = tensor.buffer or (root.buffer if root is not None else 0)
    nodes = snapshot.graph.nodes if snapshot is not None else ()
    return Meant(
        _name(tensor),
        end.written.ids.get(tensor.address) if end.written is not None else None,
        names.ops.get((tensor.op, tensor.op_params[0]), f"op {tensor.op}"),
        names.types.get(tensor.type, f"type {tensor.type}"),
        tensor.ne,
        names.buffers.get(buffer, "") if buffer else None,
        _name(root) if root is not None else None,
        not tensor.data,
        suspect.how,
        suspect.place,
        suspect.holder,
        nodes.index(tensor.address) if tensor.address in nodes else None,
        tuple(_able(end, tensor, buffer)),
    )


def _able(end: Ended, tensor: TensorState, buffer: int) -> Iterator[Able]:
    snapshot, answers = end.snapshot, end.answers
    if snapshot is None or answers is None:
        return
    lies = snapshot.buffers.get(buffer)
    for i, backend in enumerate(snapshot.backends):
        supports = answers.supports.get((tensor.address, i))
        memory = answers.bufts.get((i, lies.buft)) if lies is not None else None
        if supports is not None:
            yield Able(backend.name or f"backend {i}", supports, memory)


def _name(tensor: TensorState) -> str:
    return tensor.name.decode("utf-8", "replace")


def _planned(end: Ended) -> Planned | None:
    """What the plan comes to of a graph at which ggml gave up while it planned."""
    made, snapshot = end.written, end.snapshot
    if made is None or snapshot is None or snapshot.function is None or not end.abort.message:
        return None
    if "compute" in snapshot.function or snapshot.function not in end.abort.calls:
        return None
    run = Scenario(load_spec(made.document)).start()
    plan = run.reserve(GRAPH) if made.step == "reserve" else run.alloc(GRAPH)
    if plan.ok:
        return Planned(None, "", False)
    error = dict(plan.error or {})
    message = str(error.get("message") or "")
    return Planned(message, str(error.get("explanation") or ""), message.strip() == end.abort.message.strip())


def _changes(end: Ended, tensors: tuple[Meant, ...]) -> list[Outcome]:
    """Changes with which the graph is planned, at the likeliest tensor of the graph."""
    made = end.written
    node = next((t.id for t in tensors if t.id is not None), None)
    if made is None or node is None:
        return []
    opened = Opened(Scenario(load_spec(made.document)))
    # An assignment silences the check and leaves the cause: the backend cannot use the memory.
    tried = (change for change in changes(opened, GRAPH, node, ()) if not change.of_node)
    return try_changes(tried, GRAPH, node, lambda _: True)[:MOST_CHANGES]
