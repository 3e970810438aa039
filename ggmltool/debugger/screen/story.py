"""The story of one tensor at a point: what it is, why it is on its backend, what the others answered, its memory, who
had that before and who takes it next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from ggmltool.ask.words import reason_sentence, words
from ggmltool.debugger.screen.timeline import Planning, TensorSpan
from ggmltool.ggml.buffer import USAGE_NAMES
from ggmltool.ggml.events import Assigned, Said
from ggmltool.inspect.decisions import answer, reason_of
from ggmltool.show.text import count, printable, shortened, size

if TYPE_CHECKING:
    from rich.style import Style

    from ggmltool.debugger.screen.look import Look
    from ggmltool.debugger.screen.scene import Now, ProgramOrder
    from ggmltool.ggml.device import Backend
    from ggmltool.ggml.tensor import Tensor

_NAMES = 4
_OWNERS = 4
"""Owners of the same bytes that are named before a tensor, and after it."""


class Line(NamedTuple):
    """A line of the story; `tensor` is what a click on it selects, "" for nothing. What is wrapped begins `hang`
    columns further right."""

    text: Text
    tensor: str = ""
    hang: int = 2


def story(now: Now, label: str, look: Look) -> list[Line]:
    """All that there is to say about a tensor."""
    if not label:
        return [Line(Text("No tensor is selected.", look.face.soft))]
    teller = _Teller(now, label, look)
    return [*teller.what(), *teller.placement(), *teller.answers(), *teller.memory()]


class _Teller:
    def __init__(self, now: Now, label: str, look: Look) -> None:
        self.now = now
        self.label = label
        self.look = look
        self.face = look.face
        at = now.program.at.get(label)
        self.member = None if at is None else now.program.members[at]
        self.built: Tensor | None = now.scene.built(now.program.graph).get(label)

    def _head(self, text: str) -> Iterator[Line]:
        yield Line(Text())
        yield Line(Text(text, self.face.head))

    def _line(self, *parts: str | tuple[str, Style], tensor: str = "", hang: int = 2) -> Line:
        text = Text()
        for part in parts:
            told, style = (part, self.face.plain) if isinstance(part, str) else part
            text.append(printable(told), style)
        return Line(text, tensor, hang)

    def what(self) -> Iterator[Line]:
        """What it is, what it reads and who reads it."""
        member, built = self.member, self.built
        if member is None:
            yield self._line((self.label, self.face.bold), ", a tensor that the scheduler made")
            return
        place = f"leaf {member.number}" if member.is_leaf else f"node {member.number} of {self.now.program.n_nodes}"
        split = self._split()
        yield self._line((self.label, self.face.bold), f"  {member.op} {member.shape}".rstrip())
        yield self._line(f"{place}{split}", hang=0)
        if built is not None and built.view_src is not None:
            yield self._line(f"a view of {built.view_src.label}", tensor=built.view_src.label)
        for slot, src in enumerate(() if built is None else built.src):
            if src is not None:
                yield self._line((f"reads {slot}: ", self.face.soft), src.label, *self._on(src.label), tensor=src.label)
        readers = self.now.scene.readers(self.now.program.graph).get(self.label, ())
        if readers:
            names = shortened(readers, _NAMES)
            yield self._line(("read by: ", self.face.soft), names, tensor=readers[0])

    def _on(self, label: str) -> Iterable[tuple[str, Style]]:
        at = self.now.program.at.get(label)
        backend = "" if at is None else self.now.backend(self.now.program.members[at].index)
        return ((f"  {backend}", self.look.ink(backend)),) if backend else ()

    def _split(self) -> str:
        member = self.member
        if member is None or member.is_leaf:
            return ""
        found = [i for i, s in enumerate(self.now.splits) if s.i_start <= member.number < s.i_end]
        return f", split #{found[0]}" if found else ""

    def placement(self) -> Iterator[Line]:
        """The backend now, why, and every rule that is asked, in order."""
        scene, now = self.now.scene, self.now
        yield from self._head("BACKEND")
        asked = scene.asked(now.at)
        said = asked.get(self.label, ())
        backend = "" if self.member is None else now.backend(self.member.index)
        if not said:
            if backend:
                yield self._line("on ", (backend, self.look.ink(backend)))
            else:
                yield self._line(("No rule is asked for it in this step.", self.face.soft))
            return
        ahead = next((at for at, e in said if isinstance(e, Assigned) and at > now.at), None)
        if not backend:
            when = "" if ahead is None else f" yet; at event {ahead}:"
            yield self._line((f"none{when}", self.face.note))
        told = self.label
        for _ in range(_NAMES):
            events = [e for _, e in asked.get(told, ())]
            reason = reason_of(told, self._op(told), events, scene.backends)
            yield self._line(reason_sentence(reason), tensor=told)
            by = "" if reason.settled is None else reason.settled.by
            if not by or by == told:
                break
            told = by
        yield from self._rules(said)

    def _op(self, label: str) -> str:
        at = self.now.program.at.get(label)
        return "" if at is None else self.now.program.members[at].op

    def _rules(self, said: Iterable[tuple[int, Said]]) -> Iterator[Line]:
        told: dict[str, None] = {}
        for at, event in said:
            yes = isinstance(event, Assigned)
            on = f" {event.backend}" if event.backend else ""
            what = f"{event.cause}{on}: {words(event)}"
            if what in told:
                continue
            told[what] = None
            style = self.face.soft if at > self.now.at or not yes else self.face.plain
            sign = ("✓ ", self.face.good) if yes else ("· ", self.face.soft)
            yield self._line(sign, (what, style), (f"  @{at}", self.face.soft), hang=4)

    def answers(self) -> Iterator[Line]:
        """What each backend says to it before anything is planned."""
        built = self.built
        if built is None or not built.op:
            return
        yield from self._head("WHAT BACKENDS ANSWER")
        for backend in self.now.scene.devices:
            yield self._line((backend.name, self.look.ink(backend.name)), *self._answer(backend, built))

    def _answer(self, backend: Backend, t: Tensor) -> Iterator[str | tuple[str, Style]]:
        given = answer(backend.device, t)
        if given.why_not is not None:
            yield ("  no: ", self.face.bad)
            yield given.why_not
            return
        yield ("  yes", self.face.good)
        least, batch = backend.device.offloads_from(t), backend.device.batch_size(t)
        if least is not None and batch > 0:
            yield f", offloads a batch from {least} on (here {batch})"
        if given.copies:
            yield f", after copying {shortened([c.id for c in given.copies], _NAMES)}"

    def memory(self) -> Iterator[Line]:
        """Where it lies and when, and who else has the bytes."""
        yield from self._head("MEMORY")
        root = self.label
        if self.built is not None and self.built.view_src is not None:
            root = self.built.view_src.label
        plan, span = self.now.planning, self.now.span(self.label) or self.now.span(root)
        if plan is None or span is None:
            yield from self._of_a_context(root, plan)
            return
        if span.tensor != self.label:
            yield self._line(f"in the memory of {span.tensor}, which it is a view of", tensor=span.tensor)
        buft, chunk = span.place
        nbytes = span.size_at(self.now.at)
        yield self._line(
            (f"{size(nbytes)} at {span.offset}", self.face.bold), f" of {buft}" + (f", chunk {chunk}" if chunk else "")
        )
        yield self._line(f"{when_text(plan, span, self.now.program)} ({self._tense(span)})", hang=0)
        if span.kept:
            yield self._line("an output: its memory is not given to others")
        if span.reused:
            yield self._line(f"computed in place of {span.reused}", tensor=span.reused)
        if span.heir:
            yield self._line(f"{span.heir} is computed in place of it", tensor=span.heir)
        yield from self._owners(plan, span)

    def _tense(self, span: TensorSpan) -> str:
        at = self.now.at
        if at < span.first:
            return f"not yet: from event {span.first} on"
        if span.alive(at):
            return "now" if span.last is None else f"now, until event {span.last}"
        return f"over since event {span.last}"

    def _owners(self, plan: Planning, span: TensorSpan) -> Iterator[Line]:
        owners = plan.neighbors(span)
        at = owners.index(span)
        before, after = owners[:at], owners[at + 1 :]
        if not before and not after:
            yield self._line(("nobody else has these bytes", self.face.soft))
            return
        for name, others in (("before", before[-_OWNERS:]), ("next", after[:_OWNERS])):
            hidden = len(before if name == "before" else after) - len(others)
            for other in others:
                how = ", in place" if other.heir == span.tensor or span.heir == other.tensor else ""
                yield self._line(
                    (f"{name:<7}", self.face.soft),
                    (other.tensor, self.face.bold),
                    f"  {size(other.size)} at {other.offset}, {when_text(plan, other, self.now.program)}{how}",
                    tensor=other.tensor,
                    hang=7,
                )
            if hidden:
                yield self._line((f"{'':<7}and {count(hidden, 'other')}", self.face.soft))

    def _of_a_context(self, root: str, plan: Planning | None) -> Iterator[Line]:
        tensors = self.now.scene.built(self.now.program.graph)
        t = tensors.get(root)
        buffer = None if t is None else t.buffer
        if t is not None and buffer is not None:
            yield self._line(
                f"{size(t.nbytes)} at {t.data - buffer.base} of {buffer.buft.name} ({USAGE_NAMES[buffer.usage]})"
            )
            yield self._line(("pre-allocated: the graph allocator never reuses it", self.face.soft))
        elif plan is None:
            yield self._line(("none yet: the allocator has not begun", self.face.soft))
        else:
            yield self._line(("none in this plan", self.face.soft))


def when_text(plan: Planning, span: TensorSpan, program: ProgramOrder) -> str:
    """While which nodes a tensor lies there, with their numbers in the graph."""
    nodes = [program.numbered(name) for _, name in plan.nodes]
    start = "from the start" if span.start < 0 else f"from node {nodes[span.start]}"
    if span.end is None:
        return f"{start} to the end"
    if span.end == span.start:
        return f"at node {nodes[span.end]} only" if span.end >= 0 else "before the first node only"
    return f"{start} to node {nodes[span.end]}" if span.end >= 0 else "before the first node only"
