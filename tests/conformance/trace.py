"""The engine's events as the calls that ggml would make on its devices, in the oracle's form."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ggmltool.ggml.events import Computed, Event, EventCall, Synchronized, TensorCopied, TensorWritten

IsVisible = Callable[[str], bool]


def trace_of(events: Iterable[Event], visible: IsVisible = lambda buft: True) -> list[str]:
    """One line for each call on a device (see `OracleRun.trace`), without those that make or free something.

    `visible` says whether reads and writes of a buffer type's memory are calls that can be seen.
    """
    out: list[str] = []
    for event in events:
        out += _lines(event, visible)
    return out


def _lines(event: Event, visible: IsVisible) -> list[str]:
    match event:
        case Synchronized(backend):
            return [f"synchronize {backend}"]
        case Computed(_, backend, nodes):
            return [f"graph_compute {backend} [{', '.join(nodes)}]"]
        case EventCall(call, backend, copy):
            return [f"event_{call} {backend} {copy}"]
        case TensorWritten(tensor, buft, offset, nbytes, get):
            return [f"{'get' if get else 'set'}_tensor {buft} {tensor} {offset} {nbytes}"] if visible(buft) else []
        case TensorCopied(src, dst, nbytes, how, src_buft, dst_buft) if nbytes:
            lines = []
            if how in ("get", "bounce") and visible(src_buft):
                lines.append(f"get_tensor {src_buft} {src} 0 {nbytes}")
            if how in ("set", "bounce") and visible(dst_buft):
                lines.append(f"set_tensor {dst_buft} {dst} 0 {nbytes}")
            return lines
    return []
