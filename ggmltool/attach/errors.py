"""What can be in the way when a program is looked at, as messages for the user."""

from __future__ import annotations

from ggmltool.state.errors import AttachError


class Dies(AttachError):  # noqa: N818 - it says what happens
    """The program is about to end: it stands at the entry of ggml_abort, or has received `signal`."""

    def __init__(self, name: str, signal: str = "") -> None:
        what = f"received {signal}" if signal else "called ggml_abort"
        super().__init__(f"{name} {what}; `attach --until-abort` explains it", refused=True)
        self.signal = signal


__all__ = ["AttachError", "Dies"]
