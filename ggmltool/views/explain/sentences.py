"""What the engine did, in a sentence that every view of events says alike."""

from __future__ import annotations

from ggmltool.ggml.events import (
    Assigned,
    Event,
    IdsChanged,
    Kept,
    KeptUntil,
    Logged,
    NotReused,
    ReallocNeeded,
    UsedAfterFree,
)
from ggmltool.inspect.use_after_free import grew
from ggmltool.views.explain.words import words


def sentence(event: Event) -> str:
    """The event with its reason; "" for one that each view says in a way of its own."""
    match event:
        case Assigned(tensor, backend, _, cause):
            return f"{tensor} → {backend} ({cause}): {words(event)}"
        case IdsChanged(at, tensor, is_leaf, old, new):
            return f"{'leaf' if is_leaf else 'node'} {at}, {tensor}, moved from {old} to {new}"
        case KeptUntil(backend, tensor, until):
            return f"{tensor} keeps its memory until {until}: {backend} asks for it"
        case NotReused(tensor, parent):
            return f"not {tensor} in the memory of {parent}: {words(event)}"
        case Kept(tensor):
            return f"keep {tensor}: it is an output"
        case ReallocNeeded(_, tensor, old, new):
            sizes = f" ({old} → {new})" if old is not None else ""
            return "the reserved plan does not serve: " + words(event) + (f": {tensor}" if tensor else "") + sizes
        case UsedAfterFree(tensor, node, buft, old, new, step):
            by = f", used by {node}" if node and node != tensor else ""
            why = f"{buft} {grew(old, new)} from {old} to {new} bytes"
            return f"use after free: {tensor}{by}; step {step} freed it when {why}"
        case Logged(level, text):
            return f"{level}: {text.rstrip()}"
    return ""
