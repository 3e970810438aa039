"""Which switch makes a difference between two releases: the newer one plans again with each rule turned back alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ggmltool.ggml.plan import CopyPlan, Plan, PlanError
from ggmltool.ggml.releases.release import Release
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.watched import watch
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.state.errors import InspectError

SWITCHES = {
    "ignores_weights": "attention-weights",
    "takes_first_able": "rest",
    "max_split_inputs": "split-inputs-30",
    "inputs_grow": "inputs-grow",
    "refuses_second_graph": "alloc-once",
    "copies_turn_at_alloc": "next-copy",
    "copies_used_experts": "used-experts",
    "max_chunks": "chunks",
    "records_every_split": "event-per-split",
    "inplace_ops": "clamp",
    "expanding_ops": "alloc-size",
    "full_split_ends": "full-splits",
    "copies_leafs_last": "inputs-last",
    "weights_last": "weights-last",
    "keeps_for_devices": "kept",
}
"""The rules (fields of `Rules`) whose changes are in the list of changes, with the key there."""

WITH = {"max_split_inputs": ("full_split_ends",)}
"""Rules that say something only where another one is as it was at that time."""

Place = tuple[str, ...]
"""A place in a plan at which two plans can differ: its kind, and the names that tell it apart."""


def turned_plans(opened: Opened, moment: Moment, other_release: Release) -> dict[str, Plan] | None:
    """The plans at a moment with one rule at a time as another release has it, by the change's key, where that changes
    any.

    None where the other release has another scheduler, in which rules are no switches.
    """
    release = opened.model.release
    if not (release.reserves and other_release.reserves):
        return None
    plan = _plan(opened, moment, release)
    out = {}
    for name, key in SWITCHES.items():
        if getattr(release.rules, name) == getattr(other_release.rules, name):
            continue
        names = (name, *WITH.get(name, ()))
        turned = replace(release.rules, **{each: getattr(other_release.rules, each) for each in names})
        other = _plan(opened, moment, replace(release, rules=turned))
        if other is not None and other != plan:
            out[key] = other
    return out


def _plan(opened: Opened, moment: Moment, release: Release) -> Plan | None:
    scenario = LoadedScenario(replace(opened.model, release=release))
    try:
        return watch(replace(opened, scenario=scenario, log=None), moment).plan
    except InspectError:
        return None


class Switches:
    """Asks turned plans what makes a difference: the rule that, turned back alone, gives at a place what was there.

    `turned` None: between these releases rules are no switches. `ahead` are plans of the older release with one rule as
    the newer has it: a graph that the older one refuses may need one of several.
    """

    def __init__(
        self, older: Plan, newer: Plan, turned: Mapping[str, Plan] | None, ahead: Mapping[str, Plan] | None = None
    ) -> None:
        self.are_known = turned is not None
        self._lets_pass = frozenset(key for key, plan in (ahead or {}).items() if plan.ok)
        self._older, self._newer = (dict(_facts(plan)) if turned else {} for plan in (older, newer))
        self._turned = {key: dict(_facts(plan)) for key, plan in (turned or {}).items()}

    def behind(self, *place: str) -> str:
        """The key of the rule behind what differs at a place; "" if it is none of the switches."""
        return self.behind_all([place])

    def behind_all(self, places: Sequence[Place]) -> str:
        """The key of the rule behind all that differs at some places."""
        for key, facts in self._turned.items():
            if all(self._newer.get(at) != self._older.get(at) == facts.get(at) for at in places):
                return key
        return ""

    def confirmed(self, key: str) -> str:
        """The key, if nothing speaks against it: a switch that changes nothing when it is turned is behind nothing."""
        is_idle = self.are_known and key in SWITCHES.values() and key not in self._turned and key not in self._lets_pass
        return "" if is_idle else key


def copies_in_use(plan: Plan) -> str:
    """The numbers of the pipeline copies that nodes read."""
    number = {c.name: c.copy for c in plan.copies}
    return ", ".join(map(str, sorted({number[t] for n in plan.nodes for t in n.src if t in number})))


def copies_by_tensor(plan: Plan) -> dict[str, list[CopyPlan]]:
    """The copies of each tensor that has some."""
    out: dict[str, list[CopyPlan]] = {}
    for copy in plan.copies:
        out.setdefault(copy.of, []).append(copy)
    return out


def copy_place(copy: CopyPlan) -> str:
    """What the place of a copy is called."""
    return f"the copy of {copy.of}"


def condition(error: PlanError) -> str:
    """What a refusal is known by: ggml's condition, else its message."""
    fields = dict(error)
    return fields.get("condition") or fields.get("message") or ""


def _facts(plan: Plan) -> Iterator[tuple[Place, object]]:
    """What two plans can differ in, by place."""
    yield ("refused",), None if plan.error is None else condition(plan.error)
    yield ("copies in use",), copies_in_use(plan)
    for n in plan.nodes:
        yield ("node", n.id), (n.backend, n.cause)
        yield ("place", n.id), (n.buffer, n.chunk, n.offset)
    for leaf in plan.leafs:
        yield ("place", leaf.id), (leaf.buffer, leaf.chunk, leaf.offset)
    for split in plan.splits:
        first = plan.nodes[split.i_start].id if split.i_start < len(plan.nodes) else ""
        yield ("split", first), (split.backend, split.i_end - split.i_start, split.inputs)
        for t in split.inputs:
            yield ("copy", t, split.backend), True
    for t, copies in copies_by_tensor(plan).items():
        yield ("copies", t), len(copies)
        yield ("place", copy_place(copies[0])), [(copy.buffer, copy.chunk, copy.offset) for copy in copies]
