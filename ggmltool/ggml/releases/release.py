"""What a release of ggml is: a value that says how large its structs are, what its limits and its rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, NamedTuple, SupportsIndex

from ggmltool.ggml.op import INPLACE_OPS, SHARED, Op, OpRules
from ggmltool.ggml.version import (
    CGRAPH_SIZE,
    DEFAULT_GRAPH_SIZE,
    HASH_SHIFT,
    MAX_FREE_BLOCKS,
    MEM_ALIGN,
    OBJECT_SIZE,
    POINTER_SIZE,
    SCHED_MAX_BACKENDS,
    SCHED_MAX_COPIES,
    SCHED_MAX_SPLIT_INPUTS,
    TENSOR_ALIGNMENT,
    TENSOR_SIZE,
    hash_size,
    pad,
)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a scheduler and its allocator; by default those of 0.20.2."""

    ignores_weights: frozenset[int] = frozenset((int(Op.ROPE), int(Op.FLASH_ATTN_EXT)))
    """Pass 1: the ops that do not follow their weights."""
    takes_first_able: bool = True
    """Pass 3: a node that no neighbor and no source gave a backend gets the first one that can run it, or none."""
    output_marks_root: bool = True
    """Of an output that is a view the root is an output too."""
    always_checks_sources: bool = True
    """A source without a backend stops release builds too."""
    max_split_inputs: int = SCHED_MAX_SPLIT_INPUTS
    """GGML_SCHED_MAX_SPLIT_INPUTS: the room of a split, and of the graph's own inputs, at first where `inputs_grow`,
    and for good where they do not."""
    inputs_grow: bool = True
    """The room for inputs is doubled when it is full."""
    counts_room: bool = False
    """The scheduler's own graph has room for the inputs that there are, or for all that there could be."""
    reserve_waits_first: bool = True
    """Reserving waits for all backends before it splits the graph, or after that."""
    refuses_second_graph: bool = True
    """A second graph without a reset is refused."""
    copies_turn_at_alloc: bool = True
    """The next pipeline copies are taken when a graph is allocated, or when one has been computed."""
    copies_used_experts: bool = True
    """Of the experts on the host, those that are used are copied alone, or all of them, unless a callback of the
    program copies them."""
    max_chunks: int = 16
    """The most chunks of a compute buffer."""
    records_every_split: bool = False
    """Since 0.21: an event is recorded after every split, not only after one with inputs, and a split without inputs
    waits for the one before on another backend."""
    inplace_ops: frozenset[Op] = INPLACE_OPS
    """The ops that can be computed in the memory of a source; since 0.26 CLAMP is one."""
    expanding_ops: frozenset[Op] | None = None
    """Since 0.26: the ops whose alloc size may exceed the tensor's own bytes; None: in all."""
    full_split_ends: bool = True
    """A split whose room for inputs is taken ends before the node that needs one more, and that rooms grow is a
    warning; since 0.26 it goes on in one twice as large."""
    copies_leafs_last: bool = False
    """Since 0.26: pipeline copies of inputs are made of all leafs flagged input, in a pass 6."""
    weights_last: bool = False
    """Since 0.26: weights in host memory are copied after all other inputs of a split."""
    keeps_for_devices: bool = False
    """Since 0.26: tensors that a device wants to have kept until one of its nodes has been computed are kept."""


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


NODES = GraphField("nodes", "node")
LEAFS = GraphField("leafs", "node")
USE_COUNTS = GraphField("use_counts", "slot", 4)
KEYS = GraphField("visited_hash_set.keys", "slot")
GRADS = (GraphField("grads", "slot", grads=True), GraphField("grad_accs", "slot", grads=True))
USED = GraphField("visited_hash_set.used", "word", 4)


class Near(NamedTuple):
    """A ggml that decides as a release does in nearly all: by which names it goes, and what it does otherwise."""

    names: tuple[str, ...]
    but: str


class Library(NamedTuple):
    """The real library of a release: what it says of itself, and how to get it.

    `version` is its ggml_version(); `exports` are functions that tell it from an earlier build of the same version.
    `requirement` is the package that carries it, as pip takes it, `extra` the extra of ggmltool that has it.
    """

    version: str
    requirement: str
    extra: str = ""
    exports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Release:
    """A release of ggml, or its state on a day (`date`, `commit`), by the name that scenarios and `--ggml` have for it.

    `folder` is the package beside this module that has its parts, `rules` are those of its scheduler, `ops` those of
    its constructors and kernels; what the folder has no module for is as in the release that it is `like` (None: the
    shared engine is this release). `build` is the build of llama.cpp that carries it, where the version number of ggml
    says less; `near` are others that decide nearly as it does. `library` is the real one, if a package has it. Sizes
    are bytes.

    `graph_fields` are the arrays of a cgraph in their order; `hash_shift` says by how many bits an address is shifted
    before ggml_hash takes it modulo the number of slots. `max_splits` is how many splits a scheduler can have (None: as
    many as there are). `steps` are the kinds of steps that take a graph.

    The print of GGML_SCHED_DEBUG has functions of UNARY and GLU by their own names (`prints_functions`), and how often
    a node is used (`prints_use_counts`); of DEBUG_PASS1 to 4 there is one after each pass (`prints_passes`).
    `keeps_times`: the scheduler adds up what its backends spend. `keeps_debug_log`: plans have the lines that a debug
    build logs. `debug_realloc`: there is GGML_SCHED_DEBUG_REALLOC. `takes_gpus`: GPUs of this machine can compute.

    `compute_flag` says that nodes are flagged as ones to compute, `counts_empty` that ggml_nbytes adds up the strides
    of a tensor without elements as of any other, so that a view of no rows may take more than there is. `gpu_families`
    are the kinds of memory whose buffers make a tensor one of GGML_BACKEND_GPU.
    """

    name: str
    date: str
    commit: str
    folder: str
    rules: Rules
    ops: OpRules = SHARED
    like: Release | None = None
    build: str = ""
    library: Library | None = None
    near: tuple[Near, ...] = ()
    object_size: int = OBJECT_SIZE
    tensor_size: int = TENSOR_SIZE
    cgraph_size: int = CGRAPH_SIZE
    tensor_alignment: int = TENSOR_ALIGNMENT
    hash_shift: int = HASH_SHIFT
    graph_fields: tuple[GraphField, ...] = (NODES, LEAFS, USE_COUNTS, KEYS, *GRADS, USED)
    max_backends: int = SCHED_MAX_BACKENDS
    max_splits: int | None = None
    max_copies: int = SCHED_MAX_COPIES
    max_free_blocks: int = MAX_FREE_BLOCKS
    steps: tuple[str, ...] = ("reserve", "alloc", "compute")
    prints_functions: bool = True
    prints_use_counts: bool = True
    prints_passes: bool = False
    keeps_times: bool = False
    keeps_debug_log: bool = False
    debug_realloc: bool = True
    takes_gpus: bool = True
    compute_flag: bool = True
    counts_empty: bool = False
    gpu_families: frozenset[str] = frozenset()

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """There is one object for each release of the table."""
        if _table().get(self.name) is self:
            return _release_called, (self.name,)
        return object.__reduce_ex__(self, protocol)

    @property
    def names(self) -> tuple[str, ...]:
        """What it goes by: its name, the whole version (0.26.0), its build."""
        whole = f"{self.name}.0" if self.name.count(".") == 1 else ""
        return tuple(filter(None, (self.name, whole, self.build)))

    @property
    def title(self) -> str:
        """Its name with the build: 0.26 (llama.cpp b11549)."""
        return f"{self.name} (llama.cpp {self.build})" if self.build else self.name

    @property
    def reserves(self) -> bool:
        """Whether graphs are reserved, and planned again where the plan does not serve; else one is measured once."""
        return "reserve" in self.steps

    def struct_fields(self, struct: str) -> tuple[str, ...]:
        """The names of a struct's fields, in order."""
        # A plan asks for none, and needs not wait for the tables to be read: it has the three sizes above as numbers.
        from ggmltool.structs.layout import layout

        return tuple(layout(self.name).struct(struct).members or ())

    def graph_layout(self, size: int, grads: bool = False) -> tuple[tuple[str, int, int], ...]:
        """What ggml_new_graph_custom lays out in a graph's object: (field, offset in the object, bytes), in order."""
        slots = hash_size(2 * size)
        end = self.cgraph_size
        out = [("struct ggml_cgraph", 0, end)]
        for array in self.graph_fields:
            if grads or not array.grads:
                start = pad(end, array.nbytes)
                nbytes = array.size(size, slots)
                end = start + nbytes
                out.append((array.name, start, nbytes))
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


def _table() -> Mapping[str, Release]:
    """The releases by name. Imported on the first call, since the table imports this module."""
    table: Mapping[str, Release] = import_module("ggmltool.ggml.releases.table").RELEASES
    return table


def _release_called(name: str) -> Release:
    return _table()[name]
