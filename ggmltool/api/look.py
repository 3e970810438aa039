"""A scenario at a moment: the options that methods share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Unpack

from ggmltool.ask.moment import When
from ggmltool.inspect.opened import Moment, Opened, WhatIf

if TYPE_CHECKING:
    from ggmltool.inspect.record import Record
    from ggmltool.inspect.watched import Watched
    from ggmltool.scenario.tensor_info import Tensors


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
