"""Which backend could run which node of a graph, and why not: every answer before anything is scheduled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.cases import CaseAnswer
from ggmltool.ggml.devices.recorded import Basis, RecordedDevice
from ggmltool.ggml.op import EMPTY_OPS, KEY_NAMES
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.tensor import Tensor
from ggmltool.inspect.answers import Unreadable, answer
from ggmltool.scenario.run.run import Run
from ggmltool.scenario.spec import BackendSpec

State = Literal["yes", "no", "copy", "offload"]


STATES: tuple[State, ...] = ("yes", "no", "copy", "offload")


class Answered(NamedTuple):
    """What one backend answers: `why_not` for a no, `copies` for sources it cannot read where they lie.

    `lacks`: it has no such op at all, whatever the operands. `measured` is what the answer rests on where it is that of
    a real device, or of one in a process, None elsewhere.
    """

    state: State
    why_not: str | None
    copies: tuple[Unreadable, ...]
    lacks: bool = False
    measured: CaseAnswer | Basis | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A node with the answers of all backends in order; `backend` is the one that gets it, None without a plan."""

    index: int
    id: str
    op: str
    type: str
    ne: tuple[int, ...]
    src: tuple[str, ...]
    backend: str | None
    answers: tuple[Answered, ...]

    @property
    def types(self) -> str:
        """`q4_0, f32 → f32`."""
        return f"{', '.join(self.src)} → {self.type}" if self.src else self.type


def asked(run: Run, graph: str, plan: Plan) -> list[Asked]:
    """Every node of a graph that was just built, with the answers of all backends."""
    planned = {n.id: (n.backend, n.cause) for n in plan.nodes} if plan.ok else {}
    built = run.build(graph)
    return [_asked(run, i, t, *planned.get(t.id, (None, None))) for i, t in enumerate(built.nodes)]


def _measured(spec: BackendSpec, device: Device, t: Tensor) -> CaseAnswer | Basis | None:
    """What the answer rests on where a real device's cases decide, or its answers in a process."""
    supports = spec.supports
    if isinstance(device, RecordedDevice) and t.op not in EMPTY_OPS:
        return device.basis(t)
    if supports is None or supports.cases is None or t.op in EMPTY_OPS:
        return None
    has_rule = any(rule.keys is not None and t.key in rule.keys for rule in supports.rules)
    return None if has_rule else supports.cases.answer(t)


def _asked(run: Run, index: int, t: Tensor, backend: str | None, cause: str | None) -> Asked:

    answers = []
    for spec, b in zip(run.model.backends, run.backends, strict=True):
        a = answer(b.device, t)
        state: State = "no" if not a.runs else "copy" if a.copies else "yes"
        if a.runs and cause == "1.off" and b.name == backend:
            state = "offload"
        answers.append(Answered(state, a.why_not, a.copies, a.lacks, _measured(spec, b.device, t)))
    sources = tuple(s.type.name if s is not None else "–" for s in t.src)
    return Asked(index, t.id, KEY_NAMES[t.key].upper(), t.type.name, t.ne, sources, backend, tuple(answers))
