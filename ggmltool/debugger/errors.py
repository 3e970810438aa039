"""What goes wrong at the prompt."""

from __future__ import annotations


class CommandError(Exception):
    """What cannot be done, in gdb's words."""
