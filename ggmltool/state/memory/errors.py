"""What can be in the way when memory is read."""

from __future__ import annotations

from ggmltool.ggml.errors import Error


class AttachError(Error):
    """The program cannot be looked at; the message says why, and what to do.

    `refused`: nothing was wrong with the wish, but the program did not do what was waited for.
    """

    def __init__(self, message: str, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class NotAsLaidOut(AttachError):  # noqa: N818 - it says what is the matter
    """What stands in memory is not what a ggml of this layout has there."""


class LinkError(Exception):
    """Who reads the memory (gdb) could not do what it was asked; the message is its own."""


class NoBytes(LinkError):  # noqa: N818 - it says what is the matter
    """There is nothing to read at an address."""

    def __init__(self, address: int, length: int) -> None:
        super().__init__(f"cannot read {length} bytes at {address:#x}")
        self.address = address
