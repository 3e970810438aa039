"""The reasons of the engine's decisions, as codes with the facts they are about; the words for them are the views'."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Why(StrEnum):
    """Why a tensor got a backend, why a rule passed it over, why a split begins, why a node does not get the memory of
    a source, or why a plan does not serve.
    """

    USER = "user"
    MEMORY = "memory"
    INPUT = "input"
    WEIGHT = "weight"
    OFFLOAD = "offload"
    NEIGHBOR = "neighbor"
    MOST_SOURCES = "most_sources"
    ONLY_ONE = "only_one"
    SAME_BUFT = "same_buft"
    VIEW = "view"
    READER = "reader"
    FIRST_ABLE = "first_able"

    NO_MEMORY = "no_memory"
    NOT_INPUT = "not_input"
    WEIGHTS_IGNORED = "weights_ignored"
    NO_WEIGHT = "no_weight"
    OP = "op"
    BUFT = "buft"
    SOURCES = "sources"
    FEWER_SOURCES = "fewer_sources"
    NEVER_OFFLOADS = "never_offloads"
    SMALL_BATCH = "small_batch"
    OFFLOAD_OFF = "offload_off"
    NO_NEIGHBOR = "no_neighbor"
    SPREADS_LAST = "spreads_last"
    NO_BACKEND = "no_backend"

    FIRST_NODE = "first_node"
    OTHER_BACKEND = "other_backend"
    WEIGHT_COPIED = "weight_copied"
    NO_ROOM = "no_room"
    VIEWS_ONLY = "views_only"

    IS_VIEW = "is_view"
    PREALLOCATED = "preallocated"
    TAKEN_OVER = "taken_over"
    OUTPUT = "output"
    LAYOUT = "layout"
    CHILDREN = "children"
    VIEWS = "views"
    OTHER_BUFFER = "other_buffer"
    IN_USE = "in_use"
    ROOT_IN_USE = "root_in_use"
    INSIDE_ROOT = "inside_root"

    N_NODES = "n_nodes"
    N_LEAFS = "n_leafs"
    LARGER = "larger"


class Sweep(msgspec.Struct, frozen=True, gc=False):
    """A sweep of pass 2 over the nodes: `down` is in the order of the graph, else against it. Where it `skips_last`,
    the last backend does not expand.
    """

    down: bool
    skips_last: bool


class Facts(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, repr_omit_defaults=True):
    """What a reason is about; None if it is not about that.

    `buft` is where memory lies (None: in the scheduler's own, where one has such), `tensor` and `backend` are others
    than the event's. `batch` is the op's, `min_batch` the least that is offloaded. `n_src` counts sources, `readable`
    those that each backend that supports the op can read, where it is asked of several.
    """

    tensor: str | None = None
    backend: str | None = None
    buft: str | None = None
    op: str | None = None
    batch: int | None = None
    min_batch: int | None = None
    sweep: Sweep | None = None
    n_backends: int | None = None
    n_src: int | None = None
    n_inputs: int | None = None
    n_children: int | None = None
    n_views: int | None = None
    readable: tuple[tuple[str, int], ...] | None = None


NO_FACTS = Facts()
