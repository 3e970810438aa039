"""What changed in ggml's scheduler and allocator between the releases that the engine has: each rule with its day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Area = Literal["assignment", "splits", "copies", "memory"]


@dataclass(frozen=True, slots=True)
class Change:
    """A rule that changed. `since` is the day its commit `commit` of ggml was written, as in ggml's history.

    `before` and `now` are the rule in a sentence each, `area` is what it decides.
    """

    key: str
    since: str
    commit: str
    area: Area
    before: str
    now: str


CHANGES: tuple[Change, ...] = (
    Change(
        "gallocr-v3",
        "2024-02-11",
        "5070f078",
        "memory",
        "leafs get memory when the first node needs them, and give it back after the last one",
        "leafs and inputs get memory before the first node, and outputs keep theirs to the end",
    ),
    Change(
        "reserve",
        "2024-02-11",
        "5070f078",
        "memory",
        "a scheduler measures once; a graph that needs more aborts",
        "the plan of the largest graph is kept, and buffers grow where a graph needs more",
    ),
    Change(
        "alignment",
        "2024-02-11",
        "5070f078",
        "memory",
        "tensors in CPU memory lie at multiples of 64 bytes",
        "they lie at multiples of 32, which is all that GGUF files guarantee",
    ),
    Change(
        "inputs",
        "2024-03-13",
        "20fd8dad",
        "assignment",
        "an input without memory goes to the backend of the first node that reads it",
        "an input goes to the last backend, the CPU, and is copied to whoever reads it",
    ),
    Change(
        "pipeline",
        "2024-03-13",
        "20fd8dad",
        "copies",
        "a tensor has one copy on a backend",
        "with parallel, inputs have four copies on a backend, so that the next graph need not wait",
    ),
    Change(
        "offload",
        "2024-03-18",
        "952fb4cc",
        "assignment",
        "an op runs where its weights are",
        "a device with a higher priority takes ops on the CPU's weights when the batch is large enough",
    ),
    Change(
        "weight-split",
        "2024-03-18",
        "952fb4cc",
        "splits",
        "a split goes on as long as the backend is the same",
        "a weight that has to be copied begins a new split, so that its copy takes the place of the one before",
    ),
    Change(
        "split-count",
        "2024-03-18",
        "952fb4cc",
        "splits",
        "256 splits at most; one more aborts",
        "the list of splits grows",
    ),
    Change(
        "split-inputs-10",
        "2024-03-18",
        "81ccd916",
        "splits",
        "16 inputs to a split at most; one more aborts",
        "a split that has 10 inputs ends before a node that needs another",
    ),
    Change(
        "supports-op",
        "2024-06-13",
        "f54604ef",
        "assignment",
        "backends spread to the nodes beside theirs, whatever their devices can compute",
        "a backend spreads only to nodes that its device supports",
    ),
    Change(
        "down-first",
        "2024-06-13",
        "f54604ef",
        "assignment",
        "backends spread up to the nodes before, then down",
        "backends spread down to the nodes after, then up",
    ),
    Change(
        "best-backend",
        "2024-06-13",
        "f54604ef",
        "assignment",
        "a node that no backend spread to has no backend, which aborts",
        "a node that is left goes to the backend that can read most of its sources",
    ),
    Change(
        "upgrade",
        "2024-06-13",
        "f54604ef",
        "assignment",
        "a node stays with the first backend it was given",
        "a node goes to a higher backend of the same buffer type that supports it and reads its sources (BLAS)",
    ),
    Change(
        "buffer-supported",
        "2024-06-13",
        "f54604ef",
        "copies",
        "a source on another backend is copied",
        "a source that lies in a buffer the device can use is read where it is",
    ),
    Change(
        "buffer-type-plan",
        "2024-06-13",
        "f54604ef",
        "memory",
        "each backend has a compute buffer of its own",
        "backends of one buffer type share a plan and a buffer",
    ),
    Change(
        "hash",
        "2024-07-27",
        "8a7be58d",
        "memory",
        "a tensor's slot is its address modulo the size of the hash set",
        "a sixteenth of the address counts, and used slots are bits",
    ),
    Change(
        "spare-bytes",
        "2024-10-17",
        "b4cc57b0",
        "memory",
        "a CPU buffer takes 64 bytes more than asked for, for malloc's alignment",
        "the memory comes aligned; the size is what was asked for",
    ),
    Change(
        "rope-weights",
        "2024-10-30",
        "da649f70",
        "assignment",
        "rope runs where its frequency factors are, if those are weights",
        "rope's frequency factors do not decide, being small",
    ),
    Change(
        "preallocated",
        "2024-12-03",
        "351268d5",
        "assignment",
        "a node in memory of its own runs on the first backend that uses the buffer type, whatever it supports",
        "the backend must support the op, too; where none does, ggml aborts",
    ),
    Change(
        "inplace-ops",
        "2025-01-16",
        "93ea0016",
        "memory",
        "rope_back, silu_back, rms_norm_back and soft_max_back take new memory",
        "they are computed in place where they can be",
    ),
    Change(
        "lost-data",
        "2025-05-01",
        "1e04f6ae",
        "memory",
        "a leaf that had memory of its own when reserved and has none now aborts",
        "the graph is reserved again",
    ),
    Change(
        "op-offload",
        "2025-05-11",
        "6c46cbe3",
        "assignment",
        "large batches always go to the device that asks for them",
        "op_offload: false keeps them with their weights",
    ),
    Change(
        "next-copy",
        "2025-07-25",
        "179d73c9",
        "copies",
        "with parallel, the copy in use changes after each compute",
        "it changes at each alloc, and is the first one again after all backends were waited for",
    ),
    Change(
        "alloc-once",
        "2025-07-25",
        "179d73c9",
        "memory",
        "alloc twice without a reset goes on with what is assigned",
        "alloc twice without a reset aborts",
    ),
    Change(
        "rest",
        "2025-08-06",
        "3d9477c8",
        "assignment",
        "a node or view that has no backend after pass 4 is an error of debug builds only",
        "it goes to the first backend that supports it",
    ),
    Change(
        "host-sources",
        "2025-08-06",
        "3d9477c8",
        "assignment",
        "the CPU refuses ops with a source in a buffer that is not host memory",
        "the CPU takes every op that it can compute, and such a source is copied to it",
    ),
    Change(
        "used-experts",
        "2025-08-20",
        "d949a9b0",
        "copies",
        "expert weights are copied whole",
        "only the experts that the ids name are copied",
    ),
    Change(
        "split-inputs-30",
        "2025-09-02",
        "905a1e1f",
        "splits",
        "a split that has 10 inputs ends before a node that needs another",
        "a split has up to 30 inputs",
    ),
    Change(
        "graph-optimize",
        "2025-09-08",
        "b14a96b6",
        "splits",
        "nodes are computed in the order of the graph",
        "a device may order the nodes of a split its own way (Metal, Vulkan)",
    ),
    Change(
        "metal-scratch",
        "2025-09-14",
        "4ed4c968",
        "memory",
        "Metal takes what attention, sorts and products by expert work with from pools of its own",
        "it lies behind the result, which so takes more of the compute buffer",
    ),
    Change(
        "chunks",
        "2025-09-24",
        "254ea3e5",
        "memory",
        "a compute buffer is one piece, however large",
        "a compute buffer is cut into chunks no larger than the device's largest buffer",
    ),
    Change(
        "tail",
        "2025-10-20",
        "9dea367c",
        "memory",
        "a node computed in the place of a source that takes more memory keeps all of it",
        "what the node does not need is free again",
    ),
    Change(
        "attention-weights",
        "2026-07-27",
        "27bbeaff",
        "assignment",
        "flash_attn_ext runs where a source of it is, if that is a weight",
        "its sources do not decide: sinks are small",
    ),
    Change(
        "inputs-grow",
        "2026-08-03",
        "e8e7ea4f",
        "splits",
        "with parallel, one more graph input than a split may have aborts",
        "the list of graph inputs grows",
    ),
)
"""In the order of their days."""

BY_KEY = {change.key: change for change in CHANGES}


def changes_between(older: str, newer: str) -> tuple[Change, ...]:
    """What changed after the day `older` up to the day `newer` (YYYY-MM-DD), in the order of days."""
    return tuple(change for change in CHANGES if older < change.since <= newer)
