"""ggmltool's answers beside a judge's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.profile import make_buft, make_device
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.tensor import Tensor
from tests.ggml.devices.judges.asking import GraphAnswer, OpAnswer, Question
from tests.ggml.devices.judges.families import Hardware

_SHOWN = 5


def device_of(hardware: Hardware, release: Release) -> Device:
    """The device of a release with this hardware."""
    profile = profiles_of(release)[hardware.profile].but(has=hardware.features)
    return make_device(profile, "D", make_buft(profile, "D", "D"))


def supports(device: Device, op: Tensor) -> bool | None:
    """Whether a device supports an op; None where ggml ends the program instead."""
    try:
        return device.supports_op(op)
    except GgmlAssert:
        return None


def alloc_size(device: Device, t: Tensor) -> int | None:
    """What a tensor takes in a device's memory; None where ggml ends the program instead."""
    try:
        return device.buft.get_alloc_size(t)
    except GgmlAssert:
        return None


def optimized(device: Device, question: Question) -> GraphAnswer | None:
    """The order of a split, and what is kept; None where ggml ends the program instead."""
    keeps: list[tuple[Tensor, Tensor]] = []
    assert device.graph_optimize is not None
    try:
        order = device.graph_optimize(
            question.nodes, question.use_count, lambda tensor, until: keeps.append((tensor, until))
        )
    except GgmlAssert:
        return None
    return GraphAnswer(list(order), keeps)


class Compared:
    """What a device was asked, and where ggmltool says something else than the judge."""

    def __init__(self, label: str, device: Device) -> None:
        self.label = label
        self.device = device
        self.asked: Counter[str] = Counter()
        self.differences: list[str] = []

    def ops(self, ops: Iterable[Tensor], answers: Iterable[OpAnswer]) -> None:
        """Whether ops run, and the bytes of their results. A size that ggml refuses to tell is nobody's."""
        for op, answer in zip(ops, answers, strict=True):
            self.asked["ops"] += 1
            self.asked["supported"] += answer.supported is True
            said = supports(self.device, op), alloc_size(self.device, op)
            if said[0] != answer.supported or answer.size not in (None, said[1]):
                self.differences.append(f"{_shown(op)}: ggml {tuple(answer)}, ggmltool {said}")

    def splits(self, questions: Iterable[Question], answers: Iterable[GraphAnswer | None]) -> None:
        """The order of splits, and what is kept until when."""
        for question, answer in zip(questions, answers, strict=True):
            said = optimized(self.device, question)
            self.asked["splits"] += 1
            self.asked["reordered"] += answer is not None and answer.order != list(question.nodes)
            self.asked["with tensors kept"] += answer is not None and bool(answer.keeps)
            if said != answer:
                self.differences.append(f"{[_shown(n) for n in question.nodes]}: ggml {answer}, ggmltool {said}")

    def __str__(self) -> str:
        asked = ", ".join(f"{n} {what}" for what, n in self.asked.items())
        lines = [f"{self.label}: {asked}; {len(self.differences)} answers differ"]
        return "\n".join(lines + self.differences[:_SHOWN])


def _shown(t: Tensor) -> str:
    tensors = [(s.type.name, s.ne, s.nb) for s in (t, *t.src) if s is not None]
    return f"{t.label} {Op(t.op).name} {tensors} {t.op_params}"
