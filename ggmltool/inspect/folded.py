"""A plan with its repeated layers folded: what is drawn once, what it stands for, and the edges between."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ggmltool.ggml.plan import LeafPlan, Plan
from ggmltool.inspect.fold import FoldNode, Item, fold, unfolded
from ggmltool.scenario.tensor_info import Tensors

_NUMBER = re.compile(r"(\d+)")
_LAYER = re.compile(r"(?:\bblk\.([0-9]{1,6})\.|-([0-9]{1,6})(?=$|[ ~#]))")


@dataclass(frozen=True, slots=True)
class Folded:
    """A folded plan. Keys name what is drawn: `n<index>` nodes, `l<index>` leafs, `c<number>` copies.

    `members` are the ids of the tensors that each stands for (for copies: those that are copied), `key_of` the key of
    every node and leaf, `copies` that of every copied tensor on a backend; `edges` counts the edges that a drawn one
    stands for. Every tensor and every copy is in exactly one, as is every edge.
    """

    items: tuple[Item, ...]
    members: dict[str, list[str]]
    key_of: dict[str, str]
    copies: dict[tuple[str, str], str]
    edges: Counter[tuple[str, str]]


def fold_plan(plan: Plan, tensors: Tensors) -> Folded:
    """Fold a plan's repeated pieces: equal ops, types, shapes, edges, backends and borders of splits."""
    items = fold(fold_nodes(plan, tensors))
    members = {f"n{i}": [plan.nodes[k].id for k in all] for i, all in unfolded(items)}
    key_of = {id: key for key, ids in members.items() for id in ids}
    for group in _leaf_groups(plan, tensors, key_of, members):
        members[f"l{group[0].index}"] = [leaf.id for leaf in group]
    key_of = {id: key for key, ids in members.items() for id in ids}
    copies = _copies(plan, key_of)
    for (of, _), key in copies.items():
        members.setdefault(key, []).append(of)
    return Folded(items, members, key_of, copies, _edges(plan, tensors, key_of, copies))


def fold_nodes(plan: Plan, tensors: Tensors) -> list[FoldNode]:
    """What has to be equal in nodes that are folded: all but names, numbers, op parameters and the types of weights.

    Types of weights differ from layer to layer in most quantized models, and the same layers they are still.
    """
    place = {node.id: node.index for node in plan.nodes}
    leafs = {leaf.id: leaf for leaf in plan.leafs}
    out = []
    for node in plan.nodes:
        info, split = tensors[node.id], plan.splits[node.split]
        kinds: list[tuple[object, ...] | None] = []
        sources: list[int] = []
        for written, src in zip(info.src, node.src, strict=False):
            if written is None or written == node.id:
                kinds.append(None)
            elif written in place:
                sources.append(place[written])
                kinds.append((tensors[written].type, tensors[written].ne))
            else:
                leaf = leafs[written]
                kinds.append((tensors[written].ne, leaf.backend, leaf.buffer, leaf.usage, src != written))
        key = (info.op, node.type, node.ne, node.backend, split.backend, tuple(kinds))
        out.append(FoldNode(key, tuple(sources), split.i_start == node.index))
    return out


def _leaf_groups(
    plan: Plan, tensors: Tensors, key_of: dict[str, str], members: dict[str, list[str]]
) -> Iterable[list[LeafPlan]]:
    """Leafs that the same drawn nodes read in different repetitions, such as one weight of every layer."""
    uses: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for node in plan.nodes:
        for j, src in enumerate(tensors[node.id].src):
            if src is not None and src not in key_of:
                uses[src].append((key_of[node.id], j))
    groups: dict[object, list[LeafPlan]] = {}
    for leaf in plan.leafs:
        by = uses[leaf.id]
        own = by and len(set(by)) == len(by) and all(len(members[key]) > 1 for key, _ in by)
        alike = (frozenset(by), tensors[leaf.id].ne, leaf.backend, leaf.buffer, leaf.usage) if own else leaf.id
        groups.setdefault(alike, []).append(leaf)
    return groups.values()


def _copies(plan: Plan, key_of: dict[str, str]) -> dict[tuple[str, str], str]:
    """One key for the copies of what is drawn as one, on one backend."""
    keys: dict[tuple[str, str], str] = {}
    out = {}
    for split in plan.splits:
        for of in split.inputs:
            out[of, split.backend] = keys.setdefault((key_of[of], split.backend), f"c{len(keys)}")
    return out


def _edges(
    plan: Plan, tensors: Tensors, key_of: dict[str, str], copies: dict[tuple[str, str], str]
) -> Counter[tuple[str, str]]:
    edges: Counter[tuple[str, str]] = Counter()
    for node in plan.nodes:
        backend = plan.splits[node.split].backend
        for written, src in zip(tensors[node.id].src, node.src, strict=False):
            if written is not None and written != node.id:
                copy = copies.get((written, backend)) if src != written else None
                edges[copy or key_of[written], key_of[node.id]] += 1
    return edges


def masked(names: Sequence[str]) -> str:
    """One name for several: the numbers in which they differ become N; empty if they differ otherwise too.

    >>> masked(["blk.0.attn_q", "blk.1.attn_q"]), masked(["pos", "pos"]), masked(["a", "b"])
    ('blk.N.attn_q', 'pos', '')
    """
    parts = [_NUMBER.split(name) for name in names]
    if any(part[::2] != parts[0][::2] for part in parts):
        return ""
    return "".join(column[0] if len(set(column)) == 1 else "N" for column in zip(*parts, strict=True))


def layers(names: Iterable[str]) -> str:
    """Which layers the names of llama.cpp speak of: `layers 0–8`, or nothing."""
    found = [number for name in names if (number := layer_of(name)) is not None]
    if not found:
        return ""
    low, high = min(found), max(found)
    return f"layer {low}" if low == high else f"layers {low}–{high}"


def layer_of(name: str) -> int | None:
    """The layer that a name of llama.cpp speaks of: of a weight, of a node, of a view or a copy of them.

    >>> layer_of("blk.3.attn_q.weight"), layer_of("Kcur-12 (view)"), layer_of("CUDA0#ffn_inp-2#0"), layer_of("norm")
    (3, 12, 2, None)
    """
    match = _LAYER.search(name)
    return None if match is None else int(match[1] or match[2])


class LayerSpan(NamedTuple):
    """Nodes `[start, end)` of a layer."""

    start: int
    end: int
    layer: int


def layer_spans(names: Sequence[str]) -> Iterator[LayerSpan]:
    """Where the layers of a model begin, by the names of nodes in their order. Each next one, or 0 for another stack of
    them, ends the one before; the last ends with its last name.

    >>> [tuple(span) for span in layer_spans(["embd", "q-0", "x", "q-1", "out-1", "norm"])]
    [(1, 3, 0), (3, 5, 1)]
    """
    start, current, end = 0, -1, 0
    for place, name in enumerate(names):
        found = layer_of(name)
        if found == current:
            end = place + 1
        elif found is not None and (found > current or found == 0):
            if current >= 0:
                yield LayerSpan(start, place, current)
            start, current, end = place, found, place + 1
    if current >= 0:
        yield LayerSpan(start, end, current)
