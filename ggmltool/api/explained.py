"""Why something is as it is, and what differs between two plans."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ggmltool.api.look import Look, answer
from ggmltool.api.result import Result
from ggmltool.inspect.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.inspect.diff.plans import PlanDiff
    from ggmltool.inspect.diff.side import Side
    from ggmltool.inspect.messages.match import Match
    from ggmltool.inspect.node import NodeFacts
    from ggmltool.inspect.realloc import ReallocFacts
    from ggmltool.inspect.split import SplitFacts


def node(look: Look, name: str) -> Result[NodeFacts]:
    from ggmltool.inspect.node import explain_node
    from ggmltool.views.explain.documents import ExplainNodeDocument
    from ggmltool.views.explain.node import explain_node_view

    at, facts = explain_node(look.opened, look.moment, name)
    return answer(
        at,
        f"explain {name}",
        facts,
        partial(ExplainNodeDocument.of, at.plan, facts),
        partial(explain_node_view, facts, at.plan, at.title, at.heading),
        facts.asked,
    )


def split(look: Look, number: int) -> Result[SplitFacts]:
    from ggmltool.inspect.split import explain_split
    from ggmltool.views.explain.documents import ExplainSplitDocument
    from ggmltool.views.explain.split import explain_split_view

    if number < 0:
        raise InspectError(f"a split has a number from 0 on, not {number}")
    at, facts = explain_split(look.opened, look.moment, number)
    return answer(
        at,
        f"explain split {number}",
        facts,
        partial(ExplainSplitDocument.of, at.plan, facts),
        partial(explain_split_view, facts, at.plan, at.title, at.heading),
        facts.inputs,
    )


def realloc(first: Look, second: Look) -> Result[ReallocFacts]:
    from ggmltool.inspect.realloc import Side, explain_realloc
    from ggmltool.views.explain.documents import ExplainReallocDocument
    from ggmltool.views.explain.realloc import explain_realloc_view

    sides = []
    for at in (first, second):
        name = at.opened.scenario.graph_name(at.moment.graph)
        called = name if second.opened is first.opened else f"{at.opened.title}:{name}"
        sides.append(Side(at.opened, name, called))
    facts = explain_realloc(*sides)
    title = first.opened.title if second.opened is first.opened else "two scenarios"
    return Result(
        f"explain realloc {sides[0].called} {sides[1].called}",
        facts,
        partial(ExplainReallocDocument.of, facts),
        partial(explain_realloc_view, facts, title),
        facts.outgrown,
    )


def error(text: str) -> Result[Match]:
    from ggmltool.inspect.messages.match import find, find_all, nearest
    from ggmltool.views.explain.documents import ExplainErrorDocument
    from ggmltool.views.explain.error import explain_error_view, nearest_text

    found = find(text)
    if found is None:
        raise InspectError(nearest_text(nearest(text)))
    others = [m for m in find_all(text) if m.key != found.key]
    return Result(
        f"explain error: {found.key}",
        found,
        partial(ExplainErrorDocument.of, found, others),
        partial(explain_error_view, found, others),
        (found, *others),
    )


def diff(first: Look, second: Look, parts: tuple[str, ...] | None) -> Result[PlanDiff]:
    from ggmltool.inspect.diff.sides import scenario_side

    titles = [at.opened.title for at in (first, second)]
    if titles[0] == titles[1]:
        titles = [f"{at.opened.title}:{at.moment.graph or ''}".rstrip(":") for at in (first, second)]
    return _diff(scenario_side(*first), scenario_side(*second), (titles[0], titles[1]), parts)


def diff_with_log(first: Look, log: Result[Any], parts: tuple[str, ...] | None) -> Result[PlanDiff]:
    from ggmltool.api.logs import log_side
    from ggmltool.inspect.diff.sides import scenario_side

    return _diff(scenario_side(*first), log_side(log), (first.opened.title, log.about), parts)


def _diff(a: Side, b: Side, titles: tuple[str, str], parts: tuple[str, ...] | None) -> Result[PlanDiff]:
    from ggmltool.inspect.diff.plans import PARTS, plan_diff
    from ggmltool.inspect.diff.side import Titles
    from ggmltool.show.table import Style
    from ggmltool.views.diff.diff import diff_line, diff_view
    from ggmltool.views.diff.documents import DiffDocument

    compared = parts if parts is not None else PARTS_OF_LOGS if a.is_log or b.is_log else tuple(PARTS)
    wrong = next((part for part in compared if part not in PARTS), None)
    if wrong is not None:
        raise InspectError(f"{wrong!r} is nothing to compare; the parts are {', '.join(PARTS)}")
    found, named = plan_diff(a, b), Titles(*titles)
    return Result(
        diff_line(found, named, compared, Style()).rstrip(),
        found,
        partial(DiffDocument.of, found, named, compared),
        partial(diff_view, found, named, compared),
        found.pairs,
    )


PARTS_OF_LOGS = ("nodes", "splits", "copies")
"""What a log can tell."""
