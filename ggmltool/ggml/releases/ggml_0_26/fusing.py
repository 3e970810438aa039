"""Which nodes of ggml 0.26 one kernel may compute: ggml_can_fuse_subgraph_ext."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ggmltool.ggml.buffer import USAGE_WEIGHTS
from ggmltool.ggml.device import Keep, UseCount
from ggmltool.ggml.tensor import FLAG_COMPUTE, FLAG_OUTPUT, FLAG_PARAM, Tensor


def can_fuse(nodes: Sequence[Tensor], outputs: Sequence[Tensor], use_count: UseCount) -> bool:
    """Whether nodes are used by each other only, but for the `outputs` among them.

    All are to be computed, and those between are no views of anything else but weights.
    """
    for i, node in enumerate(nodes):
        if not node.flags & FLAG_COMPUTE:
            return False
        if any(node is t for t in outputs):
            continue
        if node.flags & FLAG_OUTPUT or _uses(node, nodes[i + 1 :]) != use_count(node):
            return False
        if not all(any(root is t for t in nodes) or _is_constant(root) for root in _roots(node)):
            return False
    return True


def keep_until(run: Sequence[Tensor], until: Tensor, keep: Keep) -> None:
    """Keep what the nodes of a run read from outside it until another node has been computed."""
    seen: set[int] = set()
    for node in run:
        for s in node.src:
            if s is not None and id(s) not in seen:
                seen.add(id(s))
                keep(s, until)
        seen.add(id(node))


def _uses(node: Tensor, later: Sequence[Tensor]) -> int:
    return sum(s is node for other in later for s in other.src)


def _roots(t: Tensor) -> Iterator[Tensor]:
    while t.view_src is not None:
        t = t.view_src
        yield t


def _is_constant(t: Tensor) -> bool:
    """ggml_is_constant: weights that nobody trains."""
    return t.buffer is not None and t.buffer.usage == USAGE_WEIGHTS and not t.flags & FLAG_PARAM
