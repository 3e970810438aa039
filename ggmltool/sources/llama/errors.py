"""What can go wrong when a graph is captured or placed, as messages for the user."""

from __future__ import annotations

from ggmltool.ggml.errors import Error


class CaptureError(Error):
    """The graph could not be captured; the message says why, in llama.cpp's words where it gave some."""


class LlamaUnavailable(CaptureError):  # noqa: N818 - it says what is the matter
    """The library is not installed, or is a release that is not known; the message says how to get one that is."""


class PlaceError(Error):
    """The graph cannot be placed so; the message says why and what would be right. `refused`: llama.cpp would stop."""

    refused = False


class LlamaRefused(PlaceError):  # noqa: N818 - what llama.cpp does
    """llama.cpp would not go on with such options: its own words, and in `explanation` what they mean."""

    refused = True

    def __init__(self, message: str, explanation: str) -> None:
        super().__init__(message)
        self.explanation = explanation

    def __str__(self) -> str:
        return f"{self.args[0]}\n  {self.explanation}"
