"""What could be changed: options, changes that were planned, ops that a device lacks, and limits that are near."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ggmltool.ask.check.record import status
from ggmltool.ask.report.document import AdviceRow
from ggmltool.ask.report.tables import NONE
from ggmltool.ggml.sched.freed import REMEDY
from ggmltool.inspect.advice import (
    Advice,
    Numbers,
    fewer_splits,
    not_supported,
    numbers_of,
    other_options,
    put_together,
)
from ggmltool.inspect.use_after_free import use_after_free, uses_after_free
from ggmltool.show.text import count, size
from ggmltool.views.explain.reasons import refusal_text

if TYPE_CHECKING:
    from ggmltool.inspect.gauges import Gauge
    from ggmltool.inspect.opened import Moment, Opened
    from ggmltool.inspect.watched import Watched


def advice_rows(opened: Opened, moment: Moment, at: Watched, gauges: Iterable[Gauge]) -> list[AdviceRow]:
    """Uses of freed memory first, then what there is now, what was planned otherwise, and what stands in the way."""
    return [*_freed(at), *_planned(opened, moment, at), *_limits(gauges)]


def _freed(at: Watched) -> Iterator[AdviceRow]:
    for use in uses_after_free(at.run):
        yield AdviceRow("freed", f"Use after free: {use_after_free(use)} To avoid it, {REMEDY}", NONE, None, None, None)


def _planned(opened: Opened, moment: Moment, at: Watched) -> Iterator[AdviceRow]:
    plan = at.plan
    if not plan.ok or not plan.splits:
        return
    yield _row("now", "as it is", numbers_of(plan, opened.tensors(at.graph)))
    for advice in other_options(opened, moment, plan):
        yield _row("option", advice.text, advice.numbers)
    for advice in put_together(opened, at):
        yield _row("weights", advice.text, advice.numbers)
    found: dict[str, Advice] = {}
    for advice in fewer_splits(opened, at):
        found.setdefault(advice.text, advice)
    for advice in sorted(found.values(), key=lambda advice: (advice.numbers.splits, advice.numbers.copied)):
        yield _row("node", advice.text, advice.numbers, advice.split)
    for unable in not_supported(opened, plan):
        text = f"{refusal_text(unable.refused)}: {count(unable.nodes, 'node')} on {unable.there}"
        yield AdviceRow("op", text, NONE, None, None, None)


def _limits(gauges: Iterable[Gauge]) -> Iterator[AdviceRow]:
    for gauge in gauges:
        if status(gauge) in ("near", "over", "breached"):
            about = gauge.about
            used, limit = (size(n) if about.nbytes else str(n) for n in (gauge.used or 0, gauge.limit))
            where = f" ({gauge.where})" if gauge.where else ""
            yield AdviceRow(
                "limit",
                f"{about.group}: {about.text}, {used} of {limit}{where}; {about.beyond}",
                NONE,
                None,
                None,
                None,
            )


def _row(kind: str, text: str, numbers: Numbers, split: int | None = None) -> AdviceRow:
    return AdviceRow(kind, text, NONE if split is None else split, *numbers)
