"""`buffers`: how large the compute buffers are, and what lies in them at their peak."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, overload

from ggmltool.ask.moment import OfMoment, answer
from ggmltool.ask.question import Exclusion, Option, R
from ggmltool.inspect.opened import WhatIf
from ggmltool.show.text import plan_step
from ggmltool.state.errors import WrongUse

if TYPE_CHECKING:
    from typing import Unpack

    from ggmltool.ask.answer import Answer
    from ggmltool.ask.buffers.record import BuffersDocument, ChunksDocument, CopiesDocument
    from ggmltool.ask.moment import When
    from ggmltool.inspect.opened import Opened

MAX_TENSORS = 10
"""Tensors shown per buffer before the small ones are counted together."""
_AT_PEAK = "{} is for the tensors at the peak; leave it out with {}."


class Buffers(OfMoment[R], frozen=True, kw_only=True):
    """Show the size of every compute buffer and what is in it at its peak, largest first.

    The peak is the node at which the most bytes are alive. A buffer is larger than its peak if free memory between
    living tensors is fragmented.

    With -o map.svg (.png, .html) the chart is a drawing: every tensor where it lies and as long as it lives, in the
    color of its backend, with layers, the highest byte in use, and the peak. `help pictures` has more.

    With -o FILE.pickle what is allocated and freed, in program order, for PyTorch's memory viewer: drop the file on
    pytorch.org/memory_viz, which uploads nothing.

    \b
    Example:
      ggmltool buffers --graph decode model.yaml
      ggmltool buffers --chart model.yaml
      ggmltool buffers -o map.svg model.yaml
      ggmltool buffers -o memory.pickle model.yaml
      ggmltool buffers --after 3 model.yaml
      ggmltool buffers --no-pipeline model.yaml
    """

    peak: Annotated[bool, Option("Show the tensors that are alive at the peak, largest first (default).")] = False
    all: Annotated[bool, Option(f"Show all tensors at the peak, not only the {MAX_TENSORS} largest.")] = False
    chart: Annotated[
        bool,
        Option(
            "Draw what is where: program order to the right, offsets upwards. With -o map.svg, .png or .html a picture."
        ),
    ] = False
    ascii: Annotated[bool, Option("Draw the chart with ASCII characters only.")] = False
    chunks: Annotated[bool, Option("Show the chunks: sizes, limits, and the tensor that opened each.")] = False
    copies: Annotated[bool, Option("Show what pipeline copies cost: the same plan with and without them.")] = False

    only_python = ()
    formats = ("text", "json", "csv", "svg", "png", "html", "pickle")
    formats_help = "Text (default), JSON or CSV with exact bytes, a drawing, or a pickle for PyTorch's memory viewer."
    exclusions = (
        Exclusion("peak", ("chart", "chunks", "copies")),
        Exclusion("chart", ("chunks", "copies")),
        Exclusion("chunks", ("copies",)),
        Exclusion("all", ("chart", "chunks", "copies"), _AT_PEAK),
    )
    raises = "InspectError for views that exclude each other."

    if TYPE_CHECKING:

        @overload
        def __init__(self: Buffers[BuffersDocument], **when: Unpack[When]) -> None: ...

        @overload
        def __init__(self: Buffers[ChunksDocument], *, chunks: bool, **when: Unpack[When]) -> None: ...

        @overload
        def __init__(self: Buffers[CopiesDocument], *, copies: bool, **when: Unpack[When]) -> None: ...

        @overload
        def __init__(
            self: Buffers[BuffersDocument],
            *,
            peak: bool = ...,
            all: bool = ...,
            chart: bool = ...,
            ascii: bool = ...,
            **when: Unpack[When],
        ) -> None: ...

        def __init__(self, **_: Any) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ascii and not self.chart:
            raise WrongUse("--ascii is for --chart.")
        if self.copies and self.parallel is not None:
            raise WrongUse("--copies plans with and without --pipeline; leave it out.")

    @property
    def view(self) -> str:
        """The field that stands for a view of its own, "" for none."""
        return next((name for name in ("peak", "chart", "chunks", "copies") if self._given(name)), "")

    def ask(self, opened: Opened) -> Answer[Any]:
        """The buffers, or what is asked for of them."""
        from ggmltool.ask.backends.record import chunk_limits
        from ggmltool.ask.buffers import record
        from ggmltool.inspect.watched import Keep, Record, watch

        opened = self.of(opened)
        if self.copies:
            both = (replace(opened.what_if(WhatIf(parallel=on)), options=opened.options) for on in (True, False))
            parallel, single = (watch(one, self.moment) for one in both)
            return answer(parallel, record.CopiesDocument.of(parallel.plan, single.plan), plan_step(parallel.plan))
        at = watch(opened, self.moment, Record(Keep.MEMORY))
        plan, memory, when = at.plan, at.record.memory, plan_step(at.plan)
        if self.chunks:
            return answer(at, record.ChunksDocument.of(plan, memory, chunk_limits(opened.model)), when)
        shown = record.ChartShown if self.chart else record.BuffersDocument
        limit = None if self.all else MAX_TENSORS
        return answer(at, shown.of(plan, memory, opened.tensors(at.graph), limit, self.ascii), when)
