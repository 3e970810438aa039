"""A device that answers as it did in a process: its answers are data, question by question.

What was not asked is answered by the rules of a profile that the device is like; if there is none, by the nearest
answers: of the same op with the same types and shapes, else the same types, else the same op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from math import log
from typing import NamedTuple

from ggmltool.ggml.buffer import AllocSize, BufferType
from ggmltool.ggml.device import NOT_IN_TABLE, Device, Keep, Refusal, SplitNodes, UseCount
from ggmltool.ggml.devices.questions import OpQuestion, question, size_question, without_memory
from ggmltool.ggml.op import EMPTY_OPS, KEY_NAMES, Op
from ggmltool.ggml.tensor import Tensor

RECORDED = "recorded"
"""The profile of a device that answers as recorded."""

SIZES_SAID = "what the device said in the process"
"""How many bytes a tensor takes, in words."""

REFUSED = "the device said no when it was asked in the process"


class Heard(StrEnum):
    """What an answer of a recorded device rests on."""

    ASKED = "asked"
    LIKE = "like"
    SHAPES = "shapes"
    TYPES = "types"
    OP = "op"
    NEVER = "never"


class RecordedAnswer(NamedTuple):
    """What a device said of an op: whether it supports it, whether it asks for it when its weights lie elsewhere."""

    supports: bool
    offloads: bool


class Order(NamedTuple):
    """What a device's graph_optimize made of a split: its `nodes` in their new order, and by node the tensors `kept`
    until it has been computed. They go by ids, copies by their names."""

    nodes: tuple[str, ...]
    kept: tuple[tuple[str, tuple[str, ...]], ...] = ()


class AnswerBasis(NamedTuple):
    """What the answer to an op rests on: `yes` of `of` answers say that it is supported."""

    basis: Heard
    yes: int
    of: int


@dataclass(frozen=True)
class RecordedAnswers:
    """What a device was asked: of ops, and of the bytes that tensors take in its buffer types, by their names; and the
    `orders` in which it left the splits that it was given."""

    ops: Mapping[OpQuestion, RecordedAnswer] = field(default_factory=dict, hash=False)
    sizes: Mapping[str, Mapping[OpQuestion, int]] = field(default_factory=dict, hash=False)
    orders: Sequence[Order] = ()

    @cached_property
    def by_split(self) -> Mapping[frozenset[str], Order]:
        """The orders by the nodes of the split."""
        return {frozenset(order.nodes): order for order in self.orders}

    @cached_property
    def by_op(self) -> Mapping[int, Sequence[tuple[OpQuestion, RecordedAnswer]]]:
        """The answers by op key."""
        out: dict[int, list[tuple[OpQuestion, RecordedAnswer]]] = {}
        for asked, answer in self.ops.items():
            out.setdefault(asked.key, []).append((asked, answer))
        return out

    def nearest(self, asked: OpQuestion) -> tuple[Heard, list[RecordedAnswer]]:
        """The answers to what is most like a question that was not asked."""
        of_op = self.by_op.get(asked.key, ())
        bare = without_memory(asked)
        same = [a for q, a in of_op if without_memory(q) == bare]
        if same:
            return Heard.SHAPES, same
        types = _types(asked)
        alike = [(q, a) for q, a in of_op if _types(q) == types]
        heard = Heard.TYPES if alike else Heard.OP if of_op else Heard.NEVER
        among = alike or of_op
        least = min((_distance(q, asked) for q, _ in among), default=0.0)
        return heard, [a for q, a in among if _distance(q, asked) <= least]


def _types(asked: OpQuestion) -> tuple[str | None, ...]:
    return (asked.result.type, *(None if s is None else s.type for s in asked.src))


def _distance(a: OpQuestion, b: OpQuestion) -> float:
    """How far the extents are from each other, as factors."""
    pairs = zip((a.result, *a.src), (b.result, *b.src), strict=False)
    extents = (zip(x.ne, y.ne, strict=True) for x, y in pairs if x is not None and y is not None)
    return sum(abs(log(max(n, 1) / max(m, 1))) for both in extents for n, m in both)


class RecordedDevice(Device):
    """A device with answers of a process: `base` with its own answers before its rules. `like` is who answers what was
    not asked, by the rules of a `family`; without one (None) the nearest answers do. A split that it was given in the
    process it orders as it did there, unless it `orders` none, others as `base` does."""

    __slots__ = ("_nearest", "_order", "family", "like", "recorded")

    def __init__(self, base: Device, recorded: RecordedAnswers, family: str | None, orders: bool = True) -> None:
        for name in Device.__slots__:
            setattr(self, name, getattr(base, name))
        self.recorded = recorded
        self.like = None if family is None else base
        self.family = family
        self.looks_at_memory = True
        self.unsupported = None
        self._nearest: dict[OpQuestion, tuple[Heard, list[RecordedAnswer]]] = {}
        self._order = base.graph_optimize
        if recorded.orders and orders:
            self.graph_optimize = self._ordered

    @property
    def takes_any_data(self) -> bool:
        """Whether `supports_op` says yes to every tensor that no op computes."""
        refuses = any(not answer.supports for _, answer in self.recorded.by_op.get(Op.NONE, ()))
        return not refuses and (self.like is None or self.like.takes_any_data)

    def supports_op(self, op: Tensor) -> bool:
        """ggml_backend_dev_supports_op."""
        answer = self.recorded.ops.get(question(op))
        return self._refusal(op) is None if answer is None else answer.supports

    def refusal(self, op: Tensor) -> Refusal | None:
        """What `why_not` says, and whether the device lacks the op altogether."""
        if self.like is None or self.recorded.ops.get(question(op)) is not None:
            return super().refusal(op)
        refused = self.like.refusal(op)
        if refused is None or refused.lacks:
            return refused
        return Refusal(f"not asked in the process; by the rules of {self.family}: {refused.text}", False)

    def _ordered(self, nodes: SplitNodes, use_count: UseCount, keep: Keep) -> list[Tensor]:
        """ggml_backend_graph_optimize, as it was in the process."""
        by_id = {n.id: n for n in nodes}
        order = self.recorded.by_split.get(frozenset(by_id))
        if order is None:
            return nodes if self._order is None else self._order(nodes, use_count, keep)
        known = {s.label: s for n in nodes for s in n.src if s is not None} | by_id
        for until, tensors in order.kept:
            for tensor in tensors:
                if tensor in known:
                    keep(known[tensor], by_id[until])
        return [by_id[id] for id in order.nodes]

    def basis(self, op: Tensor) -> AnswerBasis:
        """What the answer to an op rests on."""
        asked = question(op)
        answer = self.recorded.ops.get(asked)
        if answer is not None:
            return AnswerBasis(Heard.ASKED, int(answer.supports), 1)
        if self.like is not None or op.op in EMPTY_OPS:
            return AnswerBasis(Heard.LIKE, 0, 0)
        heard, answers = self._answers(asked)
        return AnswerBasis(heard, sum(a.supports for a in answers), len(answers))

    def offload_op(self, op: Tensor) -> bool:
        """ggml_backend_dev_offload_op."""
        asked = question(op)
        answer = self.recorded.ops.get(asked)
        if answer is not None:
            return answer.offloads
        if self.like is not None:
            return self.like.offload_op(op)
        _, answers = self._answers(asked)
        return 2 * sum(a.offloads for a in answers) > len(answers)

    def offloads_from(self, op: Tensor) -> int | None:
        """The batch size from which the device offloads such an op, as far as its answer says; None: it does not."""
        least, batch = self.offload_min_batch, self.batch_size(op)
        if self.offload_op(op):
            return batch if least is None else min(least, batch)
        return None if least is None or batch >= least else least

    def _refusal(self, op: Tensor) -> str | None:
        asked = question(op)
        answer = self.recorded.ops.get(asked)
        if answer is not None:
            return None if answer.supports else REFUSED
        if self.like is not None:
            return self.like._refusal(op)
        if op.op in EMPTY_OPS:
            return None
        heard, answers = self._answers(asked)
        if heard is Heard.NEVER:
            return None if self.type == "cpu" else NOT_IN_TABLE
        if 2 * sum(a.supports for a in answers) > len(answers):
            return None
        return f"not asked in the process; the nearest answers to {KEY_NAMES[asked.key].upper()} are no"

    def _answers(self, asked: OpQuestion) -> tuple[Heard, list[RecordedAnswer]]:
        if asked not in self._nearest:
            self._nearest[asked] = self.recorded.nearest(asked)
        return self._nearest[asked]


def recorded_sizes(sizes: Mapping[OpQuestion, int], buft: BufferType) -> AllocSize:
    """get_alloc_size of a buffer type: as recorded, else by the rule that it has."""
    rule: Callable[[Tensor], int] = buft.alloc_size or buft.padded_size

    def size(t: Tensor) -> int:
        said = sizes.get(size_question(t))
        return rule(t) if said is None else said

    return size
