"""Which steps used memory that ggml had freed, and which step freed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ggmltool.ggml.sched.freed import freed_buffer

if TYPE_CHECKING:
    from ggmltool.ggml.buffer import Outgrown
    from ggmltool.ggml.tensor import Tensor
    from ggmltool.scenario.run.run import Run
    from ggmltool.scenario.spec import ScenarioSpec


class FreedBy(Struct, frozen=True):
    """A compute buffer of type `buft` grew from `old_size` to `new_size` bytes in `step` (0: before the first), which
    `did` says in a scenario's words; that freed the buffer it was before.
    """

    step: int
    did: str
    buft: str
    old_size: int
    new_size: int

    @classmethod
    def of(cls, freed: Outgrown, model: ScenarioSpec) -> FreedBy:
        """Why a buffer was freed, in a run of the model's own steps."""
        return cls(freed.step, _step(model, freed.step), freed.buft, freed.size, freed.new_size)


class FreedMemoryUse(Struct, frozen=True):
    """`step` used `tensors` that lie in freed memory; `results` are the tensors that it computed from them, or read."""

    step: int
    did: str
    tensors: tuple[str, ...]
    results: tuple[str, ...]
    freed: FreedBy


def uses_after_free(run: Run) -> list[FreedMemoryUse]:
    """What the steps of a run have used after it was freed, in order."""
    model = run.model
    uses = run.freed.uses if run.addresses.has_freed else ()
    return [
        FreedMemoryUse(u.step, _step(model, u.step), u.tensors, u.results, FreedBy.of(u.freed, model)) for u in uses
    ]


def freed_memory_of(t: Tensor, model: ScenarioSpec) -> FreedBy | None:
    """Why the memory of a tensor was freed, in a run of the model's own steps; None if it was not."""
    freed = freed_buffer(t)
    return None if freed is None else FreedBy.of(freed, model)


def _step(model: ScenarioSpec, number: int) -> str:
    return str(model.steps[number - 1]) if 0 < number <= len(model.steps) else ""
