"""What ggml's messages mean: every text of the allocator and the scheduler, and others that go with them.

The one place where it is said what can be done: `explain error` reads it, and so do the engine's own refusals.
"""

from __future__ import annotations

from ggmltool.ggml.messages.alloc import ALLOC
from ggmltool.ggml.messages.build import BUILD
from ggmltool.ggml.messages.memory import MEMORY
from ggmltool.ggml.messages.message import Message
from ggmltool.ggml.messages.old import OLD
from ggmltool.ggml.messages.sched import SCHED

__all__ = ["MESSAGES", "Message", "remedy"]

MESSAGES: dict[str, Message] = {**SCHED, **ALLOC, **MEMORY, **BUILD, **OLD}
"""Every message by its key."""


def remedy(key: str) -> str:
    """What to do about a message, as the end of a sentence."""
    return MESSAGES[key].remedy
