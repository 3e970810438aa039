"""In which function of ggml a point lies: that in which its event comes about, before the functions around it."""

from __future__ import annotations

from typing import NamedTuple

from ggmltool.ggml.events import (
    Allocated,
    AllocationStarted,
    Assigned,
    Computed,
    Entered,
    Event,
    EventCall,
    Freed,
    GraphInputCopied,
    Grown,
    IdsChanged,
    InputAdded,
    Kept,
    KeptUntil,
    Left,
    Logged,
    NotReused,
    PassedOver,
    ReallocNeeded,
    Refused,
    Reordered,
    Reused,
    SplitStarted,
    Synchronized,
    TensorCopied,
    TensorWritten,
    UsedAfterFree,
)
from ggmltool.ggml.why import Why

_FROM_BUFFER = "ggml_backend_sched_backend_from_buffer"
_FROM_CUR = "ggml_backend_sched_backend_id_from_cur"
_IF_SUPPORTED = "ggml_backend_sched_set_if_supported"
_SPLIT_GRAPH = "ggml_backend_sched_split_graph"
_SUPPORTS_OP = "ggml_backend_device_i.supports_op"
_OFFLOAD = "ggml_backend_device_i.offload_op"


class Innermost(NamedTuple):
    """A function, those on the way out of it that say which of several callers it is, and whose it is: a backend's, or
    a buffer type's."""

    function: str
    via: tuple[str, ...] = ()
    backend: str = ""
    buft: str = ""


def innermost(event: Event) -> Innermost | None:
    """Where an event comes about in a ggml that reserves; None where that is the function that was announced last."""
    match event:
        case Assigned() | PassedOver() | Refused():
            return _of_rule(event)
        case SplitStarted() | InputAdded() | GraphInputCopied():
            return Innermost(_SPLIT_GRAPH)
        case Reordered(backend) | KeptUntil(backend):
            return Innermost("ggml_backend_i.graph_optimize", backend=backend)
        case IdsChanged():
            return Innermost("ggml_backend_sched_alloc_splits")
        case ReallocNeeded(Why.N_NODES | Why.N_LEAFS):
            return Innermost("ggml_gallocr_needs_realloc")
        case ReallocNeeded():
            return Innermost("ggml_gallocr_node_needs_realloc")
        case Grown(buft):
            return Innermost("ggml_backend_buffer_type_i.alloc_buffer", buft=buft)
        case AllocationStarted() | Allocated() | Reused() | NotReused() | Freed() | Kept():
            return _of_allocator(event)
        case Logged(_, text):
            return Innermost(text.partition(":")[0])
        case Entered() | Left() | UsedAfterFree(node=""):
            return None
        case UsedAfterFree():
            return Innermost("ggml_backend_sched_compute_splits")
        case _:
            return _of_compute(event)


def _of_rule(event: Assigned | PassedOver | Refused) -> Innermost:
    backend, cause = event.backend, event.cause
    if event.rule == 0:
        return Innermost("ggml_backend_sched_set_tensor_backend")
    match event:
        case Refused(rule=rule):
            asks = {1: _FROM_CUR if cause == "1.off" else _FROM_BUFFER, 2: _IF_SUPPORTED}
            return Innermost(_SUPPORTS_OP, (asks.get(rule, _SPLIT_GRAPH),), backend)
        case PassedOver(why=Why.BUFT):
            return Innermost("ggml_backend_device_i.supports_buft", (), backend)
        case PassedOver(why=Why.SMALL_BATCH | Why.NEVER_OFFLOADS) | Assigned(why=Why.OFFLOAD):
            return Innermost(_OFFLOAD, (), backend)
        case Assigned(why=Why.MEMORY | Why.WEIGHT):
            return Innermost(_FROM_BUFFER)
        case Assigned(why=Why.NEIGHBOR | Why.FIRST_ABLE):
            return Innermost(_IF_SUPPORTED)
    return Innermost(_FROM_CUR if event.rule == 1 else _SPLIT_GRAPH)


def _of_allocator(event: AllocationStarted | Allocated | Reused | NotReused | Freed | Kept) -> Innermost:
    match event:
        case AllocationStarted():
            return Innermost("ggml_gallocr_alloc_graph_impl")
        case Allocated():
            return Innermost("ggml_dyn_tallocr_alloc")
        case Freed(extra=extra):
            by = "ggml_gallocr_free_extra_space" if extra else "ggml_gallocr_free_node"
            return Innermost("ggml_dyn_tallocr_free_bytes", (by,))
        case Kept():
            return Innermost("ggml_gallocr_free_node")
    return Innermost("ggml_gallocr_allocate_node")


_EVENT_CALLS = {
    "record": "ggml_backend_i.event_record",
    "wait": "ggml_backend_i.event_wait",
    "synchronize": "ggml_backend_device_i.event_synchronize",
}


def _of_compute(event: Event) -> Innermost | None:
    match event:
        case Synchronized(backend):
            return Innermost("ggml_backend_i.synchronize", backend=backend)
        case EventCall(call, backend):
            return Innermost(_EVENT_CALLS[call], backend=backend)
        case TensorCopied(how="async"):
            return Innermost("ggml_backend_i.cpy_tensor_async", buft=event.dst_buft)
        case TensorCopied(how="set"):
            return Innermost("ggml_backend_buffer_i.set_tensor", buft=event.dst_buft)
        case TensorCopied(how="get"):
            return Innermost("ggml_backend_buffer_i.get_tensor", buft=event.src_buft)
        case TensorCopied(how="cpy"):
            return Innermost("ggml_backend_buffer_i.cpy_tensor", buft=event.dst_buft)
        case TensorCopied():
            return Innermost("ggml_backend_tensor_copy")
        case TensorWritten(buft=buft, get=get):
            return Innermost(f"ggml_backend_buffer_i.{'get' if get else 'set'}_tensor", buft=buft)
        case Computed(_, backend):
            return Innermost("ggml_backend_i.graph_compute", backend=backend)
    return None
