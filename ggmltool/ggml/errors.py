"""What ggmltool raises, and what ggml does when it refuses: assertions, aborts and failed calls, in ggml's own words.

Error
├── ScenarioError   a mistake in a file, or a name that it does not have (scenario.errors)
├── InspectError    what was asked for is not there (state.errors)
│   ├── StepRefused   ggml refused, and there is nothing to show without a plan
│   └── WrongUse      it contradicts itself
│       └── WrongArgument  an argument of the API is of another kind, or there is none of its name; a TypeError, too
├── CaptureError    llama.cpp's library is missing, or refuses the model (sources.llama.errors)
└── GgmlError       ggml would not go on
    ├── GgmlAssert    GGML_ASSERT(condition)
    │   └── LineAssert  the same as ggml of 2024 prints it, with file and line
    ├── GgmlAbort     GGML_ABORT("message")
    ├── GgmlCrash     no check: the process reads or writes where it must not
    │   ├── GgmlOverrun beyond or before a buffer, which may go unnoticed
    │   └── UseAfterFree in a buffer that was freed, which may go unnoticed
    ├── GgmlFailed    a call that returned false, NULL or a status other than success
    └── NotComputable ggml can compute this, the numpy engine cannot
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Self

from ggmltool.ggml.printable import printable

ErrorKind = Literal["abort", "crash", "failed"]


def advice(key: str, **values: str) -> str:
    """What `ggml.messages` says can be done about a message: the end of an explanation. `values` tell the case."""
    from ggmltool.ggml.messages import remedy

    return remedy(key, **values)


class Breach(NamedTuple):
    """A limit that was not kept: its key in `data/limits`, and how much of it would have been needed."""

    limit: str
    used: int


class Error(Exception):
    """What ggmltool raises; pickled and copied with all its attributes, whatever its constructor takes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[Error], args: tuple[Any, ...], attributes: dict[str, Any]) -> Error:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class GgmlError(Error):
    """ggml would not go on.

    Attributes: `kind` ("abort", "crash" or "failed"), `function` (the ggml function that refused), `condition` (the
    asserted expression, if any), `message` (what ggml prints) and `explanation` (what it means here). `where` names the
    place in the caller's input (file:line:column, and what stands there), if it is known. `breach` is the limit of
    ggml's that was reached, where that is the reason.
    """

    kind: ErrorKind = "abort"

    def __init__(self, function: str, message: str, condition: str | None = None, explanation: str = "") -> None:
        super().__init__(message)
        self.function = function
        self.condition = condition
        self.message = message
        self.explanation = explanation
        self.where = ""
        self.breach: Breach | None = None

    def __str__(self) -> str:
        """ggml's message, and below it for which place of the input, and what it means."""
        place = f"in {self.function}" + (f", for {self.where}" if self.where else "")
        below = [place, *self.explanation.splitlines()] if self.where or self.explanation else []
        return "\n  ".join(printable(line) for line in (self.message.rstrip("\n"), *below))

    def of(self, limit: str, used: int) -> Self:
        """The same error, with the limit that was not kept."""
        self.breach = Breach(limit, used)
        return self

    def as_dict(self) -> dict[str, str | None]:
        """The error as the plan's `error` object."""
        return {
            "kind": self.kind,
            "function": self.function,
            "condition": self.condition,
            "message": self.message,
            "explanation": self.explanation,
        }


class GgmlAssert(GgmlError):  # noqa: N818 - ggml's word
    """GGML_ASSERT: `condition` is the text between the parentheses."""

    def __init__(self, function: str, condition: str, explanation: str = "") -> None:
        super().__init__(function, f"GGML_ASSERT({condition}) failed", condition, explanation)


class LineAssert(GgmlAssert):
    """GGML_ASSERT of 2024, whose message says where it stands. `printed` is what the function prints before it."""

    def __init__(
        self, function: str, file: str, line: int, condition: str, explanation: str = "", printed: str = ""
    ) -> None:
        GgmlError.__init__(self, function, f"GGML_ASSERT: {file}:{line}: {condition}", condition, explanation)
        self.file = file
        self.line = line
        self.printed = printed


class GgmlAbort(GgmlError):  # noqa: N818 - ggml's word
    """GGML_ABORT: `message` is the formatted text."""


class GgmlCrash(GgmlError):  # noqa: N818 - as the others
    """ggml checks nothing and the process dies of a signal; `what` is what it does."""

    kind: ErrorKind = "crash"

    def __init__(self, function: str, what: str, explanation: str = "") -> None:
        super().__init__(function, f"Segmentation fault (SIGSEGV): {what}", None, explanation)


class GgmlOverrun(GgmlCrash):
    """ggml checks nothing and reads or writes beyond a tensor's memory, crashing or not; `what` says where."""

    def __init__(self, function: str, what: str, explanation: str = "") -> None:
        GgmlError.__init__(self, function, what, None, explanation)


class UseAfterFree(GgmlOverrun):
    """ggml checks nothing and uses a tensor whose buffer was freed; its values are whatever lies there now."""


class GgmlFailed(GgmlError):  # noqa: N818 - ggml's word
    """A ggml call reported failure instead of aborting."""

    kind: ErrorKind = "failed"


class NotComputable(GgmlError):  # noqa: N818 - as the others
    """ggml would compute this, but the numpy engine has no way to; planning is not affected."""

    kind: ErrorKind = "failed"


class DebugAssert(GgmlAssert):
    """assert(condition), which a release build leaves out: what that does then is undefined."""

    def __init__(self, function: str, condition: str, explanation: str = "") -> None:
        undefined = "a release build does not check, and continues with whatever is before or behind its arrays"
        text = f"{explanation}; {undefined}" if explanation else undefined
        GgmlError.__init__(self, function, f"Assertion `{condition}' failed.", condition, text)
