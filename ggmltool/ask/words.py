"""The engine's reasons and events in words, which every question says alike."""

from __future__ import annotations

from ggmltool.ggml.events import (
    Assigned,
    Event,
    IdsChanged,
    Kept,
    KeptUntil,
    Logged,
    NotReused,
    PassedOver,
    ReallocNeeded,
    Refused,
    SplitStarted,
    UsedAfterFree,
)
from ggmltool.ggml.why import Facts, Why
from ggmltool.inspect.decisions import Reason, TurnedDownRow
from ggmltool.inspect.use_after_free import grew

Reasoned = Assigned | PassedOver | Refused | SplitStarted | NotReused | ReallocNeeded
"""An event that has a reason."""

_WORDS = {
    Why.USER: "the program assigned it",
    Why.INPUT: "it is flagged input, and inputs go to the last backend",
    Why.OFFLOAD: (
        "its weight {e.by} is in {f.buft}, but {e.backend} offloads a batch of {f.batch} (from {f.min_batch} on)"
    ),
    Why.SAME_BUFT: "{e.backend} shares the buffer type of {f.backend} and has priority",
    Why.VIEW: "it is a view of {e.by}",
    Why.READER: "its first reader {e.by} is there",
    Why.FIRST_ABLE: "no neighbor and no source has a backend, and this is the first that supports it",
    Why.NOT_INPUT: "it is not flagged input",
    Why.WEIGHTS_IGNORED: "the weights of {f.op} do not count",
    Why.NO_WEIGHT: "no source is in a weights buffer",
    Why.BUFT: "{e.backend} cannot use memory in {f.buft}",
    Why.SOURCES: "it cannot read all sources",
    Why.FEWER_SOURCES: "it can read {f.n_src} of the node's sources where they are",
    Why.SMALL_BATCH: "offloading starts at a batch of {f.min_batch}, and this one is {f.batch}",
    Why.OFFLOAD_OFF: "op offload is switched off",
    Why.NO_BACKEND: "{f.tensor} has no backend either",
    Why.FIRST_NODE: "the first node",
    Why.OTHER_BACKEND: "{e.node} runs on {e.backend}",
    Why.WEIGHT_COPIED: "its weight {f.tensor} must be copied from {f.buft}; the split has inputs already",
    Why.NO_ROOM: "{f.tensor} must be copied, and the split has {f.n_inputs} inputs, all it has room for",
    Why.VIEWS_ONLY: "all nodes are views",
    Why.IS_VIEW: "it is a view",
    Why.PREALLOCATED: "it is pre-allocated",
    Why.TAKEN_OVER: "its memory was taken over already",
    Why.OUTPUT: "it is an output",
    Why.LAYOUT: "the layouts differ",
    Why.CHILDREN: "{f.n_children} uses of it are left",
    Why.OTHER_BUFFER: "it is not in the memory of {f.buft}",
    Why.IN_USE: "it is still in use, by {f.n_children} nodes and {f.n_views} views",
    Why.ROOT_IN_USE: (
        "what it is a view of, {f.tensor}, is still in use, by {f.n_children} nodes and {f.n_views} views"
    ),
    Why.INSIDE_ROOT: "it is a view into the middle of {f.tensor}",
}
"""The reasons that are said in one way: `e` is the event, `f` its facts."""

_NOT_SERVED = {
    Why.N_NODES: "different number of nodes",
    Why.N_LEAFS: "different number of leafs",
    Why.LARGER: "{what} is larger",
    Why.PREALLOCATED: "{what} was pre-allocated",
}


def words(event: Reasoned) -> str:
    """Why it was decided so."""
    match event:
        case Refused():
            return event.condition
        case ReallocNeeded():
            return _NOT_SERVED[event.why].format(what="node" if event.slot is None else "source")
        case Assigned():
            said = _assigned(event)
        case PassedOver():
            said = _passed_over(event.why, event.facts)
        case NotReused(facts=facts):
            said = _not_reused(event.why, facts)
        case _:
            said = None
    return _WORDS[event.why].format(e=event, f=event.facts) if said is None else said


def _assigned(event: Assigned) -> str | None:
    facts = event.facts
    match event.why:
        case Why.MEMORY:
            whose = "its" if event.by == event.tensor else f"it is a view of {event.by}, whose"
            return f"{whose} memory is in {_home(event)}"
        case Why.WEIGHT:
            return f"its weight {event.by} is in {_home(event)}"
        case Why.NEIGHBOR if facts.sweep is not None:
            way = "down" if facts.sweep.down else "up"
            above = " from a higher-priority backend" if facts.sweep.skips_last else ""
            return f"it goes with its neighbor {event.by}, expanding {way}{above}"
        case Why.MOST_SOURCES if facts.readable is not None:
            others = dict(facts.readable)
            own = others.pop(event.backend)
            told = ", ".join(f"{name} {count}" for name, count in others.items())
            first = "; the first of equals wins" if own in others.values() else ""
            return f"{event.backend} can read {own} of its {facts.n_src} sources where they are, {told}{first}"
        case Why.ONLY_ONE:
            return "there is no other backend" if facts.n_backends == 1 else "no other backend supports it"
    return None


def _home(event: Assigned) -> str:
    return event.facts.buft or f"the scheduler's own memory for {event.backend}"


def _passed_over(why: Why, facts: Facts) -> str | None:
    where = "above" if facts.sweep is not None and facts.sweep.down else "below"
    match why:
        case Why.NO_MEMORY:
            return f"{facts.tensor or 'it'} has no memory yet"
        case Why.NEVER_OFFLOADS:
            return f"it never offloads {facts.op}" if facts.op else "it never offloads"
        case Why.NO_NEIGHBOR:
            return f"no node {where} it has a backend yet"
        case Why.SPREADS_LAST:
            return f"{facts.tensor} {where} it is on {facts.backend}, which expands last"
    return None


def _not_reused(why: Why, facts: Facts) -> str | None:
    if why is Why.NO_MEMORY:
        return "it has no memory"
    if why is Why.VIEWS:
        n_views = facts.n_views or 0
        return f"{n_views} view{'s' if n_views > 1 else ''} of it still in use"
    return None


_NOT_BY_CHOICE = frozenset((Why.NEIGHBOR, Why.MOST_SOURCES, Why.ONLY_ONE, Why.FIRST_ABLE))
"""What settles a tensor that could be anywhere: then the reason is who was turned down, if anybody was."""

_WORTH_SAYING = frozenset((Why.SMALL_BATCH, Why.OFFLOAD_OFF))
"""Why a backend of higher priority that supports an op was passed over, where that is what people look for."""


def reason_sentence(reason: Reason) -> str:
    """`t is on CPU (3.best): ROCm0 does not support ARGSORT; CPU is the next that does.`"""
    settled = reason.settled
    if settled is None:
        cannot_use = (words(passed) for passed in reason.passed_over if passed.why is Why.BUFT)
        why = "; ".join([*map(refusal_text, reason.turned_down), *cannot_use])
        return f"{reason.tensor} has no backend" + (f": {why}." if why else ".")
    return f"{reason.tensor} is on {settled.backend} ({settled.cause}): {reason_text(reason)}."


def reason_text(reason: Reason) -> str:
    """Why a tensor is on its backend, without naming either; "" if it has none."""
    settled = reason.settled
    if settled is None:
        return ""
    refusals = [refusal_text(t) for t in reason.turned_down]
    if not refusals or settled.why not in _NOT_BY_CHOICE:
        more = refusals if settled.why in (Why.WEIGHT, Why.MEMORY) else []
        said = (words(passed) for passed in reason.passed_over if passed.why in _WORTH_SAYING)
        return "; ".join(dict.fromkeys([words(settled), *more, *said]))
    if reason.is_next:
        return "; ".join([*refusals, f"{settled.backend} is the next that does"])
    return "; ".join([words(settled), *refusals])


def refusal_text(refused: TurnedDownRow) -> str:
    """`GPU0 does not support SILU`, with the condition if there is one."""
    if refused.lacks or not refused.why:
        return f"{refused.backend} does not support {refused.op}"
    return f"{refused.backend} does not support this {refused.op} ({refused.why})"


def sentence(event: Event) -> str:
    """The event with its reason; "" for one that each view says in a way of its own."""
    match event:
        case Assigned(tensor, backend, _, cause):
            return f"{tensor} → {backend} ({cause}): {words(event)}"
        case IdsChanged(at, tensor, is_leaf, old, new):
            return f"{'leaf' if is_leaf else 'node'} {at}, {tensor}, moved from {old} to {new}"
        case KeptUntil(backend, tensor, until):
            return f"{tensor} keeps its memory until {until}: {backend} asks for it"
        case NotReused(tensor, parent):
            return f"not {tensor} in the memory of {parent}: {words(event)}"
        case Kept(tensor):
            return f"keep {tensor}: it is an output"
        case ReallocNeeded(_, tensor, old, new):
            sizes = f" ({old} → {new})" if old is not None else ""
            return "the reserved plan does not serve: " + words(event) + (f": {tensor}" if tensor else "") + sizes
        case UsedAfterFree(tensor, node, buft, old, new, step):
            by = f", used by {node}" if node and node != tensor else ""
            why = f"{buft} {grew(old, new)} from {old} to {new} bytes"
            return f"use after free: {tensor}{by}; step {step} freed it when {why}"
        case Logged(level, text):
            return f"{level}: {text.rstrip()}"
    return ""
