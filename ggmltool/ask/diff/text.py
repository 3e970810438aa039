"""Two plans side by side: where they part first, then nodes, splits, copies and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from shlex import join

from ggmltool.ask.answer import Answer
from ggmltool.ask.diff.plans import PARTS, PlanDiff
from ggmltool.ask.diff.record import Amount, NodePair, NodePlace, PlanDivergence
from ggmltool.ask.diff.rules import changes
from ggmltool.ask.diff.sections import (
    A,
    B,
    amounts,
    buffers_section,
    bytes_of,
    contexts_section,
    copies_section,
    inks_of,
    sizes_section,
    splits_section,
    wrapped_lines,
)
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.show.table import Cell, Head, Row, Style, heading, render_lines, render_table
from ggmltool.show.text import count, ggml_error, plan_step, printable, shortened

_FEW = 3
_HERE = "here"

_SUMMARY = (Head(""), Head("A", right=True), Head("B", right=True), Head("difference", right=True))
_NODES = (Head("count", right=True), Head("what", cut=True), Head("which", cut=True))


def diff(answer: Answer[PlanDiff], style: Style) -> str:
    """All that differs in the parts; one line where nothing does."""
    diff = answer.facts
    if not diff.differing:
        return _nothing(diff, style)
    out = [_head(diff, style)]
    for plan in (diff.a.plan, diff.b.plan):
        if plan.error is not None:
            out += ["\n", ggml_error(dict(plan.error)), "\n"]
    out += ["\n", render_table(_SUMMARY, list(_summary(diff)), style)]
    out.append(rules_section(diff, style))
    shown = [d for d in diff.divergences if ("splits" if d.kind == "split" else "nodes") in diff.parts]
    for i, divergence in enumerate(shown):
        out += ["\n", _divergence(divergence, "first divergence" if i == 0 else "then", style)]
        out += [render_lines([f"  more: {command}"], style) for command in _more(diff, divergence)]
    for part in diff.differing:
        if PARTS[part](diff):
            out += ["\n", _SECTIONS[part](diff, style)]
    return "".join(out)


def diff_line(answer: Answer[PlanDiff], style: Style) -> str:
    """--brief: which parts differ, in one line."""
    found, names = answer.facts.differing, " and ".join(answer.facts.titles)
    return render_lines(
        [printable(f"{names} differ in {', '.join(found)}" if found else f"{names} do not differ")], style
    )


def _nothing(diff: PlanDiff, style: Style) -> str:
    titles, parts, plan = diff.titles, diff.parts, diff.a.plan
    facts = ["no difference", plan_step(plan), count(len(plan.nodes), "node"), count(len(plan.splits), "split")]
    if len(parts) < len(PARTS):
        facts[0] += f" in {', '.join(part for part in PARTS if part in parts)}"
    if diff.has_log:
        facts.append("as far as a log tells")
    title = titles.a if titles.a == titles.b else f"{titles.a} and {titles.b}"
    return heading(title, facts, style)


def _head(diff: PlanDiff, style: Style) -> str:
    from rich.text import Text

    lines = []
    for label, title, side, ink in (("A", diff.titles.a, diff.a, A), ("B", diff.titles.b, diff.b, B)):
        refused = ", where ggml fails" if side.plan.error is not None else ""
        facts = f"{plan_step(side.plan)}{refused}"
        lines.append(Text.assemble((label, ink), "  ", (printable(title), "bold"), (" · ", "dim"), facts))
    if diff.has_log:
        lines.append(Text("except views, shapes and memory, which a log does not have", "dim"))
    return render_lines(lines, style)


def _summary(diff: PlanDiff) -> Iterator[Row]:
    a, b = diff.a.plan, diff.b.plan
    yield _counts("nodes", len(a.nodes), len(b.nodes))
    yield _counts("splits", len(a.splits), len(b.splits))
    copied = [sum(amounts, Amount.between()) for amounts in ((c.a for c in diff.copies), (c.b for c in diff.copies))]
    inputs = copied[0].tensors, copied[1].tensors
    yield _counts("inputs copied", *inputs)
    if diff.buffers and (len(a.copies), len(b.copies)) != inputs:
        yield _counts("copies in memory", len(a.copies), len(b.copies))
    yield ["bytes copied", *amounts(*copied)]
    if diff.buffers:
        yield ["compute buffers", *bytes_of(sum(dict(a.buffer_sizes).values()), sum(dict(b.buffer_sizes).values()))]
    if diff.contexts:
        yield ["contexts", *bytes_of(sum(pair.a for pair in diff.contexts), sum(pair.b for pair in diff.contexts))]


def _counts(what: str, a: int, b: int) -> Row:
    return [what, str(a), str(b), f"{b - a:+}" if a != b else ""]


def rules_section(diff: PlanDiff, style: Style) -> str:
    """Each rule with its day, what it was and is, and what it changed in this graph; "" for one release."""
    rules = diff.rules
    if not rules:
        return ""
    backwards = RELEASES[diff.a.plan.ggml].date > RELEASES[diff.b.plan.ggml].date
    before, now = ("B", "A") if backwards else ("A", "B")
    inks = {"A": A, "B": B}
    areas = {change.key: change.area for change in changes()}
    out = ["\n", heading("the rules behind it", [count(len([r for r in rules if r.rule]), "rule")], style)]
    for rule in rules:
        here = "; ".join(finding.what for finding in rule.changed[:_FEW] if finding.what)
        if (more := len(rule.changed) - _FEW) > 0:
            here += f"; {more} more"
        if rule.rule is None:
            title = "follows from the others" if len(rules) > 1 else "by no listed rule"
            out += ["\n", heading(title, [], style), wrapped_lines([("", "", here)], style)]
            continue
        out += ["\n", heading(rule.rule, [f"since {rule.since}", areas[rule.rule]], style)]
        lines = [
            (before.ljust(len(_HERE)), inks[before], str(rule.before)),
            (now.ljust(len(_HERE)), inks[now], str(rule.now)),
            (_HERE, "bold", here),
        ]
        out.append(wrapped_lines(lines, style))
    return "".join(out)


def _divergence(divergence: PlanDivergence, lead: str, style: Style) -> str:
    """The first node that differs in one way, and what it is in A and in B."""
    sides = (("A", A, divergence.a), ("B", B, divergence.b))
    if divergence.kind == "order":
        facts = [f"order from node {divergence.at} on"]
        lines = [(label, ink, "no more nodes" if p is None else f"{p.id} ({p.op})") for label, ink, p in sides]
    else:
        there = divergence.b or divergence.a
        what = "backend of" if divergence.kind == "backend" else "a split begins at"
        facts = [] if there is None else [f"{what} node {there.index}", f"{there.id} ({there.op})"]
        lines = [(label, ink, decision_text(p)) for label, ink, p in sides if p is not None]
    return heading(lead, facts, style) + wrapped_lines(lines, style)


def _more(diff: PlanDiff, divergence: PlanDivergence) -> Iterator[str]:
    """The command that tells more of the node in B, or else in A; of a split, where it begins."""
    for side, place in ((diff.b, divergence.b), (diff.a, divergence.a)):
        if place is None or not side.again or divergence.kind == "order":
            continue
        if divergence.kind == "split" and place.start is None:
            continue
        what = ["split", str(place.split)] if divergence.kind == "split" else ["node", place.id]
        yield printable(f"ggmltool explain {join(what)} {side.again}")
        return


def decision_text(place: NodePlace) -> str:
    """The backend of a node and why, and the split it is in or begins."""
    why = ": ".join(part for part in (place.cause, place.reason) if part)
    backend = f"{place.backend or 'no backend'}{f' ({why})' if why else ''}"
    if place.start is None:
        return f"{backend}; in split #{place.split}"
    return f"{backend}; begins split #{place.split}{f': {place.start}' if place.start else ''}"


def _nodes(diff: PlanDiff, style: Style) -> str:
    inks = inks_of(diff)
    rows: list[Row] = []
    for what, ink, places in (("only in A", A, diff.only_in_a), ("only in B", B, diff.only_in_b)):
        if places:
            rows.append([str(len(places)), Cell(what, ink), _which(places)])
    for (src, dst), pairs in _grouped(diff.moved, lambda p: p.backend or "none"):
        rows.append([str(len(pairs)), Cell(f"{src} → {dst}", inks.get(dst, "")), _which([pair.b for pair in pairs])])
    if diff.reordered:
        which = [f"{pair.b.id} #{pair.a.index} → #{pair.b.index}" for pair in diff.reordered]
        rows.append([str(len(diff.reordered)), "elsewhere", shortened(which, 3)])
    for (mine, theirs), pairs in _grouped(diff.other_cause, lambda p: p.cause or ""):
        rows.append([str(len(pairs)), f"cause {mine} → {theirs}", _which([pair.b for pair in pairs])])
    return heading("nodes", [], style) + render_table(_NODES, rows, style)


def _grouped(
    pairs: Iterable[NodePair], key: Callable[[NodePlace], str]
) -> list[tuple[tuple[str, str], list[NodePair]]]:
    """By what A and B have, most pairs first."""
    groups: dict[tuple[str, str], list[NodePair]] = {}
    for pair in pairs:
        groups.setdefault((key(pair.a), key(pair.b)), []).append(pair)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def _which(places: Sequence[NodePlace]) -> str:
    """A few by name, many by their ops."""
    if len(places) <= _FEW:
        return ", ".join(f"{place.id} ({place.op})" for place in places)
    ops = Counter(place.op for place in places)
    return f"first {places[0].id}; {shortened([f'{n} {op}' for op, n in ops.most_common()], 3)}"


_SECTIONS: dict[str, Callable[[PlanDiff, Style], str]] = {
    "nodes": _nodes,
    "splits": splits_section,
    "copies": copies_section,
    "buffers": buffers_section,
    "sizes": sizes_section,
    "contexts": contexts_section,
}
