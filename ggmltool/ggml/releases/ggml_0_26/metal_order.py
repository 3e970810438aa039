"""The order in which Metal of ggml 0.26 runs a split, and what has to stay in memory meanwhile.

From llama.cpp b11549, ggml/src/ggml-metal: ggml_backend_metal_graph_optimize (ggml-metal.cpp), ggml_graph_optimize
(ggml-metal-common.cpp).
"""

from __future__ import annotations

from ggmltool.ggml.device import Keep, UseCount
from ggmltool.ggml.devices.metal_order import Group, memory_of, reorder
from ggmltool.ggml.releases.ggml_0_26.metal_fusion import Fusing, keep_sources
from ggmltool.ggml.tensor import Tensor


def graph_optimize(nodes: list[Tensor], use_count: UseCount, keep: Keep) -> list[Tensor]:
    """ggml_backend_metal_graph_optimize: nodes that one kernel may compute stay together, views between them too.

    What stands in a row as in a pattern of the kernels keeps its sources until the end of it, as the nodes stood.
    """
    keep_sources(nodes, keep)
    fusing = Fusing(nodes, use_count)
    groups = []
    i = 0
    while i < len(nodes):
        n = fusing.length(i)
        groups.append(_group(nodes[i : i + n]))
        i += n
    return reorder(groups)


def _group(members: list[Tensor]) -> Group:
    """Reads what is not of its own, writes the results of all its nodes."""
    own = set(map(id, members))
    reads = [memory_of(s) for node in members for s in node.src if s is not None and id(s) not in own]
    return Group(members, reads, [memory_of(node) for node in members])
