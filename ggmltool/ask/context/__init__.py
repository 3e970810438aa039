"""`context`: what lies where in the arenas of the contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from ggmltool.ask.moment import OfMoment, answer
from ggmltool.ask.question import Option

if TYPE_CHECKING:
    from ggmltool.ask.answer import Answer
    from ggmltool.ask.context.record import ContextDocument
    from ggmltool.inspect.opened import Opened


class ContextQuestion(OfMoment["ContextDocument"], frozen=True, kw_only=True):
    """Show the object map of each context: offset, size, type and tensor, and the layout of the cgraph.

    After the contexts of the file come `graph NAME`, with the nodes and the cgraph, and `scheduler`, with its copies
    and dependencies. Addresses are simulated; offsets and sizes are ggml's.

    \b
    Example:
      ggmltool context graph.yaml
      ggmltool context --only inputs --format ggml graph.yaml
    """

    only: Annotated[str | None, Option("Show only this context (default: all).", "CONTEXT", complete="contexts")] = None

    formats = ("table", "ggml", "json", "csv")
    formats_help = "A table (default), the text of ggml_print_objects, JSON or CSV."
    raises = "InspectError if there is no such context."

    def ask(self, opened: Opened) -> Answer[ContextDocument]:
        """The contexts as they are at the moment."""
        from ggmltool.ask.context.record import contexts_at
        from ggmltool.inspect.watched import watch

        watched = watch(self.of(opened), self.moment)
        return answer(watched, contexts_at(watched, self.only))
