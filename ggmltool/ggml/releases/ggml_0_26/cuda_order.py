"""What CUDA and ROCm do to a split in ggml 0.26: a shared expert beside the others, tensors kept for fused kernels.

From llama.cpp b11549, src/ggml-cuda/ggml-cuda.cu: ggml_backend_cuda_graph_optimize, ggml_cuda_match_shared_expert,
ggml_cuda_should_fuse_mul_mat. What GGML_CUDA_DISABLE_FUSION switches off `graph_optimize: false` does; the order for
GGML_CUDA_GRAPH_OPT, off by default, is not made.
"""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.ggml.device import Keep, SplitNodes, UseCount
from ggmltool.ggml.devices.operands import word
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import GluOp, Op
from ggmltool.ggml.ops.registry import float_of
from ggmltool.ggml.releases.ggml_0_26.cuda_moe import GATING, end_of_top_k, weighted_reduction
from ggmltool.ggml.releases.ggml_0_26.fusing import can_fuse
from ggmltool.ggml.tensor import Tensor, are_same_shape, is_contiguous, is_matrix

_FUSED_GLU = frozenset((GluOp.SWIGLU, GluOp.GEGLU, GluOp.SWIGLU_OAI, GluOp.SWIGLU_CLAMP))

_BEGIN = frozenset((Op.MUL, Op.MUL_MAT_ID, *GATING))
"""Ops that something begins with: a weighted sum, experts, a choice of experts."""


def graph_optimize(nodes: SplitNodes, use_count: UseCount, keep: Keep) -> list[Tensor]:
    """ggml_backend_cuda_graph_optimize: the nodes of a split in CUDA's order, with what is to be kept until when."""
    if _BEGIN.isdisjoint([n.op for n in nodes]):
        return nodes
    ordered = SplitNodes(nodes, nodes.behind)
    _join_shared_experts(ordered, use_count, keep)
    i = 0
    while i < len(ordered):
        op = ordered[i].op
        if op == Op.MUL:
            reduction = weighted_reduction(ordered, i, use_count)
            if reduction is not None:
                until = ordered[reduction.last]
                for t in reduction.keeps:
                    keep(t, until)
                i = reduction.last
        elif op in GATING:
            end = end_of_top_k(ordered, i, use_count)
            if end is not None:
                _keep_all(ordered, i, end, keep)
                i = end - 1
        i += 1
    return ordered


def _keep_all(nodes: SplitNodes, first: int, end: int, keep: Keep) -> None:
    """The nodes of a choice of experts, and all their sources, until the node behind it."""
    until = nodes.node(end)
    if until is None:
        raise GgmlAssert(
            "ggml_backend_sched_split_graph",
            "n_dep_nodes_added == n_dep_nodes",
            f"CUDA keeps what chooses the experts until the node behind {nodes[-1].label}, which ends the graph: it "
            "takes what lies behind the nodes for one; let a node follow",
        )
    for node in nodes[first:end]:
        keep(node, until)
        for s in node.src:
            if s is not None:
                keep(s, until)


def _join_shared_experts(nodes: list[Tensor], use_count: UseCount, keep: Keep) -> None:
    """The three nodes of a shared expert are put behind those of the experts that are chosen."""
    n = len(nodes)
    i = 0
    while i + 5 < n:
        if nodes[i].op == Op.MUL_MAT_ID and _is_expert(nodes[i : i + 3], Op.MUL_MAT_ID):
            for j in range(i + 3, n - 2):
                if nodes[j].op == nodes[j + 1].op == Op.MUL_MAT_ID:
                    break
                if nodes[j].op != Op.MUL_MAT or not _is_shared_expert_of(nodes[i : i + 3], nodes[j : j + 3], use_count):
                    continue
                nodes[i + 3 : j + 3] = nodes[j : j + 3] + nodes[i + 3 : j]
                up = nodes[i + 2].src[1]
                if up is not None:
                    for t in up.src[1:3]:
                        if t is not None:
                            keep(t, nodes[i + 5])
                i += 5
                break
        i += 1


def _is_expert(nodes: Sequence[Tensor], product: Op) -> bool:
    return nodes[0].op == nodes[1].op == product and nodes[2].op == Op.GLU


def _is_shared_expert_of(chosen: Sequence[Tensor], shared: Sequence[Tensor], use_count: UseCount) -> bool:
    """ggml_cuda_match_shared_expert: nodes of gate, up and GLU of each, whose kernel can do both at once."""
    if not _is_expert(shared, Op.MUL_MAT):
        return False
    if not can_fuse((*chosen, *shared), (chosen[2], shared[2]), use_count):
        return False
    if not (_is_fused_product(chosen) and _is_fused_product(shared)):
        return False
    glu, shared_glu = chosen[2], shared[2]
    if word(glu, 0) != word(shared_glu, 0) or float_of(word(glu, 3)) != float_of(word(shared_glu, 3)):
        return False
    return _read_alike(chosen, shared)


def _is_fused_product(nodes: Sequence[Tensor]) -> bool:
    """ggml_cuda_should_fuse_mul_mat without biases and scales: gate and up of one input, and their GLU."""
    glu = nodes[2]
    gate, up = glu.src[0], glu.src[1] if len(glu.src) > 1 else None
    if gate is None or up is None or {id(gate), id(up)} != {id(nodes[0]), id(nodes[1])}:
        return False
    a, b = up.src[0], gate.src[0]
    if a is None or b is None or a.type is not b.type or not are_same_shape(a, b) or a.nb != b.nb:
        return False
    return up.src[1:] == gate.src[1:] and word(glu, 0) in _FUSED_GLU and not word(glu, 1)


def _read_alike(chosen: Sequence[Tensor], shared: Sequence[Tensor]) -> bool:
    """Whether the shared expert reads the same input, and weights of the same quantized type and shape."""
    up, shared_up, shared_gate = chosen[2].src[1], shared[2].src[1], shared[2].src[0]
    if up is None or shared_up is None or shared_gate is None:
        return False
    weight, x = up.src[:2]
    shared_weight, shared_x = shared_up.src[:2]
    gate_weight = shared_gate.src[0]
    if weight is None or x is None or shared_weight is None or shared_x is None or gate_weight is None:
        return False
    if weight.buffer is None or not weight.type.quantized:
        return False
    if x.op != Op.RESHAPE or x.src[0] is not shared_x or x.ne[1] != 1 or x.ne[3] != 1 or not is_contiguous(x):
        return False
    if not (is_contiguous(shared_x) and is_matrix(shared_x)):
        return False
    if weight.type is not shared_weight.type or weight.ne[:2] != shared_weight.ne[:2] or weight.ne[3] != 1:
        return False
    if weight.nb[1] != shared_weight.nb[1] or not is_matrix(shared_weight):
        return False
    if shared_weight.op != Op.NONE or gate_weight.op != Op.NONE:
        return False
    return all(map(is_contiguous, (shared_weight, gate_weight, chosen[2], shared[2])))
