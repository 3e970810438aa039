"""`diff`: two plans side by side, and what differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from ggmltool.ask.answer import Answer
from ggmltool.ask.moment import OfMoment
from ggmltool.ask.question import BadValue, Option
from ggmltool.scenario.errors import nearest

if TYPE_CHECKING:
    from ggmltool.ask.diff.plans import PlanDiff
    from ggmltool.ask.diff.side import DiffSide, Titles

PARTS = ("nodes", "splits", "copies", "buffers", "sizes", "contexts")
"""What is compared."""
PARTS_OF_LOGS = PARTS[:3]
"""What a log can tell."""


class Diff(OfMoment["PlanDiff"], frozen=True, kw_only=True):
    """Show what differs between two plans, and the first node where they diverge.

    Nodes are matched by id, else by name, else by what they are computed from. Only ggml's decisions are compared, not
    values and parameters. Exit status as diff's: 0 no difference, 1 a difference (or ggml fails on one of the plans), 2
    wrong use or a bad file.

    One scenario and an option of the scheduler: its plans without and with that option are compared. Graphs of a
    GGML_SCHED_DEBUG=2 log are compared with another (`LOG:1 LOG:3`) or with a scenario, as far as a log tells.

    One scenario and two versions of ggml: it is planned by each, and each rule of ggml that changed between them is
    named with what it did to this graph.

    \b
    Example:
      ggmltool diff before.yaml after.yaml
      ggmltool diff --step reserve model.yaml:prompt model.yaml:token
      ggmltool diff --pipeline model.yaml
      ggmltool diff --ggml 0.20.2,0.26 model.yaml
      ggmltool diff model.json.gz llama.log:2
    """

    only: Annotated[
        Sequence[str] | str | None,
        Option(
            f"Compare only some of {', '.join(PARTS)}; they alone decide the exit status.", "PARTS", complete="parts"
        ),
    ] = None
    brief: Annotated[bool, Option("Only say whether the plans differ, and in which parts.")] = False

    only_python = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for part in self.parts:
            if part not in PARTS:
                near = nearest(part, PARTS)
                hint = f"Did you mean {near!r}?" if near is not None else f"The parts are {', '.join(PARTS)}."
                raise BadValue("only", f"{part!r} is not a part to compare. {hint}")

    @property
    def parts(self) -> tuple[str, ...]:
        """What is compared."""
        parts = self.only.split(",") if isinstance(self.only, str) else PARTS if self.only is None else self.only
        return tuple(part.strip() for part in parts)

    def between(self, a: DiffSide, b: DiffSide, titles: Titles) -> Answer[PlanDiff]:
        """What differs between two plans, in the parts that both have."""
        from ggmltool.ask.diff.plans import plan_diff
        from ggmltool.ask.diff.rules import rules_of

        parts = tuple(p for p in self.parts if p in PARTS_OF_LOGS) if a.is_log or b.is_log else self.parts
        found = plan_diff(a, b)
        rules = () if self.brief else rules_of(found)
        found = replace(found, rules=rules, titles=titles, parts=parts, brief=self.brief)
        return Answer(found, " and ".join(titles), fine=not found.differing)
