"""Why something is as it is, and what differs between two plans."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ggmltool.api.look import Look, answer
from ggmltool.api.result import Result
from ggmltool.inspect.errors import InspectError

if TYPE_CHECKING:
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
