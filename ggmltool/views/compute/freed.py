"""Use after free: which step used freed memory, which step freed it and why, and how to avoid it."""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.ggml.sched.freed import REMEDY
from ggmltool.inspect.use_after_free import FreedBy, FreedMemoryUse
from ggmltool.show.table import Style, render_lines
from ggmltool.show.text import shortened, size, wrapped

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
