"""Plans and calls of devices, the engine's beside the library's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ggmltool.ggml.events import Computed, Event, EventCall, Synchronized, TensorCopied, TensorWritten

IGNORED = frozenset({"cause"})
"""Fields the release build of the library does not record."""

ERROR_FIELDS = ("kind", "condition", "message")

LIMIT = 20
"""Differences reported at most."""


def compare(engine: Mapping[str, Any], oracle: Mapping[str, Any]) -> list[str]:
    """The differences between two plans, as "path: engine's value, not the library's"; empty where they agree.

    Of a failed step only graph, step and error count. Where the library dies of a signal, anything but success agrees.
    """
    if is_crash(oracle):
        return [f"ok: True, not a crash ({oracle['error']['message']})"] if engine["ok"] else []
    keys = ("graph", "step", "ok") if not (engine["ok"] and oracle["ok"]) else oracle.keys() - {"error"}
    out = [d for key in sorted(keys) for d in differences(engine.get(key), oracle[key], key)]
    if not oracle["ok"] and not engine["ok"]:
        for key in ERROR_FIELDS:
            out += differences(engine["error"].get(key), oracle["error"].get(key), f"error.{key}")
    elif engine["ok"] != oracle["ok"]:
        failed = oracle if engine["ok"] else engine
        out.append(f"error: {failed['error']}")
    return out[:LIMIT]


def compare_runs(engine: Sequence[Mapping[str, Any]], oracle: Sequence[Mapping[str, Any]]) -> list[str]:
    """The differences between two runs: their plans in order, and their number."""
    out = []
    for i, (e, o) in enumerate(zip(engine, oracle, strict=False)):
        out += [f"plan {i} ({o['step']} {o['graph']}) {d}" for d in compare(e, o)]
        if out or is_crash(o):
            return out
    if len(engine) != len(oracle):
        out.append(f"the engine made {len(engine)} plans, the library {len(oracle)}")
    return out


def is_crash(plan: Mapping[str, Any]) -> bool:
    """Whether the real library died of a signal instead of aborting by itself."""
    return not plan["ok"] and plan["error"]["kind"] == "crash"


def differences(engine: Any, oracle: Any, path: str) -> Iterator[str]:
    """Where two values differ, depth first."""
    if isinstance(oracle, Mapping) and isinstance(engine, Mapping):
        for key in [*oracle, *(k for k in engine if k not in oracle)]:
            if key not in IGNORED:
                yield from differences(engine.get(key, "(missing)"), oracle.get(key, "(missing)"), f"{path}.{key}")
    elif isinstance(oracle, list) and isinstance(engine, list | tuple):
        for i, (e, o) in enumerate(zip(engine, oracle, strict=False)):
            yield from differences(e, o, f"{path}[{i}]")
        if len(engine) != len(oracle):
            yield f"{path}: {len(engine)} entries, not {len(oracle)}"
    elif engine != oracle or type(engine) is not type(oracle):
        yield f"{path}: {engine!r}, not {oracle!r}"


HIDDEN = ("alloc_buffer", "free_buffer", "event_new", "set_tensor CPU ", "get_tensor CPU ")
"""Calls of the library's that the engine does not announce."""


def calls_of(trace: Iterable[str]) -> list[str]:
    """The calls on devices that the library made, as `trace_of` has the engine's: an event, which the library numbers
    through all devices, with its pipeline copy.
    """
    out = []
    for line in trace:
        if line.startswith("event_") and not line.startswith(HIDDEN):
            head, _, number = line.rpartition(" ")
            line = f"{head} {int(number) % 4}"
        out.append(line)
    return [line for line in out if not line.startswith(HIDDEN)]


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
