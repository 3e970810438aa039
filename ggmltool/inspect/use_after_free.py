"""Which steps used memory that ggml had freed, which step freed it and why, and how to avoid it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from ggmltool.ggml.sched.unchecked import REMEDY, freed_buffer
from ggmltool.show.table import Style, render_lines
from ggmltool.show.text import shortened, size, wrapped

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


_NAMES_SHOWN = 6


def freed_by(freed: FreedBy) -> str:
    """Which step freed the memory, and why: `freed in step 3, alloc v_g, when …`."""
    step = f"step {freed.step}, {freed.did}," if freed.did else "an earlier step"
    return (
        f"freed in {step} when the {freed.buft} compute buffer {grew(freed.old_size, freed.new_size)} from "
        f"{size(freed.old_size)} to {size(freed.new_size)}"
    )


def grew(old_size: int, new_size: int) -> str:
    """What became of a buffer: of one with several chunks one may grow while all together become smaller."""
    return "grew" if new_size > old_size else "got a larger chunk and went"


def use_after_free(use: FreedMemoryUse) -> str:
    """One use in a sentence or two."""
    step = f"Step {use.step}, {use.did}, " if use.did else "This "
    if use.tensors:
        text = f"{step}uses freed memory: {shortened(use.tensors, _NAMES_SHOWN)} ({freed_by(use.freed)})."
    else:
        text = f"{step}reads what was computed from freed memory ({freed_by(use.freed)})."
    return text + (f" No result: {shortened(use.results, _NAMES_SHOWN)}." if use.results else "")


def uses_view(uses: Sequence[FreedMemoryUse], style: Style) -> str:
    """All uses of a run and the remedy; "" if there are none."""
    if not uses:
        return ""
    texts = [use_after_free(use) for use in uses] + [f"ggml does not check this. To avoid it, {REMEDY}."]
    lines = ["Use after free", *(line for text in texts for line in wrapped(text, style.width))]
    return render_lines(lines, style)
