"""The section of a difference between two releases of ggml: the rules that changed, and what each did here."""

from __future__ import annotations

from ggmltool.ggml.releases.table import RELEASES
from ggmltool.inspect.diff.changes import changes_between
from ggmltool.inspect.diff.plans import PlanDiff, plan_diff
from ggmltool.inspect.diff.rules import Finding, RuleChange, rule_changes
from ggmltool.inspect.diff.switches import Switches
from ggmltool.show.table import Style, heading
from ggmltool.show.text import count
from ggmltool.views.diff.cells import A, B, wrapped_lines

_FEW = 3
_HERE = "here"


def rules_of(diff: PlanDiff) -> tuple[RuleChange, ...]:
    """The rules behind the differences, whichever side is the newer release; nothing where both are one, or a log."""
    a, b = (RELEASES.get(side.plan.ggml) for side in (diff.a, diff.b))
    if a is None or b is None or a is b:
        return ()
    if a.date > b.date:
        a, b, diff = b, a, plan_diff(diff.b, diff.a)
    ahead = diff.a.turned(b) if diff.a.plan.error is not None else None
    switches = Switches(diff.a.plan, diff.b.plan, diff.b.turned(a), ahead)
    return rule_changes(diff, changes_between(a.date, b.date), switches)


def rules_section(diff: PlanDiff, style: Style) -> str:
    """Each rule with its day, what it was and is, and what it changed in this graph; "" for one release."""
    rules = rules_of(diff)
    if not rules:
        return ""
    backwards = RELEASES[diff.a.plan.ggml].date > RELEASES[diff.b.plan.ggml].date
    before, now = ("B", "A") if backwards else ("A", "B")
    inks = {"A": A, "B": B}
    out = ["\n", heading("the rules behind it", [count(len([r for r in rules if r.change]), "rule")], style)]
    for rule in rules:
        here = _here(rule.findings)
        if rule.change is None:
            title = "follows from the others" if len(rules) > 1 else "by no listed rule"
            out += ["\n", heading(title, [], style), wrapped_lines([("", "", here)], style)]
            continue
        out += ["\n", heading(rule.change.key, [f"since {rule.change.since}", rule.change.area], style)]
        lines = [
            (before.ljust(len(_HERE)), inks[before], rule.change.before),
            (now.ljust(len(_HERE)), inks[now], rule.change.now),
            (_HERE, "bold", here),
        ]
        out.append(wrapped_lines(lines, style))
    return "".join(out)


def _here(findings: tuple[Finding, ...]) -> str:
    """A few of the changes, and how many more there are."""
    shown = "; ".join(finding.what for finding in findings[:_FEW] if finding.what)
    more = len(findings) - _FEW
    return f"{shown}; {more} more" if more > 0 else shown
