"""In which order devices left the nodes of their splits, and what they keep until when, is read off the scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from ggmltool.attach.devices.answered import given_order, orders_of
from ggmltool.attach.state import Snapshot
from ggmltool.attach.write.written import written
from ggmltool.ggml.devices.recorded import Order
from ggmltool.state.memory.tensors import TensorStruct
from tests.sources.process.recorded import recorded
from tests.sources.process.test_deduced import NOTHING


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
