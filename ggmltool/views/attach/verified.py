"""A process beside its plan: that they are equal, or where they part and what may be behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ggmltool.inspect.attached.verified import Divergence, Likely, Stage, Verified
from ggmltool.show.document import ReleaseDocument, Row
from ggmltool.show.table import Style, heading, render_lines
from ggmltool.show.text import count, wrapped
from ggmltool.views.explain.reasons import reason_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

DECISIONS = {
    Stage.OUTCOME: "whether the call succeeds",
    Stage.GRAPH: "the graph itself",
    Stage.BACKENDS: "which backend runs it",
    Stage.SPLITS: "where splits begin",
    Stage.COPIES: "what is copied",
    Stage.SOURCES: "what nodes read",
    Stage.MEMORY: "where it lies in memory",
    Stage.SIZES: "how large buffers are",
    Stage.LEFT: "what the scheduler keeps for the next graph",
}
LIKELY = {
    Likely.NOT_ASKED: "the program's devices were not asked, so that known devices answered for them",
    Likely.USER: "the program assigned it (ggml_backend_sched_set_tensor_backend), which cannot be seen any more once "
    "a graph is allocated; stop at alloc: --at alloc",
    Likely.VERSION: "the program's ggml is another version than it is planned as, or a patched one",
    Likely.ORDER: "a device put the nodes into an order of its own that ggmltool does not know (graph_optimize, or an "
    "environment variable that turns it on or off)",
    Likely.PAST: "the scheduler kept more from earlier graphs than its tables show",
    Likely.SIZE: "a device gives a tensor another size than the known device does",
    Likely.REFUSED: "ggml would refuse such a graph: the program's ggml does not check it, or has other limits",
}


def verified_view(found: Verified, title: str, style: Style) -> str:
    """The same in words."""
    facts = [count(found.nodes, "node"), count(found.splits, "split"), count(found.copies, "copy")]
    if found.same:
        head = heading(
            title, [f"the program did what the plan says: {count(found.fields, 'field')} equal", *facts], style
        )
        return head + render_lines(_notes(found, style), style)
    different = f"{count(found.different, 'field')} of {found.fields} differ from the plan"
    return heading(title, [different, *facts], style) + render_lines(list(_lines(found, style)), style)


def _notes(found: Verified, style: Style) -> list[str]:
    return [line for note in found.notes for line in wrapped(f"note: {note}", style.width)]


def _lines(found: Verified, style: Style) -> Iterator[str]:
    first = found.first
    if first is None:
        return
    yield f"The first, in the order in which ggml decides: {DECISIONS[first.stage]}."
    yield ""
    yield f"  {divergence_name(first)}"
    yield f"    the program: {_shown(first.process)}"
    yield f"    the plan:    {_shown(first.plan)}"
    if found.reason is not None and first.stage in (Stage.BACKENDS, Stage.SPLITS):
        yield f"    because {reason_sentence(found.reason)}"
    yield ""
    yield "What may be behind it:"
    for cause in found.likely:
        yield from wrapped(f"- {LIKELY[cause]}", style.width)
    yield from _notes(found, style)


def divergence_name(d: Divergence) -> str:
    """The field with its row."""
    return f"{d.field} of {d.row}" if d.row else d.field


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        text = ", ".join("none" if v is None else str(v) for v in value)
        return text if len(text) <= 200 else text[:199] + "…"
    return str(value)


class DivergenceRow(Row):
    """Where process and plan part. `stage` is what was decided there, `reason` why the plan has it so."""

    stage: str
    row: str
    field: str
    process: str
    plan: str
    reason: str | None


class AttachVerifyDocument(ReleaseDocument, kw_only=True):
    """`attach --verify --json`: what the program's scheduler decided beside the plan; `likely` are codes of causes."""

    kind: Literal["attach_verify"] = "attach_verify"
    step: str
    same: bool
    nodes: int
    splits: int
    copies: int
    fields: int
    different: int
    first: DivergenceRow | None
    likely: list[str]
    notes: list[str]

    @classmethod
    def of(cls, found: Verified) -> AttachVerifyDocument:
        """A comparison."""
        d = found.first
        reason = reason_sentence(found.reason) if found.reason is not None else None
        row = DivergenceRow(d.stage, d.row, d.field, _shown(d.process), _shown(d.plan), reason) if d else None
        return cls(
            ggml=found.ggml,
            step=found.step,
            same=found.same,
            nodes=found.nodes,
            splits=found.splits,
            copies=found.copies,
            fields=found.fields,
            different=found.different,
            first=row,
            likely=list(found.likely),
            notes=list(found.notes),
        )
