"""What a message of ggml or llama.cpp means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ggmltool.inspect.messages.match import Match, explained
from ggmltool.show.document import Document, Row


class OtherMessage(Row):
    """Another message in the same text."""

    key: str
    text: str
    line: int
    title: str


class ExplainedMessage(Document, kw_only=True):
    """`explain error --json`: what a message of ggml or llama.cpp means, what brings it about, what to do.

    `score` says how near the text is (1: every word of the message is there), `values` what printf filled in, `ask`
    which command shows more, `era` when ggml printed it, if it no longer does.
    """

    view = "message"
    main_table = ""
    beside = ("match", "also")
    """What a message means, with all that was found in the text."""
    kind: Literal["explain_error"] = "explain_error"
    found: Literal[True] = True
    key: str
    text: str
    score: float
    title: str
    line: int
    values: dict[str, str]
    texts: list[str]
    functions: list[str]
    means: str
    shapes: str
    remedy: str
    ask: str
    era: str
    others: list[OtherMessage]
    match: Match
    also: tuple[Match, ...]

    def rows(self) -> tuple[Match, ...]:
        """The messages in the text."""
        return self.match, *self.also

    @classmethod
    def of(cls, found: Match, others: Sequence[Match] = ()) -> ExplainedMessage:
        """A message, and the others in the text."""
        said = explained(found)
        return cls(
            key=found.key, text=found.text, score=found.score, title=said.title, line=found.line, values=said.values,
            texts=list(said.texts), functions=list(said.functions), **said.told._asdict(), era=said.era,
            others=[OtherMessage(m.key, m.text, m.line, explained(m).title) for m in others], match=found,
            also=tuple(others),
        )  # fmt: skip


class NearMessage(Row):
    """A message that is near to a text."""

    key: str
    text: str
    score: float


class NoMessage(Document, kw_only=True):
    """`explain error --json` of a text that is no known message: those that are nearest."""

    view = "no_message"
    kind: Literal["explain_error"] = "explain_error"
    found: Literal[False] = False
    nearest: list[NearMessage]

    @classmethod
    def of(cls, nearest: Sequence[Match]) -> NoMessage:
        """The nearest messages."""
        return cls(nearest=[NearMessage(m.key, m.text, m.score) for m in nearest])
