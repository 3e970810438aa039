"""What building a graph comes to, found once for all builds of it: its nodes and leafs as numbers into a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import FLAG_PARAM, Tensor

NONE = -1
"""No tensor."""


class BuildOrder(NamedTuple):
    """The numbers of a graph's tensors: all in the order they are met, nodes, leafs, and the nodes to be computed.

    `use_counts` are those of `visited`. `unnamed` are the nodes and leafs that have no name until they are added.
    """

    visited: tuple[int, ...]
    use_counts: tuple[int, ...]
    nodes: tuple[int, ...]
    leafs: tuple[int, ...]
    computed: tuple[int, ...]
    unnamed: tuple[tuple[int, str], ...]


def build_order(
    roots: Iterable[tuple[int, bool]], tensors: Sequence[Tensor], sources: Sequence[Sequence[int]]
) -> BuildOrder | None:
    """What calls for `roots` come to: of ggml_build_forward_expand, or ggml_build_forward_order where the second is
    false. `sources` are those of each of the `tensors`, NONE for a hole.

    None for what ggml would not build: a root that is a leaf with sources of its own.
    """
    uses = [0] * len(tensors)
    seen = bytearray(len(tensors))
    visited: list[int] = []
    added: list[int] = []
    computed: list[int] = []
    for root, is_computed in roots:
        n = len(added)
        if not seen[root]:
            _visit(root, sources, uses, seen, visited, added)
        if len(added) > n and sources[root] and _is_leaf(tensors[root]):
            return None
        if is_computed:
            computed.append(root)
    nodes = tuple([i for i in added if not _is_leaf(tensors[i])])
    leafs = tuple([i for i in added if _is_leaf(tensors[i])])
    return BuildOrder(
        tuple(visited),
        tuple([uses[i] for i in visited]),
        nodes,
        leafs,
        _with_sources(computed, tensors, sources),
        (*_unnamed("leaf", leafs, tensors), *_unnamed("node", nodes, tensors)),
    )


def _visit(
    root: int, sources: Sequence[Sequence[int]], uses: list[int], seen: bytearray, visited: list[int], added: list[int]
) -> None:
    """ggml_visit_parents_graph: a tensor is met before its sources, and added behind them."""
    seen[root] = 1
    visited.append(root)
    stack = [(root, iter(sources[root]))]
    while stack:
        i, rest = stack[-1]
        for s in rest:
            if s == NONE:
                continue
            uses[s] += 1
            if not seen[s]:
                seen[s] = 1
                visited.append(s)
                if sources[s]:
                    stack.append((s, iter(sources[s])))
                    break
                added.append(s)
        else:
            added.append(i)
            stack.pop()


def _is_leaf(t: Tensor) -> bool:
    return t.op == Op.NONE and not t.flags & FLAG_PARAM


def _with_sources(roots: list[int], tensors: Sequence[Tensor], sources: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The ops that are needed for the roots, and the roots."""
    seen = bytearray(len(tensors))
    found: list[int] = []
    while roots:
        i = roots.pop()
        if not seen[i]:
            seen[i] = 1
            if tensors[i].op:
                found.append(i)
            roots += [s for s in sources[i] if s != NONE and not seen[s]]
    return tuple(found)


def _unnamed(kind: str, numbers: Sequence[int], tensors: Sequence[Tensor]) -> list[tuple[int, str]]:
    return [(i, f"{kind}_{k}") for k, i in enumerate(numbers) if not tensors[i].name]
