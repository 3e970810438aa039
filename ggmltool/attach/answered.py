"""What a program's devices answered, as recorded devices have it: the questions in a scenario's words."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ggmltool.attach.state import Answers, Snapshot, TensorState
from ggmltool.ggml.buffer import USAGE_ANY
from ggmltool.ggml.devices.questions import Lies, Operand, Question, trimmed, without_memory
from ggmltool.ggml.devices.recorded import Answer, Recorded
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import EMPTY_OPS, FIRST_GLU_KEY, FIRST_UNARY_KEY, keys_of


@dataclass(frozen=True, slots=True)
class Asked:
    """Tensors of a snapshot as questions.

    `bufts` are what the scenario calls buffer types, by address. What lies in one of the buffers `given` has no memory:
    the scheduler gave it to a graph, which it had not yet when it asked; nor had it made the copies, of which
    `originals` has the tensors.
    """

    snapshot: Snapshot
    bufts: Mapping[int, str]
    given: Collection[int] = field(default=frozenset())
    originals: Mapping[int, int] = field(default_factory=dict)

    def question(self, t: TensorState) -> Question | None:
        """What a device was asked about a tensor; None for an op or a type that ggmltool does not know."""
        key = self._key(t)
        result = self._operand(t)
        if key is None or result is None:
            return None
        sources = []
        for address in trimmed(t.src):
            s = self.snapshot.tensors.get(self.originals.get(address, address))
            operand = None if s is None else self._operand(s)
            if address and operand is None:
                return None
            sources.append(operand)
        return Question(key, _params(key, t), result, tuple(sources))

    def _key(self, t: TensorState) -> int | None:
        name = self.snapshot.op_names.get((t.op, t.op_params[0] if t.op_params else 0), "")
        try:
            return keys_of(name.lower())[0]
        except KeyError:
            return None

    def _operand(self, t: TensorState) -> Operand | None:
        type = self.snapshot.type_names.get(t.type, "")
        if type not in TYPES:
            return None
        root = self.snapshot.tensors.get(t.view_src) if t.view_src else None
        lies = self._lies(t, True) or (None if root is None else self._lies(root, False))
        return Operand(type, t.ne, t.nb, bool(t.view_src), lies)

    def _lies(self, t: TensorState, own: bool) -> Lies | None:
        buffer = None if t.buffer in self.given else self.snapshot.buffers.get(t.buffer)
        if buffer is None or buffer.buft not in self.bufts:
            return None
        return Lies(self.bufts[buffer.buft], buffer.usage if buffer.usage_name is not None else USAGE_ANY, own)


def recorded(asked: Asked, answers: Answers) -> list[Recorded]:
    """The answers of each backend, in order, with the sizes in the buffer types of its device.

    A buffer type whose device is none of a backend's goes with the last backend.
    """
    snapshot = asked.snapshot
    questions = {a: q for a, t in snapshot.tensors.items() if (q := asked.question(t)) is not None}
    sizes = _sizes(asked, questions, answers)
    owners = [backend.device for backend in snapshot.backends]
    out = []
    for b, backend in enumerate(snapshot.backends):
        ops = {
            questions[t]: Answer(says, answers.offloads.get((t, b), False))
            for (t, i), says in answers.supports.items()
            if i == b and t in questions
        }
        first = owners.index(backend.device) == b
        last = b == len(owners) - 1
        own = {
            asked.bufts[at]: sizes[at]
            for at, buft in snapshot.bufts.items()
            if at in sizes and ((first and buft.device == backend.device) or (last and buft.device not in owners))
        }
        out.append(Recorded(ops, own))
    return out


def _sizes(asked: Asked, questions: Mapping[int, Question], answers: Answers) -> dict[int, dict[Question, int]]:
    out: dict[int, dict[Question, int]] = {}
    for (t, buft), size in answers.sizes.items():
        if t in questions and buft in asked.bufts:
            out.setdefault(buft, {})[without_memory(questions[t])] = size
    return out


def _params(key: int, t: TensorState) -> tuple[int, ...]:
    """The words of the parameters; the number of a function of UNARY and GLU is ours."""
    if key in EMPTY_OPS:
        return ()
    if key >= FIRST_UNARY_KEY:
        function = key - (FIRST_GLU_KEY if key >= FIRST_GLU_KEY else FIRST_UNARY_KEY)
        return trimmed((function, *t.op_params[1:]))
    return trimmed(t.op_params)
