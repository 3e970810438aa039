"""`tensor`: everything about one tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from ggmltool.ask.moment import OfMoment, answer
from ggmltool.ask.question import Argument, Option, R

if TYPE_CHECKING:
    from ggmltool.ask.answer import Answer
    from ggmltool.ask.tensor.record import TensorDocument
    from ggmltool.inspect.opened import Opened


class Drawn(OfMoment[R], frozen=True, kw_only=True):
    """How a tensor is shown."""

    strides: Annotated[bool, Option("Draw how the elements lie in memory.")] = False


class TensorQuestion(Drawn["TensorDocument"], frozen=True):
    """Show everything about the tensor NAME: shape, strides, sources, backend, memory, uses, copies, hash node.

    NAME is an id of the scenario, or the name of a copy that the scheduler made. Addresses are simulated.

    \b
    Example:
      ggmltool tensor kq graph.yaml
      ggmltool tensor --format gdb kq graph.yaml
      ggmltool tensor --strides kq graph.yaml
    """

    name: Annotated[str, Argument("NAME")]

    formats = ("table", "gdb", "json", "csv")
    formats_help = "A table (default), the struct as gdb prints it, JSON or CSV."
    raises = "InspectError if the graph has no tensor of that id or name."

    def ask(self, opened: Opened) -> Answer[TensorDocument]:
        """The tensor as it is at the moment."""
        from ggmltool.ask.tensor.record import tensor_at
        from ggmltool.inspect.allocator import watch_allocator

        watched = watch_allocator(self.of(opened), self.moment)
        return answer(watched.at, tensor_at(watched, self.name, self.strides))
