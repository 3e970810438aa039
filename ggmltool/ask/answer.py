"""An answer: what was found, and what its heading says. It is a value: it compares, and is pickled."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ggmltool.ask.checked import checked_methods
from ggmltool.show.text import printable
from ggmltool.state.errors import WrongUse

if TYPE_CHECKING:
    from ggmltool.ggml.plan import Plan
    from ggmltool.show.document import Document
    from ggmltool.show.table import Style

R = TypeVar("R", covariant=True)

WIDTH = 100
"""Columns of the text that a notebook and `str` show."""


@checked_methods
@dataclass(frozen=True, slots=True, repr=False)
class Answer(Generic[R]):
    """An answer: `facts` is the record with all that was found, `rows` its main list (for
    `pandas.DataFrame(answer.rows)`), `plan` the plan it is about, None if it is about several or none.

    `str(answer)` is the text that the command prints, `as_dict()` its JSON; a notebook shows the same text. `title` and
    `heading` are what it is of. Where it is not `fine`, the command leaves with 1.
    """

    facts: R
    title: str = ""
    heading: str = ""
    plan: Plan | None = None
    fine: bool = True

    @property
    def ok(self) -> bool:
        """Whether ggml went on; where it is false, `plan.error` says why."""
        return self.plan is None or self.plan.ok

    @property
    def rows(self) -> tuple[Any, ...]:
        """The rows of the main table, those that the command prints with --csv."""
        facts: Any = self.facts
        if hasattr(facts, "rows"):
            rows: tuple[Any, ...] = facts.rows()
            return rows
        from ggmltool.show.csv import main_rows

        return main_rows(self.document())

    def document(self) -> Document:
        """What the command prints with --json."""
        facts: Any = self.facts
        document: Document = facts.document()
        return document

    def shown(self, format: str, style: Style) -> str:
        """The answer in one of the formats that its record has a view for; the view is imported when it is wanted."""
        record: Any = self.facts
        module, _, name = record.view.rpartition(":")
        beside = module or ("text" if format == "table" else format)
        view: Callable[[Answer[Any], Style], str] | None = getattr(
            import_module(f".{beside}", type(record).__module__.rpartition(".")[0]), name, None
        )
        if view is None:
            raise WrongUse(f"{name} cannot be shown as {format}; choose another format")
        return view(self, style)

    def as_dict(self) -> dict[str, Any]:
        """The facts as dicts, lists, texts and numbers: what the command prints with --json."""
        from ggmltool.show.document import json_text

        found: dict[str, Any] = json.loads(json_text(self.document()))
        return found

    def text(self, width: int = WIDTH) -> str:
        """What the command prints in a terminal of so many columns, without colors."""
        from ggmltool.show.table import Style

        return self.shown("text", Style(width))

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        refused = "" if self.ok else ", refused by ggml"
        return f"<{printable(self.about)}{refused}>"

    @property
    def about(self) -> str:
        """What it is, in a line: `hash, alloc main of transformer`."""
        facts: Any = self.facts  # of a log the document is long
        kind = facts.kind if hasattr(facts, "kind") else self.document().kind
        what = ", ".join(filter(None, (kind, self.heading)))
        return f"{what} of {self.title}" if self.title else what

    def _repr_html_(self) -> str:
        """What a notebook shows: the command's text with its colors, names escaped."""
        from ggmltool.show.html import view_html
        from ggmltool.show.table import Style

        return view_html(self.shown("text", Style(WIDTH, "256")))
