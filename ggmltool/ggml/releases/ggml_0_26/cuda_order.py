"""What CUDA and ROCm do to a split in ggml 0.26: a shared expert beside the others, tensors kept for fused kernels.

From llama.cpp b11549, src/ggml-cuda/ggml-cuda.cu: ggml_backend_cuda_graph_optimize, ggml_cuda_match_shared_expert,
ggml_cuda_should_fuse_mul_mat. What GGML_CUDA_DISABLE_FUSION switches off `graph_optimize: false` does; the order for
GGML_CUDA_GRAPH_OPT, off by default, is not made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ggmltool.ggml.device import Keep, SplitNodes, UseCount
from ggmltool.ggml.devices.conditions import word
from ggmltool.ggml.devices.op_rules import ZERO
from ggmltool.ggml.dtypes import F32
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import GluOp, Op, UnaryOp
from ggmltool.ggml.ops.registry import float_bits, float_of
from ggmltool.ggml.releases.ggml_0_26.fusing import can_fuse
from ggmltool.ggml.tensor import Tensor, are_same_shape, is_contiguous, is_matrix

_MOST_SUMMED = 15
"""Experts a token in a weighted sum (MOE_WEIGHTED_REDUCTION_MAX_EXPERTS)."""

GATING = frozenset((Op.UNARY, Op.SOFT_MAX))
"""Ops that a choice of experts begins with."""

_MOST_CHOSEN_FROM = 512
_FURTHER_NUMBERS_OF_EXPERTS = (288, 576)
_ONE = float_bits(1.0)


def end_of_top_k(nodes: SplitNodes, i: int, use_count: UseCount) -> int | None:
    """Where the choice of experts that begins at node `i` ends, if its kernel computes it; else None.

    It is a gating function, the largest of its values (of what a bias makes of them), and their normed and scaled
    weights.
    """
    if nodes[i].op not in GATING:
        return None
    chosen = _choice(nodes, i)
    end = None if chosen is None else _end_of_weights(nodes, chosen + 2)
    if chosen is None or end is None or end > len(nodes):
        return None
    ids, weights = nodes[chosen], nodes[end - 1]
    fits = can_fuse(nodes[i:end], (ids, weights), use_count) and _has_kernel(nodes[i], weights, ids)
    return end if fits else None


def _choice(nodes: SplitNodes, i: int) -> int | None:
    """Where the view of the chosen experts is, if a choice begins at node `i`; the rows of weights follow it."""
    n, node, last = len(nodes), nodes[i], i
    if node.op != Op.SOFT_MAX and word(node, 0) != UnaryOp.SIGMOID:
        last = i + 1
        if word(node, 0) != UnaryOp.SOFTPLUS or last == n or not _is(nodes[last], Op.SQRT, node):
            return None
    if last + 2 >= n:
        return None
    probs, shaped = nodes[last], nodes[last + 1]
    if not _is(shaped, Op.RESHAPE, probs):
        return None
    k = last + 2
    compared = probs
    if _is(nodes[k], Op.ADD, probs):
        compared = nodes[k]
        k += 1
    if k + 2 >= n:
        return None
    order, ids, rows = nodes[k : k + 3]
    if not (_is(order, Op.ARGSORT, compared) and _is(ids, Op.VIEW, order) and _is(rows, Op.GET_ROWS, shaped, ids)):
        return None
    return k + 1


def _end_of_weights(nodes: SplitNodes, end: int) -> int:
    """Where the norm and the scale of weights end whose rows end there."""
    if end == len(nodes):
        return end
    k = end
    if nodes[k].op == Op.RESHAPE:
        shaped, total, least, normed, reshaped = (nodes.node(k + j) for j in range(5))
        if not (
            _is(shaped, Op.RESHAPE, nodes[k - 1]) and _is(total, Op.SUM_ROWS, shaped) and _is(least, Op.CLAMP, total)
        ):
            return end
        if not (_is(normed, Op.DIV, shaped, least) and _is(reshaped, Op.RESHAPE, normed)):
            return end
        k += 5
    return k + 1 if _is(nodes.node(k), Op.SCALE, nodes.node(k - 1)) else k


def _is(node: Tensor | None, op: Op, *of: Tensor | None) -> bool:
    """Whether a node is of this op, and of these sources."""
    return node is not None and node.op == op and node.src[: len(of)] == list(of)


def _has_kernel(gating: Tensor, weights: Tensor, ids: Tensor) -> bool:
    """ggml_cuda_should_use_topk_moe."""
    n = ids.nb[1] // ids.nb[0]
    if (n & (n - 1) != 0 or n > _MOST_CHOSEN_FROM) and n not in _FURTHER_NUMBERS_OF_EXPERTS:
        return False
    logits = gating.src[0]
    if logits is None or not is_contiguous(logits) or not is_contiguous(weights):
        return False
    if gating.op != Op.SOFT_MAX:
        return True
    return word(gating, 0) == _ONE and word(gating, 1) in ZERO and not any(gating.src[1:3])


class Reduction(NamedTuple):
    """A weighted sum of experts' results, up to node `last`, and what its kernel reads."""

    last: int
    keeps: tuple[Tensor, ...]


def weighted_reduction(nodes: Sequence[Tensor], i: int, use_count: UseCount) -> Reduction | None:
    """ggml_cuda_match_moe_weighted_reduction: the sum of experts' results that begins at node `i`, if one does."""
    first = nodes[i]
    if not _is_product(first):
        return None
    # (experts * scale) * weights, of two products that follow each other: experts, weights, scale.
    parts: tuple[Tensor, ...] | None = _full_and_weights(first)
    after = nodes[i + 1] if i + 1 < len(nodes) else first
    outer = _full_and_weights(after) if after is not first and _is_product(after) else None
    if parts is not None and outer is not None and outer[0] is first:
        parts = parts[0], outer[1], parts[1]
    if parts is None:
        return None
    n_products = len(parts) - 1
    weighted = nodes[i + n_products - 1]
    n_experts = weighted.ne[1]
    end = i + 2 * n_experts + n_products - 1
    if not 2 <= n_experts <= _MOST_SUMMED or end > len(nodes):
        return None
    last = nodes[end - 1]
    fits = _sums(nodes[i + n_products : end], weighted) and is_contiguous(last)
    fits = fits and last.ne == (*_summed_ne(weighted), 1, 1) and can_fuse(nodes[i:end], (last,), use_count)
    return Reduction(end - 1, parts) if fits else None


def _is_product(t: Tensor) -> bool:
    return t.op == Op.MUL and t.type is F32 and is_contiguous(t)


def _full_and_weights(product: Tensor) -> tuple[Tensor, Tensor] | None:
    """The factor of a product that is as large as it is, and the other one, a weight for each expert and token."""
    a, b = product.src[:2]
    if a is None or b is None:
        return None
    for full, weights in ((a, b), (b, a)):
        if weights.ne[0] == 1 and are_same_shape(full, product) and weights.ne[1:] == product.ne[1:]:
            return (full, weights) if all(t.type is F32 and is_contiguous(t) for t in (a, b)) else None
    return None


def _summed_ne(weighted: Tensor) -> tuple[int, int]:
    return weighted.ne[0], weighted.ne[2] * weighted.ne[3]


def _sums(nodes: Sequence[Tensor], weighted: Tensor) -> bool:
    """Whether these are views of one expert after the other, and their sum, each added when there are two to add."""
    views: list[Tensor] = []
    total: Tensor | None = None
    adds = 0
    for node in nodes:
        if node.op == Op.VIEW:
            if len(views) == weighted.ne[1] or not _is_view_of_expert(node, weighted, len(views)):
                return False
            views.append(node)
        elif node.op == Op.ADD and adds + 1 < len(views):
            if not _is(node, Op.ADD, total if total is not None else views[0], views[adds + 1]) or node.type is not F32:
                return False
            total = node
            adds += 1
        else:
            return False
    return len(views) == weighted.ne[1] and adds == len(views) - 1


def _is_view_of_expert(view: Tensor, weighted: Tensor, expert: int) -> bool:
    if view.src[0] is not weighted or view.view_src is not weighted or view.type is not F32:
        return False
    if view.ne != (*_summed_ne(weighted), 1, 1) or view.nb[:2] != (weighted.nb[0], weighted.nb[2]):
        return False
    return view.view_offs == expert * weighted.nb[1]


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
