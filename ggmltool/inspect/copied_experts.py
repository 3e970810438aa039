"""Experts that a split copies: ggml brings only those that the batch uses, which the plan alone cannot tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.plan import NodePlan, Plan
from ggmltool.ggml.sched.copy_callback import USED_EXPERTS
from ggmltool.ggml.sched.used_experts import EXPERT_TAIL
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.scenario.tensor_info import TensorInfo, Tensors


class ExpertCopy(NamedTuple):
    """A weight of `n_expert` experts, of which a split copies at least `least` and at most `most`.

    `nbytes` is the whole weight's; `nbytes_least` and `nbytes_most` are what is copied of it. ggml copies a little of
    the expert behind each run of used ones, so that what a kernel reads beyond the run is no NaN.
    """

    split: int
    tensor: str
    n_expert: int
    least: int
    most: int
    nbytes: int
    nbytes_least: int
    nbytes_most: int


def expert_copies(
    model: ScenarioSpec, plan: Plan, tensors: Tensors, bufts: Mapping[str, BufferType]
) -> list[ExpertCopy]:
    """One for every weight that is copied expert by expert, by the scheduler or by llama.cpp's callback.

    That is source 0 of a MUL_MAT_ID at the head of a split, where it lies in host memory for weights; else, in releases
    before August 2025 and in 0.26 without the callback, it is copied whole.
    """
    if not model.release.rules.copies_used_experts and model.scheduler.copy_callback != USED_EXPERTS:
        return []
    leafs = {leaf.id: leaf for leaf in plan.leafs}
    original = {copy.name: copy.of for copy in plan.copies}
    out = []
    for split in plan.splits:
        node = plan.nodes[split.i_start] if split.i_start < split.i_end else None
        if node is None or node.op != "MUL_MAT_ID" or len(node.src) < 3:
            continue
        weight = original.get(node.src[0] or "")
        leaf, info = leafs.get(weight or ""), tensors.get(weight or "")
        if leaf is None or info is None or weight not in split.inputs:
            continue
        buft = bufts.get(leaf.buffer or "")
        if leaf.usage == "weights" and buft is not None and buft.host:
            out.append(_copy(split.id, info, _chosen(node, tensors, original)))
    return out


def _chosen(node: NodePlan, tensors: Tensors, original: dict[str, str]) -> tuple[int, int]:
    """Experts for each token, and tokens: ne of the chosen ids."""
    name = node.src[2] or ""
    ids = tensors.get(original.get(name, name))
    return (ids.ne[0], ids.ne[1]) if ids is not None else (node.ne[1], node.ne[2])


def _copy(split: int, info: TensorInfo, chosen: tuple[int, int]) -> ExpertCopy:
    n_expert = info.ne[2]
    per_token, tokens = chosen
    least, most = min(per_token, n_expert), min(per_token * tokens, n_expert)
    expert = info.nbytes // max(n_expert, 1)
    nbytes_most = min(info.nbytes, most * (expert + min(expert, EXPERT_TAIL)))
    return ExpertCopy(split, info.id, n_expert, least, most, info.nbytes, least * expert, nbytes_most)
