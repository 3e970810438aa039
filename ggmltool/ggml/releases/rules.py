"""What one ggml does one way and another the other way, in the same scheduler and allocator: switches to turn."""

from __future__ import annotations

from dataclasses import dataclass

from ggmltool.ggml.op import INPLACE_OPS, Op


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a scheduler and its allocator; by default those of 0.20.2.

    Passes: `ignores_weights` are the ops that do not follow their weights. A node that no neighbor and no source gave a
    backend gets the first one that can run it (`takes_first_able`), or none. Of an output that is a view the root is an
    output too (`output_marks_root`). A source without a backend stops release builds too (`always_checks_sources`).

    Inputs: `max_split_inputs` is GGML_SCHED_MAX_SPLIT_INPUTS: the room of a split, and of the graph's own inputs, at
    first where `inputs_grow`, and for good where they do not. The scheduler's own graph has room for the inputs that
    there are, or for all that there could be (`counts_room`).

    Calls: reserving waits for all backends before it splits the graph, or after that (`reserve_waits_first`). A second
    graph without a reset is refused (`refuses_second_graph`). The next pipeline copies are taken when a graph is
    allocated, or when one has been computed (`copies_turn_at_alloc`). Of the experts on the host, those that are used
    are copied alone (`copies_used_experts`), or all of them, unless a callback of the program copies them. A compute
    buffer has up to `max_chunks` chunks.

    Since 0.21: an event is recorded after every split, not only after one with inputs, and a split without inputs waits
    for the one before on another backend (`records_every_split`). Since 0.26: CLAMP is one of the ops that can be
    computed in the memory of a source (`inplace_ops`). A tensor's alloc size may exceed its own bytes only in the ops
    of `expanding_ops` (None: in all). A split whose room for inputs is taken goes on in one twice as large
    (`full_split_ends`: the next node that needs one more begins another split, and that rooms grow is a warning).
    Pipeline copies of inputs are made of all leafs flagged input, in a pass 6 (`copies_leafs_last`). Weights in host
    memory are copied after all other inputs of a split (`weights_last`). Tensors that a device wants to have kept until
    one of its nodes has been computed are kept (`keeps_for_devices`).
    """

    ignores_weights: frozenset[int] = frozenset((int(Op.ROPE), int(Op.FLASH_ATTN_EXT)))
    takes_first_able: bool = True
    output_marks_root: bool = True
    always_checks_sources: bool = True
    max_split_inputs: int = 30
    inputs_grow: bool = True
    counts_room: bool = False
    reserve_waits_first: bool = True
    refuses_second_graph: bool = True
    copies_turn_at_alloc: bool = True
    copies_used_experts: bool = True
    max_chunks: int = 16
    records_every_split: bool = False
    inplace_ops: frozenset[Op] = INPLACE_OPS
    expanding_ops: frozenset[Op] | None = None
    full_split_ends: bool = True
    copies_leafs_last: bool = False
    weights_last: bool = False
    keeps_for_devices: bool = False
