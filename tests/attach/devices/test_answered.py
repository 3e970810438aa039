"""In which order devices left the nodes of their splits, and what they keep until when, is read off the scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from ggmltool.ask.attach.verified import verify_written
from ggmltool.attach.devices.answered import SnapshotQuestions, given_order, orders_of
from ggmltool.attach.devices.asking import with_answers, with_devices
from ggmltool.attach.state import Answers, Snapshot
from ggmltool.attach.write.written import decided, with_assignments, written
from ggmltool.ggml.devices.recorded import Order
from ggmltool.state.memory.tensors import TensorStruct
from tests.attach.recorded import recorded

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
    found = verify_written(made, done)
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


def ordering(name: str | None = None) -> Snapshot:
    """A recorded program whose devices all have a graph_optimize, and are called so."""
    found = recorded("0.26").snapshot()
    backends = (b._replace(name=name or b.name, functions=b.functions | {"graph_optimize"}) for b in found.backends)
    return replace(found, backends=tuple(backends))


def ids_of(snapshot: Snapshot) -> dict[int, str]:
    return {t: f"n{i}" for i, t in enumerate(snapshot.graph.nodes)}


def orders(before: Snapshot, after: Snapshot) -> list[Order]:
    return [order for of in orders_of(before.graph.nodes, after, ids_of(after)) for order in of]


def split_of_two(snapshot: Snapshot) -> tuple[int, int]:
    return next((s.i_start, s.i_end) for s in snapshot.sched.splits if s.i_end - s.i_start > 1)


def inputs_of(nodes: Sequence[int], snapshot: Snapshot, inputs: Sequence[int]) -> list[int]:
    """The inputs of a split in the order in which its nodes take them."""
    read = [s for node in nodes for s in snapshot.tensors[node].src if s in inputs]
    return list(dict.fromkeys(read))


def test_nodes_that_a_device_moved_are_put_back_to_where_they_took_their_inputs() -> None:
    snapshot = ordering("Vulkan0")
    first, second, third = snapshot.graph.nodes[:3]
    one, two, three = (max(snapshot.tensors) + 64 * n for n in (1, 2, 3))
    made = snapshot.tensors[first]

    def tensor(address: int, *src: int) -> TensorStruct:
        return made._replace(address=address, src=src + (0,) * (len(made.src) - len(src)), view_src=0)

    tensors = {**snapshot.tensors, **{t: tensor(t) for t in (one, two, three)}}
    tensors |= {first: tensor(first, one), second: tensor(second, two, first), third: tensor(third, three)}
    split = structs.replace(snapshot.sched.splits[0], i_start=0, i_end=3, inputs=(one, three, two))
    graph = structs.replace(snapshot.graph, nodes=(first, second, third))
    moved = replace(snapshot, tensors=tensors, graph=graph, sched=structs.replace(snapshot.sched, splits=(split,)))
    found = given_order(moved, lambda t: t.src)
    assert found == (first, third, second)
    assert inputs_of(found, moved, split.inputs) == [one, three, two]
    never = structs.replace(split, inputs=(two, one, three))
    stands = replace(moved, sched=structs.replace(moved.sched, splits=(never,)))
    assert given_order(stands, lambda t: t.src) == (first, second, third)


def test_a_split_that_was_reordered_is_told_in_its_new_order() -> None:
    after = ordering("custom")
    first, end = split_of_two(after)
    nodes = after.graph.nodes
    turned = (*nodes[:first], *reversed(nodes[first:end]), *nodes[end:])
    before = replace(after, graph=structs.replace(after.graph, nodes=turned))
    assert orders(before, after) == [Order(tuple(f"n{i}" for i in range(first, end)))]
    assert orders(after, after) == []


def test_every_split_is_told_of_a_device_whose_name_has_an_order() -> None:
    after = ordering("Metal")
    assert len(orders(after, after)) == len(after.sched.splits)
    assert orders(after, recorded("0.26").snapshot()) == []


def test_what_is_kept_until_a_node_is_behind_it_in_the_schedulers_own_graph() -> None:
    after = ordering("custom")
    splits, nodes = after.sched.splits, after.graph.nodes
    last = splits[0].i_end - 1
    assert splits[1].inputs, "the nodes for the inputs of the next split come between"
    one = recorded("0.26").snapshot().tensors
    dependency = max(one) + 64
    kept = (nodes[0], splits[1].inputs[0])
    src = (*kept, *(0,) * (len(one[nodes[0]].src) - 2))
    tensors: dict[int, Any] = {**after.tensors, dependency: one[nodes[0]]._replace(address=dependency, src=src)}
    own = list(after.sched.graph.nodes)
    own.insert(own.index(nodes[last]) + 1, dependency)
    sched = structs.replace(after.sched, graph=structs.replace(after.sched.graph, nodes=tuple(own)))
    after = replace(after, tensors=tensors, sched=sched)
    (order,) = orders(after, after)
    assert order.nodes == tuple(f"n{i}" for i in range(splits[0].i_end))
    assert order.kept[0][0] == f"n{last}"
    assert len(order.kept[0][1]) == 2


def test_a_scenario_has_the_orders_of_a_graph_that_is_split() -> None:
    snapshot = ordering("Metal")
    backends = written(snapshot, NOTHING, snapshot, NOTHING).document["backends"]
    assert sum(len(b["answers"].get("orders", ())) for b in backends) == len(snapshot.sched.splits)
    backends = written(snapshot, NOTHING).document["backends"]
    assert not any("orders" in b["answers"] for b in backends)
