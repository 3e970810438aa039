"""What stands in the way of an answer: there is nothing to find, ggml refused, or memory cannot be read."""

from __future__ import annotations

from collections.abc import Mapping

from ggmltool.ggml.errors import Error
from ggmltool.ggml.printable import printable


class InspectError(Error):
    """What was asked for is not there; the message names what is. `refused`: since ggml would not go on."""

    def __init__(self, message: str, refused: bool = False) -> None:
        self.message = message
        self.refused = refused
        super().__init__(message)

    def __str__(self) -> str:
        return "\n".join(map(printable, self.message.split("\n")))


class WrongUse(InspectError):  # noqa: N818 - what it is
    """What was asked for contradicts itself; the message says how to ask."""


class WrongArgument(WrongUse, TypeError):  # noqa: N818 - what it is
    """A function of the API was called with an argument that it does not have, or of another kind."""


class NoPoint(InspectError, IndexError):  # noqa: N818 - what it is
    """A history has no such point."""


class StepRefused(InspectError):  # noqa: N818 - as ggml refuses
    """ggml refused the step, and nothing that was asked for stands. `error` is the plan's, `lead` what it is of."""

    def __init__(self, error: Mapping[str, str | None], lead: str = "") -> None:
        self.error = dict(error)
        self.lead = lead
        super().__init__(f"{lead}{self.error.get('message') or 'ggml failed'}", refused=True)

    def __str__(self) -> str:
        explanation = self.error.get("explanation")
        told = super().__str__()
        return "\n".join([told, *map(printable, explanation.splitlines())]) if explanation else told


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
