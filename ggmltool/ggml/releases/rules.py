"""What one ggml does one way and another the other way, in the same scheduler and allocator: switches to turn."""

from __future__ import annotations

from dataclasses import dataclass

from ggmltool.ggml.op import INPLACE_OPS, Op


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
    max_split_inputs: int = 30
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
