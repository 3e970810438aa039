"""What a State says, whoever read it: tensors by their place in the graphs, memory by its buffer and offset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import astuple

from ggmltool.ggml.alloc.common import TensorAlloc
from ggmltool.ggml.state import GallocState, State, TensorState


def in_order(state: State) -> dict[int, int]:
    """Each tensor that the two graphs consist of: its number to the State's reader → the place at which it comes."""
    assert state.sched is not None
    assert state.graph is not None
    own = state.sched.graph
    wanted = [*state.graph.leafs, *state.graph.nodes, *own.leafs, *own.nodes]
    order: dict[int, int] = {}
    for number in wanted:
        if number not in order:
            order[number] = len(order)
            t = state.tensors[number]
            wanted += [s for s in (*t.src, t.view_src) if s is not None and s not in order]
    return order


def plain(state: State) -> dict[str, Any]:
    """The areas of a State. What is only known of tensors that are gone is left out, and the size of the graph, which a
    scenario does not have."""
    sched, graph, order = state.sched, state.graph, in_order(state)
    assert sched is not None
    assert graph is not None

    def places(numbers: Iterable[int | None]) -> list[int | None]:
        return [None if n is None else order.get(n, -1) for n in numbers]

    def of_tensors(table: Mapping[int, Any], value: Callable[[Any], Any] = lambda v: v) -> dict[int, Any]:
        return {order[n]: value(v) for n, v in sorted(table.items(), key=lambda i: order.get(i[0], 0)) if n in order}

    return {
        "graph": {
            "nodes": places(graph.nodes),
            "leafs": places(graph.leafs),
            "hash_set": sorted(order[key] for key in graph.hash_set.keys),
            "use_counts": of_tensors(graph.use_counts),
        },
        "tensors": [_tensor(state, state.tensors[n], places) for n in order],
        "sched": {
            "fields": {
                name: getattr(sched, name)
                for name in (
                    "is_reset", "is_alloc", "n_copies", "cur_copy", "next_copy", "graph_inputs_capacity", "graph_size",
                    "context_buffer_size", "op_offload", "callback_eval", "callback_copy",
                )
            },
            "bufts": [state.bufts[b].name for b in sched.bufts],
            "hash_set": (sched.hash_set.size, sorted(order[key] for key in sched.hash_set.keys if key in order)),
            "graph_inputs": places(sched.graph_inputs),
            "tensor_backend_ids": of_tensors(sched.tensor_backend_ids),
            "tensor_copies": of_tensors(
                sched.tensor_copies, lambda copies: [None if of is None else places(of) for of in copies]
            ),
            "node_backend_ids": list(sched.node_backend_ids),
            "leaf_backend_ids": list(sched.leaf_backend_ids),
            "prev_node_backend_ids": list(sched.prev_node_backend_ids),
            "prev_leaf_backend_ids": list(sched.prev_leaf_backend_ids),
            "graph": [sched.graph.size, places(sched.graph.nodes), places(sched.graph.leafs)],
            "splits": [
                [s.backend_id, s.i_start, s.i_end, places(s.inputs), s.inputs_capacity or None] for s in sched.splits
            ],
        },
        "galloc": _galloc(state, sched.galloc, of_tensors),
    }  # fmt: skip


def _tensor(state: State, t: TensorState, places: Callable[[Iterable[int | None]], list[int | None]]) -> list[Any]:
    assert state.sched is not None
    params = list(t.op_params)
    while params and not params[-1]:
        params.pop()
    place = None
    if t.buffer is not None:
        buffer = state.buffers[t.buffer]
        chunks = {b: i for made in state.sched.galloc.buffers for i, b in enumerate(made)}
        chunk = chunks.get(t.buffer, buffer.chunk)
        place = [state.bufts[buffer.buft].name, buffer.usage, buffer.size, chunk, t.data - (buffer.base or 0)]
    source = places(t.src), places([t.view_src]), t.view_offs
    return [t.name, t.type, list(t.ne), list(t.nb), t.op, t.op_desc, params, t.flags, *source, place]


def _galloc(state: State, galloc: GallocState, of_tensors: Callable[..., dict[int, Any]]) -> dict[str, Any]:
    return {
        "bufts": [state.bufts[b].name for b in galloc.bufts],
        "buffers": [[state.buffers[b].size for b in made] for made in galloc.buffers],
        "buf_tallocs": [
            [[c.max_size, [list(b) for b in c.free_blocks]] for c in chunks] for chunks in galloc.buf_tallocs
        ],
        "hash_set": galloc.hash_set.size,
        "hash_values": of_tensors(
            galloc.hash_values,
            lambda v: [v.n_children, v.n_views, v.buffer_id, v.chunk, v.offset, v.allocated],
        ),
        **allocs(galloc.node_allocs, galloc.leaf_allocs),
    }


def allocs(nodes: Iterable[tuple[TensorAlloc, Sequence[TensorAlloc]]], leafs: Iterable[TensorAlloc]) -> dict[str, Any]:
    """node_allocs and leaf_allocs of an allocator."""
    return {
        "node_allocs": [[_place(dst), [_place(a) for a in srcs if a.buffer_id >= 0]] for dst, srcs in nodes],
        "leaf_allocs": [_place(a) for a in leafs],
    }


def _place(a: TensorAlloc) -> tuple[int, ...] | None:
    return None if a.buffer_id < 0 else astuple(a)
