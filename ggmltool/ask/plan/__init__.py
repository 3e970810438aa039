"""`plan`: devices, splits, copies and buffers on one screen, and the whole plan as JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ggmltool.ask.moment import OfMoment, answer

if TYPE_CHECKING:
    from ggmltool.ask.answer import Answer
    from ggmltool.ask.plan.record import PlanShown
    from ggmltool.inspect.opened import Opened


class PlanQuestion(OfMoment["PlanShown"], frozen=True, kw_only=True):
    """Show devices, splits, copies and buffers on one screen.

    With --json: the whole plan, with the backend, the split and the place in memory of every node.

    A GGML_SCHED_DEBUG=2 log can take the place of the scenario, as far as it tells; --graph is then a graph's number or
    a part of its title.

    \b
    Example:
      ggmltool plan --step reserve model.yaml
      ggmltool plan --after 2 model.yaml
      ggmltool plan --pipeline model.yaml
    """

    only_python = ()

    def ask(self, opened: Opened) -> Answer[PlanShown]:
        """The plan, with how ggml aborts when it computes it."""
        from ggmltool.ask.plan.record import PlanShown
        from ggmltool.inspect.watched import watch

        opened = self.of(opened)
        at = watch(opened, self.moment)
        at = replace(at, plan=at.run.as_computed(at.plan))
        more = f"ggmltool splits --format table {opened.again}"
        return answer(at, PlanShown.of(at.plan, opened.tensors(at.graph), more))
