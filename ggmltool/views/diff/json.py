"""What differs between two plans as JSON, with exact bytes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from ggmltool.ggml.events import Assigned, SplitStarted
from ggmltool.inspect.diff.plans import PARTS, NodePair, Place, PlanDiff
from ggmltool.inspect.diff.rules import RuleChange
from ggmltool.inspect.diff.side import Side, Titles
from ggmltool.inspect.diff.splits import Amount, SplitSide
from ggmltool.views.diff.rules import rules_of
from ggmltool.views.explain.words import words


def diff_json(diff: PlanDiff, titles: Titles, parts: Collection[str]) -> dict[str, Any]:
    """Everything that differs in the `parts`, and what each plan is; in `splits` also those that are alike."""
    compared = [part for part in PARTS if part in parts]
    found = [part for part in compared if diff.differs(part)]
    out: dict[str, Any] = {
        "ggmltool": 1,
        "kind": "diff",
        "same": not found,
        "compared": compared,
        "differing": found,
        "a": _side(diff.a, titles.a),
        "b": _side(diff.b, titles.b),
        "divergences": [{"kind": d.kind, "a": _value(d.a), "b": _value(d.b)} for d in diff.divergences],
    }
    if not diff.has_log and diff.a.plan.ggml != diff.b.plan.ggml:
        out["rules"] = [_rule(rule) for rule in rules_of(diff)]
    return out | {key: value for part in compared for key, value in _part(diff, part).items()}


def _rule(rule: RuleChange) -> dict[str, Any]:
    """A changed rule; `rule` null for what follows from the others."""
    change = rule.change
    about = {"rule": None} if change is None else {
        "rule": change.key, "since": change.since, "commit": change.commit, "before": change.before, "now": change.now
    }  # fmt: skip
    return about | {"changed": [{"part": finding.part, "what": finding.what} for finding in rule.findings]}


def _side(side: Side, title: str) -> dict[str, Any]:
    plan = side.plan
    out: dict[str, Any] = {
        "title": title,
        "ggml": plan.ggml,
        "graph": plan.graph,
        "step": plan.step,
        "ok": plan.ok,
        "nodes": len(plan.nodes),
        "splits": len(plan.splits),
        "buffer_sizes": dict(plan.buffer_sizes),
    }
    return out | ({} if plan.error is None else {"error": dict(plan.error)})


def _part(diff: PlanDiff, part: str) -> dict[str, Any]:
    match part:
        case "nodes":
            return {
                "only_in_a": [_value(place) for place in diff.gone],
                "only_in_b": [_value(place) for place in diff.added],
                "moved": _pairs(diff.moved),
                "reordered": _pairs(diff.reordered),
                "other_cause": _pairs(diff.recaused),
            }
        case "splits":
            return {"splits": [_value(pair) for pair in diff.splits]}
        case "copies":
            return {
                "copies": [_value(c) for c in diff.copies],
                "copied": [_value(pair) for pair in diff.inputs],
            }
        case "buffers":
            return {
                "buffers": [_value(pair) for pair in diff.buffers],
                "reuse": [_value(pair) for pair in diff.reuse],
                "elsewhere": diff.elsewhere,
            }
        case "sizes":
            return {"sizes": [_value(pair) for pair in diff.shapes]}
        case _:
            return {
                "contexts": [_value(pair) for pair in diff.held],
                "context_tensors": [_value(move) for move in diff.held_moves],
            }


def _pairs(pairs: Iterable[NodePair]) -> list[dict[str, Any]]:
    return [{"a": _value(pair.a), "b": _value(pair.b)} for pair in pairs]


def _value(value: Any) -> Any:
    """A record as a dict, with the records in it; `from` and `to` for the backends of a copy."""
    if isinstance(value, Amount):
        exact = {"tensors": value.n, "nbytes": value.low}
        return exact if value.low == value.high else exact | {"nbytes_max": value.high}
    if isinstance(value, Place):
        return _place(value)
    if isinstance(value, SplitSide):
        known = value._asdict() | {"copied": _value(value.copied), "reason": _said(value.start)}
        return {key: known[key] for key in known if key != "start"}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        names = {"src": "from", "dst": "to"}
        return {names.get(key, key): _value(item) for key, item in value._asdict().items()}
    return [_value(item) for item in value] if isinstance(value, tuple) else value


def _place(place: Place) -> dict[str, Any]:
    return {
        "index": place.index,
        "id": place.id,
        "op": place.op,
        "backend": place.backend,
        "cause": place.cause,
        "reason": _said(place.settled),
        "split": place.split,
        "start": _said(place.start) if place.begins else None,
    }


def _said(event: Assigned | SplitStarted | None) -> str:
    return "" if event is None else words(event)
