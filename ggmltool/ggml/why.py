"""The codes of the scheduler's reasons: what a decision rests on, whatever the words for it are."""

from __future__ import annotations

from enum import StrEnum


class Why(StrEnum):
    """Why a tensor got a backend, why a rule passed it over, or why a split begins."""

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
