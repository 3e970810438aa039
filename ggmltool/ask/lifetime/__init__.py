"""`lifetime`: who has a tensor's memory before it and after it, and whether two tensors collide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec.structs import replace

from ggmltool.ask.moment import OfMoment, answer
from ggmltool.ask.question import Argument
from ggmltool.state.errors import WrongUse

if TYPE_CHECKING:
    from ggmltool.ask.answer import Answer
    from ggmltool.ask.lifetime.record import LifetimeTable
    from ggmltool.inspect.opened import Opened


class Lifetime(OfMoment["LifetimeTable"], frozen=True):
    """Show who has the bytes of the tensor NAME before it and who gets them next, in program order.

    A tensor is alive from the node that creates it to the last one that needs it; then its memory may go to others.
    With OTHER: do the two share bytes, are both alive at once, and who overwrites whom? NAME may be a view, an input, a
    weight, or a copy that the scheduler made. Nodes have their numbers in the graph, as in `explain` and
    GGML_SCHED_DEBUG's print; the scheduler's copies have none.

    \b
    Example:
      ggmltool lifetime kq graph.yaml
      ggmltool lifetime kq probs graph.yaml
      ggmltool lifetime --after 2 kq graph.yaml
    """

    name: Annotated[str, Argument("NAME")]
    other: Annotated[str | None, Argument("OTHER")] = None

    only_python = ()
    raises = "InspectError if the graph has no such tensor."

    def ask(self, opened: Opened) -> Answer[LifetimeTable]:
        """One tensor, or two and what they have to do with each other."""
        from ggmltool.ask.lifetime.record import Lifetimes
        from ggmltool.ask.lifetime.text import collision, shared, together

        found = Lifetimes(self.of(opened), self.moment)
        first = found.of(self.name)
        if self.other is None:
            table = found.table(first)
        else:
            second = found.of(self.other)
            if first.id == second.id:
                raise WrongUse(f"{first.id} is named twice; name two different tensors, or one.")
            table = found.table(first, second)
            both = together(first, second, len(table.nodes))
            told = tuple(collision(first, second, table.nodes))
            table = replace(table, shared=shared(first, second), both_alive=both, told=told)
        return answer(found.watched.at, table, found.watched.heading)
