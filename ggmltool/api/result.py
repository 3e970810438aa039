"""What a method of the API answers with: the facts as a value, and the ways in which its command shows them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ggmltool.api.checked import checked_methods
from ggmltool.ggml.printable import printable

if TYPE_CHECKING:
    from ggmltool.ggml.plan import Plan
    from ggmltool.show.document import Document
    from ggmltool.show.table import Style

F = TypeVar("F", covariant=True)

_WIDTH = 100
"""Columns of the text that a notebook and `str` show."""


@checked_methods
@dataclass(frozen=True, slots=True, repr=False)
class Result(Generic[F]):
    """An answer: `facts` is the record with all that was found, `rows` its lists as records of one kind each (for
    `pandas.DataFrame(result.rows)`), `plan` the plan it is about, None if it is about several or none.

    `str(result)` is the text that the command prints, `as_dict()` its JSON; a notebook shows the same text.
    """

    about: str
    facts: F
    document: Callable[[], Document] = field(compare=False)
    view: Callable[[Style], str] = field(compare=False)
    rows: tuple[Any, ...] = ()
    plan: Plan | None = None

    @property
    def ok(self) -> bool:
        """Whether ggml went on; where it is false, `plan.error` says why."""
        return self.plan is None or self.plan.ok

    def as_dict(self) -> dict[str, Any]:
        """The facts as dicts, lists, texts and numbers: what the command prints with --json."""
        from ggmltool.show.document import json_text

        found: dict[str, Any] = json.loads(json_text(self.document()))
        return found

    def text(self, width: int = _WIDTH) -> str:
        """What the command prints in a terminal of so many columns, without colors."""
        from ggmltool.show.table import Style

        return self.view(Style(width))

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        refused = "" if self.ok else ", refused by ggml"
        return f"<{printable(self.about)}{refused}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the command's text with its colors, names escaped."""
        from ggmltool.show.html import view_html
        from ggmltool.show.table import Style

        return view_html(self.view(Style(_WIDTH, "256")))
