"""A scenario at a moment: the options that methods share, and how their answers are put together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack

from ggmltool.api.result import Result
from ggmltool.ask.moment import When
from ggmltool.inspect.opened import Moment, Opened, WhatIf

if TYPE_CHECKING:
    from ggmltool.inspect.record import Record
    from ggmltool.inspect.watched import Watched
    from ggmltool.scenario.tensor_info import Tensors
    from ggmltool.show.document import StepDocument
    from ggmltool.show.table import Style

F = TypeVar("F")


class Look(NamedTuple):
    """A scenario with the options that stand in for its own, and the moment."""

    opened: Opened
    moment: Moment

    def watch(self, record: Record | None = None) -> Watched:
        """The state at the moment."""
        from ggmltool.inspect.watched import watch

        return watch(self.opened, self.moment, record)

    def tensors(self, at: Watched) -> Tensors:
        """What views need to know of the tensors of the graph that the state is of."""
        return self.opened.tensors(at.graph)


def look(opened: Opened, **when: Unpack[When]) -> Look:
    """The scenario and the moment. Raises InspectError for an option that its ggml does not have."""
    what_if = WhatIf(when.get("parallel"), when.get("op_offload"))
    return Look(opened.what_if(what_if), Moment(when.get("graph"), when.get("step", "alloc"), when.get("after")))


def answer(
    at: Watched,
    what: str,
    facts: F,
    document: Callable[[], StepDocument],
    view: Callable[[Style], str],
    rows: tuple[Any, ...] = (),
) -> Result[F]:
    """The answer on the state at a moment; it does not keep the run."""
    of_the_step = document if at.number is None else partial(_of_the_step, document, at.number)
    return Result(f"{what}, {at.heading} of {at.title}", facts, of_the_step, view, rows, at.plan)


def _of_the_step(document: Callable[[], StepDocument], number: int) -> StepDocument:
    return document().after_step(number)
