"""`check`: every limit of ggml with its gauge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from ggmltool.ask.answer import Answer
from ggmltool.ask.moment import OfMoment
from ggmltool.ask.question import Exclusion, Option

if TYPE_CHECKING:
    from ggmltool.ask.check.record import LimitsShown
    from ggmltool.inspect.opened import Opened


class Check(OfMoment["LimitsShown"], frozen=True, kw_only=True):
    """Show every limit of ggml with its gauge: used, limit, where, and what ggml does beyond it.

    The exit status is 1 if a limit is breached, or if ggml would fail for another reason. An array that grows with a
    warning (a split's 30 inputs) or a name that is cut is not a breach.

    \b
    Example:
      ggmltool check model.yaml
      ggmltool check --all --step reserve model.yaml
      ggmltool check --after 3 model.yaml
    """

    all: Annotated[
        bool, Option("Check every graph, each on a fresh scheduler, and show the highest value of each gauge.")
    ] = False

    exclusions = (Exclusion("all", ("after", "graph"), "{} checks every graph, {} only one; choose one."),)
    raises = "InspectError for `all` beside a graph or a step."

    def ask(self, opened: Opened) -> Answer[LimitsShown]:
        """The gauges at the moment; of `all` graphs the rows are the closest of each."""
        from ggmltool.ask.check.record import LimitsShown, all_is_fine, check_all

        found, title, what = check_all(self.of(opened), self.moment, self.all)
        for one in found:
            opened.logged(one.plan.log)
        plan = next((one.plan for one in found if not one.plan.ok), found[0].plan)
        return Answer(LimitsShown.of(found, self.after), title, what, plan, all_is_fine(found))
