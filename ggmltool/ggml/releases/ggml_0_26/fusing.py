"""What several devices of ggml 0.26 share: which nodes one kernel may compute (ggml_can_fuse_subgraph_ext), a rule."""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.ggml.buffer import USAGE_WEIGHTS
from ggmltool.ggml.device import Keep, UseCount
from ggmltool.ggml.devices.combinators import holds
from ggmltool.ggml.devices.conditions import word
from ggmltool.ggml.tensor import FLAG_COMPUTE, FLAG_OUTPUT, FLAG_PARAM, Tensor


def can_fuse(nodes: Sequence[Tensor], outputs: Sequence[Tensor], use_count: UseCount) -> bool:
    """Whether nodes are used by each other only, but for the `outputs` among them.

    All are to be computed, and those between are no views of anything else but weights.
    """
    for i, node in enumerate(nodes):
        if not node.flags & FLAG_COMPUTE:
            return False
        if node in outputs:
            continue
        uses = sum([other.src.count(node) for other in nodes[i + 1 :]])
        if node.flags & FLAG_OUTPUT or uses != use_count(node):
            return False
        root = node.view_src
        while root is not None:
            # ggml_is_constant: weights that nobody trains.
            weights = root.buffer is not None and root.buffer.usage == USAGE_WEIGHTS and not root.flags & FLAG_PARAM
            if root not in nodes and not weights:
                return False
            root = root.view_src
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


_PREC_F32 = 10

NO_F32_PRECISION = holds(
    "ggml_prec_set_src asks for f32 precision, which it does not have for experts", lambda op: word(op, 3) != _PREC_F32
)
"""MUL_MAT_ID, whose source 1 may be rounded."""
