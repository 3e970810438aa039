"""The order of a graph's leafs when some of its nodes use other leafs than those it was captured with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property

Sources = Mapping[str, Sequence[str | None]]
"""The sources of every node, by id."""


class LeafOrder:
    """How a graph was built: what ggml_build_forward_expand must have been called with, told from what it left.

    ggml visits the sources of a node in their order before the node itself, and keeps nodes and leafs as it meets
    them. The calls are the longest runs of nodes that such visits explain, leafs included; `asked` are nodes that are
    known to have been called for.
    """

    def __init__(
        self, src: Sources, nodes: Sequence[str], leafs: Sequence[str], asked: Collection[str] = frozenset()
    ) -> None:
        self._src = src
        self._nodes = nodes
        self._asked = asked
        self.roots = self._find_roots(leafs)

    def of(self, changed: Sources) -> list[str]:
        """The leafs where the nodes of `changed` have these sources instead."""
        return list(
            dict.fromkeys(
                leaf if node not in changed else changed[node][slot] or leaf for leaf, node, slot in self._meetings
            )
        )

    @cached_property
    def _meetings(self) -> list[tuple[str, str, int]]:
        """Every leaf that the visits meet, in their order, with the node that has it as this source ("": it was asked
        for). Leafs have no sources of their own, so that other leafs change nothing of the order of nodes.
        """
        seen: set[str] = set()
        return [met for root in self.roots for met in _walk(root, self._src, seen) if met[0] not in self._src]

    def _find_roots(self, leafs: Sequence[str]) -> list[str]:
        used = {s for sources in self._src.values() for s in sources if s is not None}
        roots: list[str] = []
        seen: set[str] = set()
        at, at_leaf = 0, 0
        while at < len(self._nodes):
            run = self._longest_run(at, leafs[at_leaf:], seen, used)
            if run is None and at_leaf < len(leafs):
                # No node explains the next leaf: it was asked for itself.
                roots.append(leafs[at_leaf])
                seen.add(leafs[at_leaf])
                at_leaf += 1
                continue
            end, n_leafs, met = run if run is not None else (at + 1, 0, {self._nodes[at]})
            roots.append(self._nodes[end - 1])
            seen |= met
            at, at_leaf = end, at_leaf + n_leafs
        return [*roots, *leafs[at_leaf:]]

    def _longest_run(
        self, at: int, leafs: Sequence[str], seen: set[str], used: set[str]
    ) -> tuple[int, int, set[str]] | None:
        """The longest run of nodes from `at` on that a visit of its last explains: its end, how many of the next
        leafs it brings, all that it meets. None where not even one node is explained.
        """
        nodes = self._nodes
        end = at + 1
        while end < len(nodes) and nodes[end - 1] in used and nodes[end - 1] not in self._asked:
            end += 1
        for last in range(end, at, -1):
            met = _Overlay(seen)
            met_nodes: list[str] = []
            met_leafs: list[str] = []
            for id, _, _ in _walk(nodes[last - 1], self._src, met):
                if id in self._src:
                    met_nodes.append(id)
                    if id != nodes[at + len(met_nodes) - 1]:
                        break
                elif id not in met:
                    met.add(id)
                    met_leafs.append(id)
            else:
                if len(met_nodes) == last - at and met_leafs == list(leafs[: len(met_leafs)]):
                    return last, len(met_leafs), met.new
        return None


class _Overlay:
    """A set with what was added kept apart."""

    def __init__(self, base: set[str]) -> None:
        self._base = base
        self.new: set[str] = set()

    def __contains__(self, id: object) -> bool:
        return id in self._base or id in self.new

    def add(self, id: str) -> None:
        self.new.add(id)


def _walk(root: str, src: Sources, seen: set[str] | _Overlay) -> Iterator[tuple[str, str, int]]:
    """ggml_visit_parents of a root: each node behind its sources, and each leaf whenever it is met, with the node that
    has it as this source ("": it is the root). Nodes are `seen` once.
    """
    if root not in src:
        yield root, "", 0
        return
    if root in seen:
        return
    seen.add(root)
    stack = [(root, iter(enumerate(src[root])))]
    while stack:
        node, rest = stack[-1]
        for slot, s in rest:
            if s is None or s in seen:
                continue
            if s in src:
                seen.add(s)
                stack.append((s, iter(enumerate(src[s]))))
                break
            yield s, node, slot
        else:
            stack.pop()
            yield node, "", 0
