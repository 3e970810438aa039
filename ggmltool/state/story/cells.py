"""The state of a run as cells: one value for each key, whatever the release. What a point of a history shows is these.

A key is an area and where in it. Tensors are named by their index, backends and buffers by their number.

| key | value |
| --- | --- |
| `("sched", field)` | a plain field of the scheduler by its name there: `n_splits`, `cur_copy`, `is_reset`, … |
| `("id", t)` | the backend of a tensor, -1: none |
| `("cause", t)` | ggml's label of the rule that gave it |
| `("copies", t)` | for each backend None or the copies of the tensor there, one for each pipeline copy |
| `("split", i)` | a `SplitState`; while a graph is being cut, when `n_splits` is 0, those that have begun |
| `("sched_graph", "nodes")`, `"leafs"` | tensors of the scheduler's own graph |
| `("sched_graph", "inputs")` | the graph inputs that it copies |
| `("sched_graph", "keys")` | the tensors in its hash set: of the graphs since the last reset, and others looked up |
| `("node_ids", i)`, `("leaf_ids", i)` | the backends of its own graph, as its arrays have them |
| `("prev_node_ids", i)`, `("prev_leaf_ids", i)` | those of the graph before |
| `("galloc", field)` | a plain field of the allocator: `hash_set.size`, `n_nodes`, `n_leafs` |
| `("hash_node", t)` | a `HashNodeState` |
| `("free", b, c)` | the `FreeBlock`s of chunk `c` of buffer `b` |
| `("max_size", b, c)` | the highest byte of that chunk that was ever used |
| `("buffer", b)` | for each chunk of the buffer (base, size); None before it is made |
| `("node_alloc", i)` | of the reserved plan: a node's `TensorAlloc`, and those of its sources |
| `("leaf_alloc", i)` | the place of a leaf |
| `("tensor", t)` | a `TensorState` |
| `("cgraph", name, "nodes")`, `"leafs"` | tensors of the newest build of a graph of the scenario, while it is there |
| `("cgraph", name, "visited")`, `"uses"` | the tensors of its hash set as they were met, and their use counts |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

ENDLESS = 1 << 62
"""A free block of so many bytes or more is the rest of a chunk that has no end."""

Key = tuple[str, *tuple[int | str, ...]]
Value = Any
Cells = dict[Key, Value]
AnyCells = Mapping[Key, Value]
"""Cells that somebody else may change."""


class _Gone:
    def __repr__(self) -> str:
        return "GONE"


GONE: Final = _Gone()
"""In place of a value: there is no such cell any more."""

Changes = tuple[tuple[Key, Value], ...]
"""What changes at a point: keys with their new values, or with GONE."""
