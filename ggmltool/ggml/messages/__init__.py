"""What ggml's messages mean: every text of the allocator and the scheduler, what llama.cpp says while it loads and
reserves, and what devices say of their memory.

The one place where it is said what can be done: `explain error` reads it, and so do the engine's own refusals.
"""

from __future__ import annotations

from ggmltool.ggml.messages.alloc import ALLOC
from ggmltool.ggml.messages.build import BUILD
from ggmltool.ggml.messages.devices import DEVICES
from ggmltool.ggml.messages.fit import FIT
from ggmltool.ggml.messages.kernels import KERNELS
from ggmltool.ggml.messages.llama import LLAMA
from ggmltool.ggml.messages.memory import MEMORY
from ggmltool.ggml.messages.message import Message
from ggmltool.ggml.messages.old import OLD
from ggmltool.ggml.messages.sched import SCHED

__all__ = ["MESSAGES", "Message", "remedy"]

MESSAGES: dict[str, Message] = {**SCHED, **ALLOC, **MEMORY, **BUILD, **OLD, **KERNELS, **DEVICES, **LLAMA, **FIT}
"""Every message by its key."""


def remedy(key: str, **values: str) -> str:
    """What to do about a message, as the end of a sentence; `values` are those of its places."""
    return MESSAGES[key].told(values).remedy
