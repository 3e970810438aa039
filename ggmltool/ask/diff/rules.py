"""Which changed rule of ggml is behind each difference between the plans of two releases for one graph."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Literal

from msgspec import UNSET, Struct

from ggmltool.ask.diff.plans import PlanDiff, plan_diff
from ggmltool.ask.diff.record import CopyPair, Finding, NodePair, RuleChange
from ggmltool.ask.diff.side import DiffSide, Switches, condition, copies_by_tensor, copies_in_use, copy_place
from ggmltool.data import load
from ggmltool.ggml.plan import Plan, PlanError
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.show.text import count

Area = Literal["assignment", "splits", "copies", "memory"]


class ReleaseChange(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule that changed. `since` is the day its commit `commit` of ggml was written, as in ggml's history; where that
    is not known, the day of `build`, the first known one of llama.cpp that has it.

    `before` and `now` are the rule in a sentence each, `area` is what it decides.
    """

    key: str
    since: str
    area: Area
    before: str
    now: str
    commit: str = ""
    build: str = ""


@cache
def changes() -> tuple[ReleaseChange, ...]:
    """Every change, in the order of their days."""
    return load("changes.toml", dict[Literal["changes"], tuple[ReleaseChange, ...]])["changes"]


def changes_between(older: str, newer: str) -> tuple[ReleaseChange, ...]:
    """What changed after the day `older` up to the day `newer` (YYYY-MM-DD), in the order of days."""
    return tuple(change for change in changes() if older < change.since <= newer)


_CPU_BUFT = "CPU"
_METAL = "MTL"
_SPARE = 64
_NAMED = 3
_BACKWARD = frozenset({"ROPE_BACK", "SILU_BACK", "RMS_NORM_BACK", "SOFT_MAX_BACK"})
_FEW = 10
"""Inputs of a split before 2025-09, and the least that a full split has."""

_AREAS = ("assignment", "splits", "copies", "memory")

_REFUSALS: dict[str, tuple[str, ...]] = {
    "cur_split < GGML_MAX_SPLITS": ("split-count",),
    "n_inputs < GGML_MAX_SPLIT_INPUTS": ("split-inputs-10",),
    "n_graph_inputs < GGML_SCHED_MAX_SPLIT_INPUTS": ("inputs-grow", "pipeline"),
    '!"not enough space in the buffer"': ("reserve",),
    "ggml_tallocr_is_measure(sched->tallocs[0])": ("reserve",),
    "node_allocr != NULL": ("best-backend",),
    "src_allocr != NULL": ("inputs",),
    "view->view_src != NULL && view->view_src->data != NULL": ("gallocr-v3",),
    "buffer_id >= 0": ("gallocr-v3",),
    "node_backend_id != -1": ("rest", "host-sources", "supports-op"),
    "src_backend_id != -1": ("rest", "gallocr-v3"),
    "!sched->is_alloc": ("alloc-once",),
    "talloc->buffer_id >= 0": ("lost-data",),
}
"""What ggml refused with in only one of the plans, by its condition: the rule, else the one that made the condition."""


_AGAIN = {
    "supports-op": "device-ops",
    "graph-optimize": "device-orders",
    "metal-attention": "metal-scratch",
    "metal-scratch": "device-scratch",
}
"""What else is behind a difference, where both releases have the rule or neither: for most, what devices say now."""


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


def rule_changes(diff: PlanDiff, changes: Sequence[ReleaseChange], switches: Switches) -> tuple[RuleChange, ...]:
    """The changes behind the differences: what assigns first, memory last; at the end what only follows from them.

    Where a switch makes the difference, it is named; another scheduler's rules are told from what they do.
    """
    allowed = {change.key: change for change in changes}
    found = [
        (allowed.get(switches.confirmed(_latest(key, allowed))), Finding(part, what))
        for part, source in (
            ("refused", _refused(diff, allowed, switches)),
            *(() if any(diff.errors) else _planned(diff, allowed, switches)),
        )
        for key, what in source
    ]
    groups: dict[str, list[Finding]] = {}
    for change, finding in found:
        groups.setdefault(change.key if change else "", []).append(finding)
    order = [*(c for area in _AREAS for c in changes if c.area == area), None]
    return tuple(_rule_change(c, groups[key]) for c in order if (key := c.key if c else "") in groups)


def _rule_change(change: ReleaseChange | None, findings: Iterable[Finding]) -> RuleChange:
    if change is None:
        return RuleChange(rule=None, changed=tuple(findings))
    known = {name: getattr(change, name) or UNSET for name in ("since", "commit", "build", "before", "now")}
    return RuleChange(rule=change.key, **known, changed=tuple(findings))


def _latest(key: str, allowed: Collection[str]) -> str:
    while key not in allowed and key in _AGAIN:
        key = _AGAIN[key]
    return key


def _planned(
    diff: PlanDiff, allowed: Collection[str], switches: Switches
) -> Iterator[tuple[str, Iterator[tuple[str, str]]]]:
    """What differs between two plans that ggml went through with: by part, keys of rules with what they did."""
    yield "nodes", _clamps(diff)
    yield "nodes", _nodes(diff, switches)
    yield "splits", _splits(diff, switches)
    yield "copies", _copies(diff, switches)
    yield "buffers", _buffers(diff, allowed, switches)
    yield "sizes", _sizes(diff)


def _refused(diff: PlanDiff, allowed: Collection[str], switches: Switches) -> Iterator[tuple[str, str]]:
    """A refusal of one side alone; of two, only one that differs."""
    a, b = diff.errors
    if a is not None and b is not None and condition(a) == condition(b):
        return
    for plan, error in ((diff.a.plan, a), (diff.b.plan, b)):
        if error is not None:
            key = switches.behind("refused") or _refusal(error, allowed, switches)
            yield key, f"{plan.ggml}: {dict(error).get('message')}"


def _refusal(error: PlanError, allowed: Collection[str], switches: Switches) -> str:
    refused = condition(error)
    if refused.startswith("pre-allocated tensor"):
        return "preallocated"
    if dict(error).get("kind") == "crash" and dict(error).get("function") != "ggml_backend_graph_compute":
        return "best-backend"
    return next((key for key in _REFUSALS.get(refused, ()) if key in allowed and switches.confirmed(key)), "")


def _clamps(diff: PlanDiff) -> Iterator[tuple[str, str]]:
    """Clamps that overwrote their source, and now have memory of their own."""
    for n in diff.b.plan.nodes:
        if n.op == "CLAMP" and n.id in diff.a.tensors:
            was, now = (side.tensors[n.id].view_src for side in (diff.a, diff.b))
            if was is not None and now is None:
                yield "clamp", f"{n.id} no longer overwrites {was}"


def _nodes(diff: PlanDiff, switches: Switches) -> Iterator[tuple[str, str]]:
    for pair in diff.moved:
        key = switches.behind("node", pair.b.id) or _moved(pair, diff)
        yield key, f"{pair.b.id} ({pair.b.op}): {_on(pair.a.backend)} → {_on(pair.b.backend)}"
    for pair in diff.other_cause:
        key = switches.behind("node", pair.b.id) or _moved(pair, diff)
        yield key, f"{pair.b.id} ({pair.b.op}): cause {pair.a.cause} → {pair.b.cause}"
    before = {leaf.id: leaf for leaf in diff.a.plan.leafs}
    for leaf in diff.b.plan.leafs:
        old = before.get(leaf.id)
        if old is not None and old.backend != leaf.backend and old.backend is not None:
            last = bool(diff.b.plan.backends) and leaf.backend == diff.b.plan.backends[-1][0]
            yield "inputs" if last else "", f"{leaf.id} (leaf): {_on(old.backend)} → {_on(leaf.backend)}"
    own_order = bool(diff.b.order) and list(diff.b.order) != [n.id for n in diff.b.plan.nodes]
    for pair in diff.reordered:
        key = "graph-optimize" if own_order or diff.a.order != diff.b.order else ""
        yield key, f"{pair.b.id} ({pair.b.op}): node {pair.a.index} → {pair.b.index}"


def _on(backend: str | None) -> str:
    return backend or "none"


def _moved(pair: NodePair, diff: PlanDiff) -> str:
    """The rule behind another backend: by what settled it on either side."""
    a, b = pair.a, pair.b
    was, is_now = a.cause or "", b.cause or ""
    if "1.off" in (was, is_now):
        return "offload" if is_now == "1.off" else "op-offload"
    cpu = diff.b.plan.backends[-1][0]
    if (a.id, cpu) in diff.a.refused and (b.id, cpu) not in diff.b.refused and cpu in (a.backend, b.backend):
        return "host-sources"
    if was.startswith("1.wgt") and not is_now.startswith("1.wgt"):
        return {"ROPE": "rope-weights", "FLASH_ATTN_EXT": "attention-weights"}.get(b.op, "")
    if was.startswith("1.dst") or is_now.startswith("1.dst"):
        return "preallocated"
    if is_now == "3.upg":
        return "upgrade"
    if a.backend is not None and (b.id, a.backend) in diff.b.refused:
        return "supports-op"
    if (a.id, b.backend) in diff.a.refused and (b.id, b.backend) not in diff.b.refused:
        return "device-ops"
    if is_now == "3.best":
        return "best-backend"
    if is_now == "2.sup" and was.startswith("2.") and was != is_now:
        origins = [side.settled[n.id].by if n.id in side.settled else "" for side, n in ((diff.a, a), (diff.b, b))]
        moved = any(origins[1] == other.b.id for other in diff.moved)
        return "" if moved and origins[0] == origins[1] else "down-first"
    return "rest" if a.backend is None else ""


def _splits(diff: PlanDiff, switches: Switches) -> Iterator[tuple[str, str]]:
    """Splits that begin although the backend is the same."""
    for pair in diff.splits:
        a, b, changes = pair.a, pair.b, pair.changes
        if b is None:
            if a is not None:
                full = _cut_rule(diff.a.plan, a.id) == "split-inputs-10"
                guess = "split-inputs-30" if full else ""
                yield switches.behind("split", a.first) or guess, f"split #{a.id} at {a.first} is gone"
        elif a is None:
            yield (
                switches.behind("split", b.first) or _cut_rule(diff.b.plan, b.id),
                f"split #{b.id} begins at {b.first}",
            )
        elif changes and changes != ("bytes",):
            yield switches.behind("split", b.first), f"split #{b.id}: other {', '.join(changes)}"


def _cut_rule(plan: Plan, split: int) -> str:
    """Why a split begins behind one of the same backend; "" where the backend is another."""
    if split == 0 or plan.splits[split - 1].backend != plan.splits[split].backend:
        return ""
    return "split-inputs-10" if len(plan.splits[split - 1].inputs) >= _FEW else "weight-split"


def _copies(diff: PlanDiff, switches: Switches) -> Iterator[tuple[str, str]]:
    homes, old_homes = _homes(diff.b.plan), _homes(diff.a.plan)
    leafs = {leaf.id for leaf in diff.b.plan.leafs}
    for pair in diff.copied:
        key = switches.behind("copy", pair.id_b or pair.id or "", pair.dst)
        yield key or _copied(pair, diff, homes, old_homes, leafs), _copy_line(pair)
    old, new = (max((c.copy for c in side.plan.copies), default=0) for side in (diff.a, diff.b))
    if new > old == 0:
        yield "pipeline", f"{new + 1} copies of {count(len({c.of for c in diff.b.plan.copies}), 'tensor')}"
    before = copies_by_tensor(diff.a.plan)
    for t, copies in copies_by_tensor(diff.b.plan).items():
        key = switches.behind("copies", t)
        if key:
            yield key, f"{len(before.get(t, ()))} → {len(copies)} copies of {t}"
    if old and new and copies_in_use(diff.a.plan) != copies_in_use(diff.b.plan):
        key = switches.behind("copies in use") or "next-copy"
        yield key, f"copy {copies_in_use(diff.a.plan)} → {copies_in_use(diff.b.plan)} is in use"


def _homes(plan: Plan) -> dict[str, str | None]:
    """Where each tensor is."""
    return {leaf.id: leaf.backend for leaf in plan.leafs} | {n.id: n.backend for n in plan.nodes}


def _copied(
    pair: CopyPair,
    diff: PlanDiff,
    homes: Mapping[str, str | None],
    old_homes: Mapping[str, str | None],
    leafs: Collection[str],
) -> str:
    id = pair.id_b or pair.id or ""
    moved = homes.get(id) != old_homes.get(pair.id or id)
    if pair.b is None:
        read = any(n.backend == pair.dst and id in n.src for n in diff.b.plan.nodes)
        return "buffer-supported" if read and homes.get(id) != pair.dst else ""
    return "inputs" if moved and id in leafs else ""


def _copy_line(pair: CopyPair) -> str:
    what = pair.id_b or pair.id
    if pair.a is None:
        return f"{what} is copied from {pair.src} to {pair.dst}"
    if pair.b is None:
        return f"{what} is no longer copied to {pair.dst}"
    return f"{what} is copied {pair.src} to {pair.dst}, {pair.a.nbytes} → {pair.b.nbytes} bytes"


def _buffers(diff: PlanDiff, allowed: Collection[str], switches: Switches) -> Iterator[tuple[str, str]]:
    """Sizes and places of compute buffers."""
    for pair in diff.reuse:
        op = next((n.op for n in diff.b.plan.nodes if n.id == pair.id), "")
        key = "inplace-ops" if op in _BACKWARD and pair.a is None else switches.behind("place", pair.id)
        yield key, f"{pair.id} is computed in place of {pair.b or 'nothing'}, was {pair.a or 'nothing'}"
    for buffers in diff.buffers:
        a, b = buffers.a, buffers.b
        if a is not None and b is not None and _is_cut(diff, _buft_of(diff.b.plan, buffers.backend)):
            yield "chunks", f"{buffers.backend}: {count(len(a.chunks), 'chunk')} → {len(b.chunks)}"
    sizes_a, sizes_b = dict(diff.a.plan.buffer_sizes), dict(diff.b.plan.buffer_sizes)
    first: dict[str, str] = {}
    for backend, buft in diff.b.plan.backends:
        if buft in first and sizes_a.get(backend) and not sizes_b.get(backend):
            yield "buffer-type-plan", f"{backend} shares the buffer of {first[buft]}"
        first.setdefault(buft, backend)
    for id in sorted(diff.b.tails - diff.a.tails):
        yield "tail", f"{id} gives back what the node in its place does not need"
    if "spare-bytes" in allowed:
        yield from _spare(diff)
    for buft in dict.fromkeys(buft for _, buft in diff.b.plan.backends):
        yield from _laid_out(diff, buft, allowed, switches)


def _sizes(diff: PlanDiff) -> Iterator[tuple[str, str]]:
    """Tensors of the same shape that take more or less memory than before."""
    bufts = {n.id: n.buffer or "" for n in diff.b.plan.nodes}
    for pair in diff.sizes:
        if pair.a.shape == pair.b.shape:
            metal = "metal-attention" if pair.op == "FLASH_ATTN_EXT" else "metal-scratch"
            is_metal = pair.growth > 0 and bufts.get(pair.id_b, "").startswith(_METAL)
            yield (
                metal if is_metal else "device-scratch",
                f"{pair.id_b} ({pair.op}): {pair.a.nbytes} → {pair.b.nbytes} bytes",
            )


def _spare(diff: PlanDiff) -> Iterator[tuple[str, str]]:
    """What the CPU's buffers were larger by, whatever is in them."""
    for pair in diff.buffers:
        if pair.a is not None and pair.a.size and _buft_of(diff.a.plan, pair.backend) == _CPU_BUFT:
            yield "spare-bytes", f"the compute buffer of {pair.backend} takes {_SPARE} bytes fewer"
    for held in diff.contexts:
        if held.buft == _CPU_BUFT and held.a > held.b:
            what = f"{held.usage} in {held.buft}: {held.a} → {held.b} bytes"
            yield "spare-bytes", what
            if (held.a - held.b) % _SPARE:
                yield "alignment", what


def _buft_of(plan: Plan, backend: str) -> str:
    return dict(plan.backends).get(backend, "")


def _laid_out(diff: PlanDiff, buft: str, allowed: Collection[str], switches: Switches) -> Iterator[tuple[str, str]]:
    """Other places in the compute buffer of a buffer type that holds the same tensors as before."""
    old, new = _places(diff.a, buft), _places(diff.b, buft)
    moved = [id for id, place in new.items() if old.get(id, place) != place]
    if not moved:
        return
    what = f"{count(len(moved), 'tensor')} elsewhere in {buft}: {', '.join(moved[:_NAMED])}"
    switch = switches.behind_all([("place", id) for id in moved])
    if switch or _is_cut(diff, buft):
        yield switch or "chunks", what
        return
    if old.keys() != new.keys():
        yield "", what
        return
    aligned = buft == _CPU_BUFT and "alignment" in allowed
    if aligned:
        yield "alignment", what
    if not aligned or _ranks(old) != _ranks(new):
        yield "gallocr-v3", what


def _is_cut(diff: PlanDiff, buft: str) -> bool:
    """Whether the compute buffer was one piece and now is several."""
    mine = {backend for backend, name in diff.b.plan.backends if name == buft}
    return any(
        p.backend in mine and p.a is not None and p.b is not None and len(p.b.chunks) > max(1, len(p.a.chunks))
        for p in diff.buffers
    )


def _places(side: DiffSide, buft: str) -> dict[str, int]:
    """Where in a compute buffer the tensors of a plan lie, views apart."""
    plan, tensors = side.plan, side.tensors
    rows = [(n.id, n.buffer, n.offset) for n in plan.nodes]
    rows += [(leaf.id, leaf.buffer, leaf.offset) for leaf in plan.leafs]
    inner = {id for id, info in tensors.items() if not info.has_data and info.view_src is None}
    out = {id: offset for id, buffer, offset in rows if buffer == buft and id in inner}
    out |= {copy_place(c): c.offset for c in plan.copies if c.buffer == buft}
    return {id: offset for id, offset in out.items() if offset is not None}


def _ranks(places: Mapping[str, int]) -> dict[str, int]:
    """The order of the places: equal ones have one rank."""
    rank = {offset: i for i, offset in enumerate(sorted(set(places.values())))}
    return {id: rank[offset] for id, offset in places.items()}
