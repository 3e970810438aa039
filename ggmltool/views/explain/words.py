"""The engine's reasons in words: a sentence, without its full stop, for the code and the facts of every event."""

from __future__ import annotations

from ggmltool.ggml.events import Assigned, NotReused, PassedOver, ReallocNeeded, Refused, SplitStarted
from ggmltool.ggml.why import Facts, Sweep, Why

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
            return f"it goes with its neighbor {event.by}, expanding {_direction(facts.sweep)}"
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


def _direction(sweep: Sweep) -> str:
    way = "down" if sweep.down else "up"
    return f"{way} from a higher-priority backend" if sweep.skips_last else way


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
