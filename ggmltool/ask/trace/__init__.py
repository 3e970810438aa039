"""`trace`: the calls that ggml makes, in order; and what happens when, for Perfetto."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from ggmltool.ask.answer import Answer
from ggmltool.ask.question import Option, Question

if TYPE_CHECKING:
    from ggmltool.ask.trace.record import Trace
    from ggmltool.inspect.opened import Opened


class TraceQuestion(Question["Trace"], frozen=True, kw_only=True):
    """Show the calls of every step as a tree under ggml's function names: copies, waiting and computing in order.

    With --perfetto (or -o FILE.perfetto.json) what happens when, for ui.perfetto.dev, where nothing is uploaded: for
    each device a lane of its computing and one of the copies to it, with arrows from the split that makes a tensor to
    the one that reads it, the host's calls and waits, and the bytes alive in each buffer. Durations are estimates where
    the scenario names the hardware, those of this machine with --measured, else the program order with a unit for each
    node and copy. If no step computes, each graph is shown as if it were computed after `alloc`.

    \b
    Example:
      ggmltool trace graph.yaml
      ggmltool trace --no-compute --decisions model.yaml
      ggmltool trace -o model.perfetto.json placed.json.gz
      ggmltool trace --measured -o graph.perfetto.json graph.yaml
    """

    compute: Annotated[bool, Option("Run every step (default), or only reserve, alloc and reset.")] = True
    decisions: Annotated[bool, Option("Also show every decision of the scheduler's passes and of the allocator.")] = (
        False
    )
    zeros: Annotated[bool, Option("Compute even if weights have no values: they are zero.")] = False

    formats = ("text", "json", "csv", "perfetto")
    formats_help = "Text (default), JSON or CSV with exact bytes, or lanes of time for ui.perfetto.dev."
    bounds = ("memory", "operations")
    own_after = "decisions"
    raises = "InspectError for weights without values, unless `zeros`."

    def ask(self, opened: Opened) -> Answer[Trace]:
        """What every step calls, without `compute` those that plan."""
        from ggmltool.ask.trace.record import trace_steps
        from ggmltool.inspect.ready import check_run

        if self.compute:
            check_run(opened, self.zeros, "trace(compute=False)")
        found = trace_steps(opened, self.compute, self.decisions)
        failed = bool(found.steps and found.steps[-1].error) or found.uses_freed
        return Answer(found, opened.title, fine=not failed)
