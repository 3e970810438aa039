"""In which order a program's devices left the nodes of splits, and what they keep until when: their graph_optimize."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ggmltool.ggml.devices.profiles import profile_of_name
from ggmltool.ggml.devices.recorded import Order
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.table import BY_NAME
from ggmltool.sources.graph_writer import text, without_controls
from ggmltool.sources.process.state import Snapshot


def orders_of(before: Snapshot, after: Snapshot, ids: Mapping[int, str]) -> Iterator[tuple[Order, ...]]:
    """What each backend made of its splits, of a graph that is split `after`. Splits that were left as they were
    `before` are only told of a backend whose name is that of a device with an order of its own.

    `ids` are those of the graph's tensors.
    """
    profiles = profiles_of(BY_NAME[after.release])
    kept = _kept(after)
    for b, backend in enumerate(after.backends):
        if "graph_optimize" not in backend.functions:
            yield ()
            continue
        orders = profiles[profile_of_name(backend.name or "")].graph_optimize is not None
        yield tuple(
            _order(nodes, kept, after, ids)
            for split in after.sched.splits
            if split.backend_id == b
            for nodes in [after.graph.nodes[split.i_start : split.i_end]]
            if orders or nodes != before.graph.nodes[split.i_start : split.i_end] or not kept.keys().isdisjoint(nodes)
        )


def _order(nodes: Sequence[int], kept: Mapping[int, Sequence[int]], after: Snapshot, ids: Mapping[int, str]) -> Order:
    def name(tensor: int) -> str:
        return ids.get(tensor) or without_controls(text(after.tensors[tensor].name))

    until = ((name(n), tuple(name(t) for t in kept[n] if t in after.tensors)) for n in nodes if n in kept)
    return Order(tuple(map(name, nodes)), tuple(until))


def _kept(after: Snapshot) -> dict[int, list[int]]:
    """What is kept until a node was computed: the sources of the nodes that the scheduler has put behind it in its own
    graph. Behind the last node of a split come two for each input of the next one, too."""
    own, nodes = after.sched.graph.nodes, after.graph.nodes
    at = {node: i for i, node in enumerate(own)}
    out: dict[int, list[int]] = {}
    splits = after.sched.splits
    for split, n_inputs in zip(splits, [*(len(s.inputs) for s in splits[1:]), 0], strict=True):
        for i in range(split.i_start, min(split.i_end, len(nodes))):
            first = at.get(nodes[i], len(own)) + 1
            end = at.get(nodes[i + 1], first) if i + 1 < len(nodes) else len(own)
            behind = own[first : end - 2 * n_inputs if i + 1 == split.i_end else end]
            found = [s for n in behind if n in after.tensors for s in after.tensors[n].src if s]
            if found:
                out[nodes[i]] = found
    return out
