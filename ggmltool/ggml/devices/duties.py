"""What a backend of one's own has to implement, function by function, and what may be NULL (ggml 0.20.2)."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from ggmltool.ggml.devices.interfaces import BACKEND_I, BUFFER_I, BUFFER_TYPE_I, DEVICE_I, IF_NULL

REG_I = ("get_name", "get_device_count", "get_device", "get_proc_address")


class Need(StrEnum):
    """Whether a function has to be there."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    WITH_EVENTS = "with events"
    WITH_CAP = "with its cap"


class Outcome(StrEnum):
    """What comes of a call where the function is NULL."""

    CRASH = "crash"
    ASSERT = "assert"
    FINE = "fine"


class Duty(NamedTuple):
    """A function of a table: whether it has to be there, what it does, and what ggml does where it is NULL."""

    field: str
    need: Need
    does: str
    outcome: Outcome
    if_null: str


_CRASH = "a crash: it is called without a check"

_DOES: dict[str, dict[str, str]] = {
    "ggml_backend_reg_i": {
        "get_name": "the name of the family, CUDA",
        "get_device_count": "how many devices there are",
        "get_device": "a device by its number",
        "get_proc_address": "functions beyond this interface, by name",
    },
    "ggml_backend_device_i": {
        "get_name": "the name that logs and --device have, CUDA0",
        "get_description": "the name of the hardware",
        "get_memory": "bytes free and in total, 0 for unknown",
        "get_type": "CPU, GPU, IGPU or ACCEL",
        "get_props": "all of the above, and caps: async, host_buffer, buffer_from_host_ptr, events",
        "init_backend": "a new backend (a stream)",
        "get_buffer_type": "the default buffer type",
        "get_host_buffer_type": "pinned host memory",
        "buffer_from_host_ptr": "a buffer over host memory, such as a mapped model",
        "supports_op": "whether it computes a node, asked in every pass",
        "supports_buft": "whether it reads and writes memory of a type",
        "offload_op": "whether it takes an op whose weights are on the host",
        "event_new": "an event, of which pipeline copies need one each",
        "event_free": "frees it",
        "event_synchronize": "the host waits for it",
    },
    "ggml_backend_i": {
        "get_name": "the name that GGML_SCHED_DEBUG prints",
        "free": "frees the backend",
        "set_tensor_async": "host to tensor, without waiting",
        "get_tensor_async": "tensor to host, without waiting",
        "set_tensor_2d_async": "the same of many pieces at equal distances",
        "get_tensor_2d_async": "the same of many pieces at equal distances",
        "cpy_tensor_async": "tensor to tensor of another backend; false: do it another way",
        "synchronize": "waits for all that was begun; required where anything is asynchronous",
        "graph_plan_create": "a graph prepared for being computed often",
        "graph_plan_free": "frees it",
        "graph_plan_update": "another graph for it",
        "graph_plan_compute": "computes it",
        "graph_compute": "computes the nodes of a split",
        "event_record": "an event for all that was begun",
        "event_wait": "the stream waits for an event",
        "graph_optimize": "its own order of the nodes of a split",
    },
    "ggml_backend_buffer_type_i": {
        "get_name": "the name in logs, and of -ot",
        "alloc_buffer": "a buffer, NULL where there is no memory",
        "get_alignment": "of tensors, a power of two",
        "get_max_size": "of one buffer; more becomes several chunks",
        "get_alloc_size": "bytes of a tensor with padding",
        "is_host": "whether the CPU can use it directly",
    },
    "ggml_backend_buffer_i": {
        "free_buffer": "frees its memory",
        "get_base": "its first address",
        "init_tensor": "a tensor got its place",
        "memset_tensor": "a byte, over a part of a tensor",
        "set_tensor": "host to tensor",
        "get_tensor": "tensor to host",
        "set_tensor_2d": "host to many pieces of a tensor",
        "get_tensor_2d": "many pieces of a tensor to host",
        "cpy_tensor": "from a tensor of any buffer; false: do it another way",
        "clear": "a byte, over all of it",
        "reset": "forget what was attached to its tensors",
    },
}

_INSTEAD: dict[tuple[str, str], tuple[Need, Outcome, str]] = {
    ("ggml_backend_reg_i", "get_proc_address"): (Need.OPTIONAL, Outcome.FINE, "no functions beyond the interface"),
    ("ggml_backend_device_i", "buffer_from_host_ptr"): (
        Need.WITH_CAP, Outcome.CRASH, "a crash, where caps say that it is there: nobody checks",
    ),
    ("ggml_backend_device_i", "offload_op"): (Need.OPTIONAL, Outcome.FINE, "it offloads nothing"),
    ("ggml_backend_device_i", "event_new"): (
        Need.OPTIONAL, Outcome.FINE, "no events: pipeline copies wait with synchronize",
    ),
    ("ggml_backend_device_i", "event_free"): (Need.WITH_EVENTS, Outcome.CRASH, _CRASH),
    ("ggml_backend_device_i", "event_synchronize"): (Need.WITH_EVENTS, Outcome.ASSERT, "an assertion"),
    ("ggml_backend_i", "event_record"): (Need.WITH_EVENTS, Outcome.ASSERT, "an assertion"),
    ("ggml_backend_i", "event_wait"): (Need.WITH_EVENTS, Outcome.ASSERT, "an assertion"),
    ("ggml_backend_i", "set_tensor_async"): (Need.OPTIONAL, Outcome.FINE, "synchronize, then the buffer's set_tensor"),
    ("ggml_backend_i", "get_tensor_async"): (Need.OPTIONAL, Outcome.FINE, "synchronize, then the buffer's get_tensor"),
    ("ggml_backend_i", "graph_plan_create"): (Need.OPTIONAL, Outcome.ASSERT, "an assertion; the scheduler never asks"),
    ("ggml_backend_i", "graph_plan_free"): (Need.OPTIONAL, Outcome.ASSERT, "an assertion; the scheduler never asks"),
    ("ggml_backend_i", "graph_plan_compute"): (Need.OPTIONAL, Outcome.ASSERT, "an assertion; the scheduler never asks"),
    ("ggml_backend_buffer_i", "free_buffer"): (Need.OPTIONAL, Outcome.FINE, "its memory is kept"),
    ("ggml_backend_buffer_i", "get_base"): (
        Need.REQUIRED, Outcome.FINE, "the base is NULL: its first tensor has no data",
    ),
    ("ggml_backend_buffer_i", "memset_tensor"): (
        Need.OPTIONAL, Outcome.ASSERT, "an assertion; the scheduler never asks",
    ),
}  # fmt: skip
"""Where it is not that a function is required, or that IF_NULL says what happens without it."""

TABLES: dict[str, tuple[str, ...]] = {
    "ggml_backend_reg_i": REG_I,
    "ggml_backend_device_i": DEVICE_I,
    "ggml_backend_i": BACKEND_I,
    "ggml_backend_buffer_type_i": BUFFER_TYPE_I,
    "ggml_backend_buffer_i": BUFFER_I,
}
"""The tables from the registry to the buffer, with their fields in order."""


def duties() -> dict[str, tuple[Duty, ...]]:
    """Every function of every table, in order."""
    return {kind: tuple(_duty(kind, name) for name in fields) for kind, fields in TABLES.items()}


def _duty(kind: str, name: str) -> Duty:
    does = _DOES[kind][name]
    special = _INSTEAD.get((kind, name))
    if special is not None:
        need, outcome, if_null = special
        return Duty(name, need, does, outcome, if_null)
    if name in IF_NULL:
        return Duty(name, Need.OPTIONAL, does, Outcome.FINE, IF_NULL[name])
    return Duty(name, Need.REQUIRED, does, Outcome.CRASH, _CRASH)
