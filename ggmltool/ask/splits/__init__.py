"""`splits`: which backend every node gets, and what is copied for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, overload

from ggmltool.ask.answer import Answer
from ggmltool.ask.moment import OfMoment, answer
from ggmltool.ask.question import DEPTH, BadValue, Exclusion, Option, R
from ggmltool.scenario.errors import nearest
from ggmltool.show.text import plan_step

if TYPE_CHECKING:
    from typing import Unpack

    from ggmltool.ask.moment import When
    from ggmltool.ask.splits.copied import Copied
    from ggmltool.ask.splits.passes import PassState
    from ggmltool.ask.splits.record import SplitsTable
    from ggmltool.ask.splits.seconds import Seconds
    from ggmltool.ask.splits.tally import NodeCounts
    from ggmltool.ggml.plan import Plan
    from ggmltool.inspect.opened import Opened
    from ggmltool.scenario.tensor_info import Tensors

KEYS = ("op", "backend", "cause", "type", "split")
"""What nodes can be counted by."""


class Splits(OfMoment[R], frozen=True, kw_only=True):
    """Show which backend every node gets and why, and what is copied.

    A GGML_SCHED_DEBUG=2 log can take the place of the scenario, as far as it tells; --graph is then a graph's number or
    a part of its title.

    \b
    The causes, by the scheduler's passes:
      1.dst  it is pre-allocated there      1.wgt<i>  its source i is a weight there
      1.inp  it is a graph input            1.off     offloaded, with a weight on the host
      2.sup  expanded from a neighbor       3.best    most of its sources are there
      3.upg  a faster one with that memory  4.vsrc    where the tensor it views is
      4.cur  where the node that needs it is  usr     the scenario says so

    Copies have 4.cpy; 6.cpy where pass 6 made them, the pipeline copies of inputs since ggml 0.26.

    \b
    Those of ggml 2024-01, whose scheduler has four passes:
      1.dst, 1.wgt<i>  as above                1.vsrc  the tensor it views is there
      2.1 2.2  a GPU neighbor's, down, up      2.3 2.4  any neighbor's, down, up
      3.vsrc   where the tensor it views is    3.cur   where the node that needs it is

    \b
    Example:
      ggmltool splits --format table model.yaml
      ggmltool splits --by op,backend model.yaml
      ggmltool splits --after 3 model.yaml
      ggmltool splits --pass 2 --format text --ggml 2024-01 model.yaml
      ggmltool splits --bytes --no-op-offload model.yaml
      ggmltool splits --seconds -d 4096 placed.json.gz
      ggmltool splits --by op,backend --graph "n_tokens = 512" llama.log
    """

    by: Annotated[
        Sequence[str] | str,
        Option(
            f"Count the nodes instead, by one or more of {', '.join(KEYS)}: `--by op,backend` is a matrix.",
            "KEYS",
            complete="keys",
        ),
    ] = ()
    bytes: Annotated[bool, Option("Show what each split copies instead, input by input, with sums.")] = False
    seconds: Annotated[
        bool,
        Option(
            "Show how long each split takes instead, and what it copies: an estimate. The scenario names the hardware."
        ),
    ] = False
    n_depth: Annotated[int, DEPTH] = 0
    after_pass: Annotated[
        int | None,
        Option(
            "Show the assignments after this pass of the scheduler instead, and what it changed.",
            names=("--pass",),
            least=1,
            most=6,
        ),
    ] = None

    only_python = ()
    formats = ("text", "table", "json", "csv")
    formats_help = "ggml's own text (default), a table with a line per split, JSON or CSV."
    exclusions = (
        Exclusion("by", ("bytes", "seconds", "after_pass")),
        Exclusion("bytes", ("seconds", "after_pass")),
        Exclusion("seconds", ("after_pass",)),
    )
    raises = "InspectError for a key or a pass that is not there, and where nobody named the hardware."

    if TYPE_CHECKING:

        @overload
        def __init__(self: Splits[SplitsTable], **when: Unpack[When]) -> None: ...

        @overload
        def __init__(self: Splits[Seconds], *, seconds: bool, n_depth: int = ..., **when: Unpack[When]) -> None: ...

        @overload
        def __init__(
            self: Splits[NodeCounts | Copied | PassState],
            *,
            by: Sequence[str] | str = ...,
            bytes: bool = ...,
            after_pass: int | None = ...,
            **when: Unpack[When],
        ) -> None: ...

        def __init__(self, **_: Any) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in self.keys:
            if key not in KEYS:
                near = nearest(key, KEYS)
                hint = f"Did you mean {near!r}?" if near is not None else f"The keys are {', '.join(KEYS)}."
                raise BadValue("by", f"{key!r} is not a key to count by. {hint}")
        if len(set(self.keys)) < len(self.keys):
            raise BadValue("by", "a key is named twice.")

    @property
    def keys(self) -> tuple[str, ...]:
        """What nodes are counted by."""
        parts = self.by.split(",") if isinstance(self.by, str) and self.by else self.by
        return tuple(part.strip() for part in parts)

    @property
    def view(self) -> str:
        """The field that stands for a view of its own, "" for none."""
        return next((name for name in ("by", "bytes", "seconds", "after_pass") if self._given(name)), "")

    def ask(self, opened: Opened) -> Answer[Any]:
        """The splits, or what is asked for of them."""
        from ggmltool.inspect.watched import Keep, Record, watch

        opened = self.of(opened)
        record = Record(Keep.PASSES) if self.after_pass is not None else None
        at = watch(opened, self.moment, record)
        plan, when = at.plan, plan_step(at.plan)
        if self.after_pass is not None:
            from ggmltool.ask.splits.passes import PassState

            at.check_pass(self.after_pass)
            records = at.record.passes.records
            return answer(at, PassState.of(plan, records, self.after_pass, at.sched.passes), when)
        if self.seconds:
            from ggmltool.ask.splits.seconds import Seconds, timed

            return answer(at, Seconds.of(timed(opened, plan, self.moment, self.n_depth)), when)
        tensors = opened.tensors(at.graph)
        if not self.bytes:
            return answer(at, self.of_plan(plan, tensors), when)
        from ggmltool.ask.splits.copied import Copied, expert_copies
        from ggmltool.inspect.copied import other_offload

        other = other_offload(opened, plan, self.moment)
        return answer(
            at, Copied.of(plan, tensors, other, expert_copies(at.run.model, plan, tensors, at.run.bufts)), when
        )

    def of_plan(self, plan: Plan, tensors: Tensors) -> SplitsTable | NodeCounts | Copied:
        """What a plan alone tells, which may be that of a log."""
        if self.keys:
            from ggmltool.ask.splits.tally import NodeCounts

            return NodeCounts.of(plan, tensors, self.keys)
        if self.bytes:
            from ggmltool.ask.splits.copied import Copied

            return Copied.of(plan, tensors)
        from ggmltool.ask.splits.record import SplitsTable

        return SplitsTable.of(plan, tensors)
