"""What a ggml release fixes: sizes of structs, limits, primes of the hash set, the layout of a graph.

The constants are those of 0.20.2, the release that the engine follows by default. `RELEASES` has them for every release
whose decisions it can make; what a release decides in another way stands in modules of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from ggmltool.ggml.op import Op
from ggmltool.ggml.sched.rules import Rules

VERSION = "0.20.2"

MEM_ALIGN = 16
OBJECT_SIZE = 32
TENSOR_SIZE = 336
CGRAPH_SIZE = 96
POINTER_SIZE = 8
SIZE_MAX = 2**64 - 1
INT64_MAX = 2**63 - 1

TENSOR_ALIGNMENT = 32
"""Alignment of tensors in CPU buffers."""

DEFAULT_GRAPH_SIZE = 2048
SCHED_MAX_BACKENDS = 16
SCHED_MAX_COPIES = 4
SCHED_INITIAL_SPLITS = 16
MAX_FREE_BLOCKS = 256
VBUFFER_MAX_CHUNKS = 16

HASH_PRIMES = (
    2, 3, 5, 11, 17, 37, 67, 131, 257, 521, 1031, 2053, 4099, 8209, 16411, 32771, 65537, 131101, 262147, 524309,
    1048583, 2097169, 4194319, 8388617, 16777259, 33554467, 67108879, 134217757, 268435459, 536870923, 1073741827,
    2147483659,
)  # fmt: skip


def hash_size(n: int) -> int:
    """ggml_hash_size: the smallest listed prime that is not below `n`."""
    for prime in HASH_PRIMES:
        if prime >= n:
            return prime
    return n | 1


def pad(x: int, n: int) -> int:
    """GGML_PAD: `x` rounded up to a multiple of `n`, a power of two."""
    return (x + n - 1) & ~(n - 1)


class GraphField(NamedTuple):
    """An array behind the struct of a cgraph: elements of `nbytes` bytes, one `per` node that the graph is made for,
    per slot of its hash set, or per 32 slots (a word of its bitset). `grads`: only where gradients are asked for.
    """

    name: str
    per: Literal["node", "slot", "word"]
    nbytes: int = POINTER_SIZE
    grads: bool = False

    def size(self, nodes: int, slots: int) -> int:
        """The bytes of the array."""
        match self.per:
            case "node":
                return nodes * self.nbytes
            case "slot":
                return slots * self.nbytes
            case "word":
                return (slots + 31) // 32 * self.nbytes


_NODES = GraphField("nodes", "node")
_LEAFS = GraphField("leafs", "node")
_USE_COUNTS = GraphField("use_counts", "slot", 4)
_KEYS = GraphField("visited_hash_set.keys", "slot")
_GRADS = (GraphField("grads", "slot", grads=True), GraphField("grad_accs", "slot", grads=True))
_USED = GraphField("visited_hash_set.used", "word", 4)

_TENSOR_HEAD = ("buffer", "ne", "nb", "op", "op_params")
_TENSOR_TAIL = ("view_src", "view_offs", "data", "name", "extra", "padding")
_TENSOR = ("type", *_TENSOR_HEAD, "flags", "src", *_TENSOR_TAIL)


@dataclass(frozen=True, slots=True)
class Release:
    """A release of ggml, or its state on a day (`date`, `commit`), by the name that scenarios and `--ggml` have for it.

    Sizes are bytes. `graph_fields` are the arrays of a cgraph in their order; `hash_shift` says by how many bits an
    address is shifted before ggml_hash takes it modulo the number of slots. `rules` are the scheduler's;
    `max_chunks` is how many chunks a compute buffer can have, `max_splits` how many splits a scheduler (None: as many
    as there are). `steps` are the kinds of steps that take a graph. The lines that a debug build logs are kept
    (`keeps_debug_log`), or not.
    The print of GGML_SCHED_DEBUG has functions of UNARY and GLU by their own names (`prints_functions`), and how often
    a node is used (`prints_use_counts`). `tensor_fields` and `hash_node_fields` are the fields of struct ggml_tensor
    and struct hash_node; `compute_flag` says that nodes are flagged as ones to compute, `debug_realloc` that there is
    GGML_SCHED_DEBUG_REALLOC, `gpu_families` are the kinds of
    memory whose buffers make a tensor one of GGML_BACKEND_GPU.
    """

    name: str
    date: str
    commit: str
    rules: Rules
    object_size: int = OBJECT_SIZE
    tensor_size: int = TENSOR_SIZE
    cgraph_size: int = CGRAPH_SIZE
    tensor_alignment: int = TENSOR_ALIGNMENT
    hash_shift: int = 4
    graph_fields: tuple[GraphField, ...] = (_NODES, _LEAFS, _USE_COUNTS, _KEYS, *_GRADS, _USED)
    max_backends: int = SCHED_MAX_BACKENDS
    max_splits: int | None = None
    max_copies: int = SCHED_MAX_COPIES
    max_free_blocks: int = MAX_FREE_BLOCKS
    max_chunks: int = VBUFFER_MAX_CHUNKS
    steps: tuple[str, ...] = ("reserve", "alloc", "compute")
    keeps_debug_log: bool = False
    prints_functions: bool = True
    prints_use_counts: bool = True
    tensor_fields: tuple[str, ...] = _TENSOR
    hash_node_fields: tuple[str, ...] = ("n_children", "n_views", "buffer_id", "addr", "allocated")
    compute_flag: bool = True
    debug_realloc: bool = True
    gpu_families: frozenset[str] = frozenset()

    @property
    def max_split_inputs(self) -> int:
        """GGML_SCHED_MAX_SPLIT_INPUTS."""
        return self.rules.max_split_inputs

    def graph_layout(self, size: int, grads: bool = False) -> tuple[tuple[str, int, int], ...]:
        """What ggml_new_graph_custom lays out in a graph's object: (field, offset in the object, bytes), in order."""
        slots = hash_size(2 * size)
        end = self.cgraph_size
        out = [("struct ggml_cgraph", 0, end)]
        for field in self.graph_fields:
            if grads or not field.grads:
                start = pad(end, field.nbytes)
                nbytes = field.size(size, slots)
                end = start + nbytes
                out.append((field.name, start, nbytes))
        return tuple(out)

    def graph_nbytes(self, size: int, grads: bool = False) -> int:
        """ggml_graph_nbytes: bytes of a cgraph of `size` nodes with its arrays and hash set."""
        _, offset, nbytes = self.graph_layout(size, grads)[-1]
        return offset + nbytes

    def graph_overhead(self, size: int = DEFAULT_GRAPH_SIZE, grads: bool = False) -> int:
        """ggml_graph_overhead_custom: what a graph takes in a context's arena, header included."""
        return self.object_size + pad(self.graph_nbytes(size, grads), MEM_ALIGN)

    def tensor_overhead(self) -> int:
        """ggml_tensor_overhead: what a tensor takes in a context's arena without its data."""
        return self.object_size + self.tensor_size


RELEASES: dict[str, Release] = {
    release.name: release
    for release in (
        Release(VERSION, "2026-08-18", "8c63e709", Rules()),
        Release(
            "2025-03",
            "2025-03-13",
            "ffed2f04",
            debug_realloc=False,
            cgraph_size=80,
            graph_fields=(_NODES, _LEAFS, _KEYS, *_GRADS, _USED),
            rules=Rules(
                ignores_weights=frozenset((int(Op.ROPE),)),
                takes_first_able=False,
                output_marks_root=False,
                always_checks_sources=False,
                max_split_inputs=10,
                inputs_grow=False,
                counts_room=True,
                reserve_waits_first=False,
                refuses_second_graph=False,
                copies_turn_at_alloc=False,
                copies_used_experts=False,
            ),
            keeps_debug_log=True,
            max_chunks=1,
            prints_functions=False,
            prints_use_counts=False,
            hash_node_fields=("n_children", "n_views", "buffer_id", "offset", "allocated"),
            compute_flag=False,
        ),
        Release(
            "2024-01",
            "2024-01-12",
            "8fb376b4",
            tensor_size=368,
            cgraph_size=80,
            tensor_alignment=64,
            hash_shift=0,
            graph_fields=(
                _NODES,
                _LEAFS,
                GraphField("visited_hash_table.keys", "slot"),
                GraphField("grads", "node", grads=True),
            ),
            max_splits=256,
            rules=Rules(
                ignores_weights=frozenset(),
                takes_first_able=False,
                output_marks_root=False,
                max_split_inputs=16,
                inputs_grow=False,
                counts_room=True,
                refuses_second_graph=False,
                copies_used_experts=False,
            ),
            keeps_debug_log=True,
            max_copies=1,
            max_chunks=1,
            steps=("measure", "compute"),
            tensor_fields=(
                "type",
                "backend",
                *_TENSOR_HEAD,
                "is_param",
                "grad",
                "src",
                "perf_runs",
                "perf_cycles",
                "perf_time_us",
                *_TENSOR_TAIL,
            ),
            hash_node_fields=("n_children", "n_views"),
            compute_flag=False,
            gpu_families=frozenset(("CUDA", "ROCm")),
        ),
    )
}
"""The releases by name, the newest first."""

DEFAULT = RELEASES[VERSION]


def graph_nbytes(size: int, grads: bool = False) -> int:
    """ggml_graph_nbytes of the default release."""
    return DEFAULT.graph_nbytes(size, grads)


def graph_layout(size: int) -> tuple[tuple[str, int, int], ...]:
    """The layout of a graph's object in the default release."""
    return DEFAULT.graph_layout(size)


def graph_overhead(size: int = DEFAULT_GRAPH_SIZE, grads: bool = False) -> int:
    """ggml_graph_overhead_custom of the default release."""
    return DEFAULT.graph_overhead(size, grads)


def tensor_overhead() -> int:
    """ggml_tensor_overhead of the default release."""
    return DEFAULT.tensor_overhead()
