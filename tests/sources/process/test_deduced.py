"""What the devices of a dead program are held to have answered is enough to plan its graph as its scheduler did."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from ggmltool.attach.devices.answered import SnapshotQuestions
from ggmltool.attach.devices.asking import with_answers, with_devices
from ggmltool.attach.state import Answers, Snapshot
from ggmltool.attach.write.decided import decided
from ggmltool.attach.write.written import GRAPH, with_assignments, written
from ggmltool.inspect.attached.verified import verify
from tests.sources.process.recorded import recorded

NOTHING = Answers({}, {}, {}, {}, 0)


def dead(name: str) -> Snapshot:
    """A recorded program as a core dump has it, when its graph is allocated: nothing is known of its devices."""
    found = recorded(name).snapshot()
    unnamed = tuple(b._replace(name=None) for b in found.backends)
    unknown = {a: d._replace(name=None, type=None) for a, d in found.devices.items()}
    function = "ggml_backend_sched_graph_compute_async"
    return replace(found, function=function, when="within", backends=unnamed, devices=unknown)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["0.20.2", "0.26"])
def test_a_dead_program_is_planned_as_it_had_decided(name: str) -> None:
    snapshot, answers = with_answers(with_devices(dead(name)), NOTHING)
    made = written(snapshot, answers)
    done = decided(snapshot, made.ids, made.names, made.step, answers)
    made = with_assignments(made, done)
    found = verify(made.document, GRAPH, made.step, done, made.notes)
    assert found.copies > 0
    assert found.first is None


def test_devices_can_use_the_memory_that_their_nodes_read_without_a_copy() -> None:
    snapshot = dead("0.26")
    sched, tensors = snapshot.sched, snapshot.tensors
    ids = sched.tensor_backend_ids
    node = next(n for n in snapshot.graph.nodes if n in ids and any(s in ids for s in tensors[n].src))
    b = ids[node]
    source = next(s for s in tensors[node].src if s in ids)
    buffer = next(a for a, of in snapshot.buffers.items() if of.buft != sched.bufts[b])
    buft = snapshot.buffers[buffer].buft
    moved = replace(snapshot, tensors={**tensors, source: tensors[source]._replace(buffer=buffer)})
    for other, can in ((b, False), ((b + 1) % len(snapshot.backends), True)):
        given = replace(moved, sched=structs.replace(sched, tensor_backend_ids={node: b, source: other}))
        assert with_answers(given, NOTHING)[1].bufts[b, buft] is can


def test_a_node_that_reads_a_copy_was_asked_about_with_what_is_copied() -> None:
    snapshot = dead("0.26")
    tensors = snapshot.tensors
    copies = {c: of for of, _, _, c in snapshot.sched.copies() if c != of}
    node = next(t for n in snapshot.graph.nodes for t in [tensors[n]] if not copies.keys().isdisjoint(t.src))
    before = node._replace(src=tuple(copies.get(s, s) for s in node.src))
    bufts = {a: f"memory {i}" for i, a in enumerate(snapshot.bufts)}
    assert SnapshotQuestions(snapshot, bufts, originals=copies).question(node) == SnapshotQuestions(
        snapshot, bufts
    ).question(before)
    assert SnapshotQuestions(snapshot, bufts).question(node) != SnapshotQuestions(snapshot, bufts).question(before)


def test_what_looks_alike_to_a_device_has_one_answer() -> None:
    snapshot = dead("0.26")
    ids = snapshot.sched.tensor_backend_ids
    one = next(n for n in snapshot.graph.nodes if n in ids)
    twin = max(snapshot.tensors) + 64
    graph = replace_nodes(snapshot, one, twin)
    other = (ids[one] + 1) % len(snapshot.backends)
    graph = replace(graph, sched=structs.replace(graph.sched, tensor_backend_ids={**ids, twin: other}))
    answers = with_answers(graph, NOTHING)[1]
    assert all(answers.supports[t, b] for t in (one, twin) for b in (ids[one], other))


def replace_nodes(snapshot: Snapshot, one: int, twin: int) -> Snapshot:
    """The snapshot with a node twice, under two addresses."""
    tensors = {**snapshot.tensors, twin: snapshot.tensors[one]._replace(address=twin)}
    graph = structs.replace(snapshot.graph, nodes=(*snapshot.graph.nodes, twin))
    return replace(snapshot, tensors=tensors, graph=graph)
