"""Which nodes of a graph names, ids and globs mean."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from ggmltool.scenario.errors import Mistake, nearest, quoted
from ggmltool.sources.values.cut import VIEWS, computed_nodes

ALL = "all"


def chosen_nodes(document: dict[str, Any], graph: str, patterns: Sequence[str]) -> list[str]:
    """The nodes that compute something and that `patterns` mean: ids, names that a program gave, globs, or `all`.

    Raises Mistake for a pattern that means none, with what it may have meant.
    """
    nodes = document["graphs"][graph]["nodes"]
    computed = computed_nodes(document, graph)
    names = {id: (id, nodes[id].get("name", id)) for id in computed}
    found: set[str] = set()
    for pattern in patterns:
        hits = [id for id in computed if pattern == ALL or any(_matches(name, pattern) for name in names[id])]
        if not hits:
            raise Mistake(*_unknown(document, graph, pattern, [n for pair in names.values() for n in pair]))
        found.update(hits)
    return [id for id in computed if id in found]


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _unknown(document: dict[str, Any], graph: str, pattern: str, names: Sequence[str]) -> tuple[str, str]:
    """What is the matter with a pattern, and a hint."""
    node = document["graphs"][graph]["nodes"].get(pattern)
    leafs = {id for context in document["contexts"].values() for id in context["tensors"]}
    if node is not None and node.get("op", "none") in VIEWS:
        behind = node.get("view_src", "")
        return f"{quoted(pattern)} is a view, which computes nothing", f"its values are those of {quoted(behind)}"
    if pattern in leafs:
        return f"{quoted(pattern)} is never computed", "the inputs of the nodes that are named are written, too"
    near = nearest(pattern, names)
    return f"the graph has no node {quoted(pattern)}", f"did you mean {quoted(near)}?" if near else ""
