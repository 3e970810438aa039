"""C's assert: what only a debug build of ggml checks."""

from __future__ import annotations

from ggmltool.ggml.errors import GgmlAssert, GgmlError


class DebugAssert(GgmlAssert):
    """assert(condition), which a release build leaves out: what that does then is undefined."""

    def __init__(self, function: str, condition: str, explanation: str = "") -> None:
        undefined = "a release build does not check, and continues with whatever is before or behind its arrays"
        text = f"{explanation}; {undefined}" if explanation else undefined
        GgmlError.__init__(self, function, f"Assertion `{condition}' failed.", condition, text)
