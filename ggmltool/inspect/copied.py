"""What every split copies before it runs: each input with its bytes, and where from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ggmltool.ggml.plan import Plan
from ggmltool.inspect.opened import Moment, Opened, WhatIf
from ggmltool.inspect.watched import watch
from ggmltool.scenario.tensor_info import TensorInfo, Tensors
from ggmltool.scenario.versions import has_no_op_offload
from ggmltool.show.text import size_between


class CopiedInput(NamedTuple):
    """A tensor that a split copies. `what` is weight, input, node or, where only its name is known, view.

    `nbytes` is ggml_nbytes; in a log it can be `slack` bytes more.
    """

    split: int
    tensor: str
    what: str
    src: str
    dst: str
    nbytes: int
    shape: str
    slack: int = 0


def copied_inputs(plan: Plan, tensors: Tensors) -> list[CopiedInput]:
    """One for every input of every split, in order."""
    home = {n.id: n.backend for n in plan.nodes} | {leaf.id: leaf.backend for leaf in plan.leafs}
    usage = {leaf.id: leaf.usage for leaf in plan.leafs}
    out = []
    for split in plan.splits:
        for i in split.inputs:
            info = tensors.get(i)
            what = "node" if i not in usage else "weight" if usage[i] == "weights" else "input"
            if what == "input" and info is not None and not info.type and info.view_src is not None:
                what = "view"  # a log does not have the nodes that are views
            shape, nbytes, slack = (info.shape, info.nbytes, info.slack) if info is not None else ("", 0, 0)
            out.append(CopiedInput(split.id, i, what, home.get(i) or "?", split.backend, nbytes, shape, slack))
    return out


class OtherPlan(NamedTuple):
    """The same graph planned with op offload the other way round."""

    op_offload: bool
    inputs: int
    nbytes: int


def other_offload(opened: Opened, plan: Plan, moment: Moment) -> OtherPlan | None:
    """What would be copied with op offload the other way round, where that makes a difference to `plan`."""
    model = opened.model
    if has_no_op_offload(model.release):
        return None
    offload = not model.scheduler.op_offload
    watched = watch(opened.what_if(WhatIf(op_offload=offload)), moment)
    other = watched.plan
    if not (plan.ok and other.ok) or other.splits == plan.splits:
        return None
    inputs = copied_inputs(other, opened.tensors(watched.graph))
    return OtherPlan(offload, len(inputs), sum(i.nbytes for i in inputs))


def bytes_of(infos: Iterable[TensorInfo]) -> str:
    """The total size of some tensors as text: a size, or the two sizes it lies between."""
    low = high = 0
    for info in infos:
        low += info.nbytes
        high += info.nbytes + info.slack
    return size_between(low, high)
