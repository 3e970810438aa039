"""What ggml's messages mean: every text of the allocator and the scheduler, what llama.cpp says while it loads and
reserves, and what devices say of their memory.

The words are in `data/messages/`, the one place where it is said what can be done: `explain error` reads it, and so do
the engine's own refusals.
"""

from __future__ import annotations

from functools import cache

from ggmltool.data import load
from ggmltool.ggml.messages.message import Message, resolved

__all__ = ["FILES", "Message", "messages", "remedy"]

FILES = ("sched", "alloc", "memory", "build", "old", "kernels", "devices", "llama", "fit")


@cache
def messages() -> dict[str, Message]:
    """Every message by its key."""
    out: dict[str, Message] = {}
    for name in FILES:
        out |= load(f"messages/{name}.toml", dict[str, Message])
    return resolved(out)


def remedy(key: str, **values: str) -> str:
    """What to do about a message, as the end of a sentence; `values` are those of its places."""
    return messages()[key].told(values).remedy
