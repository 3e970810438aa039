"""Where things lie in the simulated address space: the same in every run, and far enough apart."""

from __future__ import annotations

from ggmltool.scenario.tensor_info import BUFFERS, BUFFERS_STEP, FIRST, STEP

REBUILT = 0x1000_0000
"""How far apart the builds of an arena lie that each graph makes anew."""

_HEAP = 0x5552_0000_0000
_ROOM = 0x1000_0000
_THINGS = (
    "sched", "galloc", "galloc.bufts", "galloc.buffers", "galloc.buf_tallocs", "tallocrs", "chunks", "vbuffers",
    "galloc.hash_set.keys", "galloc.hash_set.used", "hash_values", "node_allocs", "leaf_allocs", "sched.hash_set.keys",
    "sched.hash_set.used", "hv_tensor_backend_ids", "hv_tensor_copies", "node_backend_ids", "leaf_backend_ids",
    "prev_node_backend_ids", "prev_leaf_backend_ids", "sched.graph", "sched.graph.nodes", "sched.graph.leafs", "splits",
    "split_inputs", "graph_inputs", "backends", "devices", "events", "contexts", "context_buffer", "galloc.talloc",
    "parse_seq", "guids", "contexts.device",
)  # fmt: skip
HEAP = {name: _HEAP + i * _ROOM for i, name in enumerate(_THINGS)}
"""Where the things begin that scheduler and allocator allocate, by their names there."""

OWN_NODES = 0x5000_0000_0000
OWN_NODES_STEP = 0x100_0000
OWN_DATA = 0x5100_0000_0000
"""Where the program has the values that it writes into tensors and gets from them: those of nodes, of contexts."""

TEXT = 0x7FFF_F7E0_0000
UNKNOWN = TEXT - 0x1000
"""In place of a function of a table that the ggml which decides does not have: its structs are shown as another's."""
TEXT_STEP = 0x40
"""Function `i` lies at TEXT + i * TEXT_STEP."""
STATICS = 0x7FFF_F7F4_0000
STATICS_STEP = 0x100
"""Buffer type `i` lies at STATICS + i * STATICS_STEP."""
TABLES = 0x7FFF_F7F8_0000
"""Where the table of float16 values lies, ggml_table_f32_f16."""
OBJECT = 32
"""sizeof(struct ggml_object)."""


def arena(number: int, build: int = 0) -> int:
    """Where the pool of an arena begins; `build` is the graph whose build made it, for one that is made anew."""
    return FIRST + number * STEP + build * REBUILT


def buffer(number: int) -> int:
    """Where the struct of a buffer lies."""
    return BUFFERS + number * BUFFERS_STEP


def static(number: int) -> int:
    """Where a buffer type lies."""
    return STATICS + number * STATICS_STEP


STRINGS = 0x7FFF_F7FC_0000
"""Where the strings of the program lie that functions give."""
STRINGS_ROOM = 0x100_0000
