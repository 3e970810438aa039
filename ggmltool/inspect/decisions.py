"""What the scheduler announced while it split a graph: of each tensor, of each split, of each copied input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ggmltool.ggml.events import (
    SPLIT_GRAPH,
    Assigned,
    Entered,
    Event,
    InputAdded,
    Left,
    PassedOver,
    Refused,
    Said,
    SplitStarted,
)
from ggmltool.ggml.tensor import op_desc
from ggmltool.inspect.part import Part
from ggmltool.inspect.reasons import Reason, reason_of

if TYPE_CHECKING:
    from ggmltool.ggml.graph import CGraph
    from ggmltool.ggml.sched.common import AnyScheduler

_CHAIN = 4
"""Decisions that are followed back: the node's own, then those of the tensors that settled it."""


class Decisions(Part):
    """The decisions for the graph that was split last.

    `said` is all that was said of each tensor, `settled` what gave it its backend; `started` is where splits begin,
    `inputs` what they copy. `order` are the ids of the nodes before devices put them into an order of their own.
    """

    hears = frozenset({Entered, Left, Assigned, PassedOver, Refused, SplitStarted, InputAdded})
    looks_at_passes = True

    def __init__(self) -> None:
        self.said: dict[str, list[Said]] = {}
        self.settled: dict[str, Assigned] = {}
        self.started: list[SplitStarted] = []
        self.inputs: list[InputAdded] = []
        self.order: list[str] = []
        self._is_over = False

    def hear(self, event: Event) -> None:
        match event:
            case Assigned() | PassedOver() | Refused():
                self._hear_of_a_tensor(event)
            case SplitStarted():
                self.started.append(event)
            case InputAdded():
                self.inputs.append(event)
            case Entered(function) if function in SPLIT_GRAPH:
                self.started, self.inputs = [], []
            case Left(function) if function in SPLIT_GRAPH:
                self._is_over = True
            case _:
                pass

    def _hear_of_a_tensor(self, event: Said) -> None:
        """What the program says of its tensors comes before the graph is split, and belongs to it."""
        if self._is_over:
            self.said, self.settled, self._is_over = {}, {}, False
        if isinstance(event, Assigned):
            self.settled[event.tensor] = event
        self.said.setdefault(event.tensor, []).append(event)

    def after_pass(self, number: int, sched: AnyScheduler) -> None:
        if number == len(sched.passes) - 1:
            self.order = [n.id for n in sched.seen_graphs[-1].nodes]

    def reason(self, tensor: str, built: CGraph, backends: Sequence[str]) -> Reason:
        """Why a tensor of the graph is where it is."""
        op = next((op_desc(t) for t in built.nodes if t.id == tensor), "")
        return reason_of(tensor, op, self.said.get(tensor, ()), backends)

    def deciders(self, tensor: str) -> list[str]:
        """The tensor that settled this one, the one that settled that one, and so on."""
        out: list[str] = []
        at = tensor
        while len(out) < _CHAIN:
            event = self.settled.get(at)
            if event is None or not event.by or event.by in (tensor, at, *out):
                break
            at = event.by
            out.append(at)
        return out
