"""An answer whose view and document are made by functions: of questions that are not yet in `ask/`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ggmltool.ask.answer import Answer

if TYPE_CHECKING:
    from ggmltool.ggml.plan import Plan
    from ggmltool.show.document import Document
    from ggmltool.show.table import Style

F = TypeVar("F", covariant=True)


class Result(Answer[F]):
    """An answer with its functions."""

    __slots__ = ("_about", "_document", "_rows", "_view")

    def __init__(
        self,
        about: str,
        facts: F,
        document: Callable[[], Document],
        view: Callable[[Style], str],
        rows: tuple[Any, ...] = (),
        plan: Plan | None = None,
    ) -> None:
        super().__init__(facts, plan=plan)
        for name, value in (("_about", about), ("_document", document), ("_rows", rows), ("_view", view)):
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return Result, (self._about, self.facts, self._document, self._view, self._rows, self.plan)

    @property
    def about(self) -> str:
        return self._about

    @property
    def rows(self) -> tuple[Any, ...]:
        return self._rows

    def document(self) -> Document:
        return self._document()

    def shown(self, format: str, style: Style) -> str:
        return self._view(style)

    if TYPE_CHECKING:
        _about: str
        _document: Callable[[], Document]
        _rows: tuple[Any, ...]
        _view: Callable[[Style], str]
