"""Two reports side by side, and what differs between their plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ggmltool.ask.diff.plans import PARTS, PlanDiff, plan_diff
from ggmltool.ask.diff.rules import rules_of
from ggmltool.ask.diff.side import scenario_side
from ggmltool.ask.diff.text import decision_text
from ggmltool.ask.report import document as doc
from ggmltool.ask.report.build import report
from ggmltool.ask.report.tables import NONE, numbered

if TYPE_CHECKING:
    from ggmltool.inspect.opened import Moment, Opened

_Numbers = Mapping[str, int]


def compared(a: tuple[Opened, Moment], b: tuple[Opened, Moment]) -> doc.ReportComparisonDocument:
    """The reports of two moments and their differences. Raises InspectError for a step that is not there."""
    one, other = report(*a), report(*b)
    diff = plan_diff(scenario_side(*a), scenario_side(*b))
    in_a, in_b = (numbered(row.id for row in of.tensors[: of.nodes]) for of in (one, other))
    parts = [part for part in PARTS if diff.differs(part)]
    return doc.ReportComparisonDocument(
        titles=_titles(a, b),
        a=one,
        b=other,
        same=not parts,
        parts=parts,
        divergences=[
            doc.ReportDivergenceRow(
                d.kind,
                NONE if d.a is None else in_a[d.a.id],
                NONE if d.b is None else in_b[d.b.id],
                *("not in this graph" if at is None else decision_text(at) for at in (d.a, d.b)),
            )
            for d in diff.divergences
        ],
        totals=list(_totals(one, other)),
        groups=_groups(diff, in_a, in_b),
        rules=[
            doc.ReportRuleRow(
                r.rule or "", r.since or "", r.before or "", r.now or "", [f.what for f in r.changed if f.what]
            )
            for r in rules_of(diff)
        ],
        pairs=[(in_a[pair.a.id], in_b[pair.b.id]) for pair in diff.pairs],
    )


def _titles(*sides: tuple[Opened, Moment]) -> tuple[str, str]:
    """What the two are called, told apart by their graphs where the rest is the same."""
    a, b = (opened.title for opened, _ in sides)
    if a != b:
        return a, b
    one, other = (f"{opened.title}: {opened.scenario.graph_name(moment.graph)}" for opened, moment in sides)
    return (one, other) if one != other else (f"A: {a}", f"B: {b}")


def _totals(a: doc.ReportDocument, b: doc.ReportDocument) -> Iterable[doc.TotalRow]:
    yield doc.TotalRow("nodes", a.nodes, b.nodes, False)
    yield doc.TotalRow("splits", len(a.splits), len(b.splits), False)
    inputs = [sum(len(split.inputs) for split in of.splits) for of in (a, b)]
    copied = [sum(split.nbytes for split in of.splits) for of in (a, b)]
    yield doc.TotalRow("inputs copied", inputs[0], inputs[1], False)
    yield doc.TotalRow("bytes copied", copied[0], copied[1], True)
    for name in dict.fromkeys(row.name for of in (a, b) for row in of.backends):
        of_a, of_b = ({row.name: row for row in of.backends}.get(name) for of in (a, b))
        yield doc.TotalRow(
            f"compute buffer of {name}", 0 if of_a is None else of_a.compute, 0 if of_b is None else of_b.compute, True
        )


def _groups(diff: PlanDiff, in_a: _Numbers, in_b: _Numbers) -> list[doc.GroupRow]:
    groups: dict[tuple[str, str], list[tuple[int, int]]] = {}

    def add(kind: str, title: str, a: str | None, b: str | None) -> None:
        pair = (NONE if a is None else in_a.get(a, NONE), NONE if b is None else in_b.get(b, NONE))
        groups.setdefault((kind, title), []).append(pair)

    for place in diff.only_in_a:
        add("gone", "only in A", place.id, None)
    for place in diff.only_in_b:
        add("added", "only in B", None, place.id)
    for pair in diff.moved:
        add("moved", f"{pair.a.backend or 'none'} → {pair.b.backend or 'none'}", pair.a.id, pair.b.id)
    for pair in diff.reordered:
        add("reordered", "elsewhere in the order", pair.a.id, pair.b.id)
    for pair in diff.other_cause:
        add("recaused", f"cause {pair.a.cause} → {pair.b.cause}", pair.a.id, pair.b.id)
    for shaped in diff.sizes:
        if shaped.id in in_a and shaped.id_b in in_b:
            add("shape", "another type, other extents or another size", shaped.id, shaped.id_b)
    return [doc.GroupRow(kind, title, pairs) for (kind, title), pairs in groups.items()]
