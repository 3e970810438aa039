"""One call of a program's scheduler, looked at from its entry to its return."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, cast

from ggmltool.attach import alone
from ggmltool.attach.asking import ask
from ggmltool.attach.assigned import with_assignments
from ggmltool.attach.decided import decided
from ggmltool.attach.past import Left, left_by
from ggmltool.attach.reading import read_alone, read_snapshot
from ggmltool.attach.session import Session
from ggmltool.attach.state import Answers, Function, Snapshot
from ggmltool.attach.stops import FUNCTIONS, Called
from ggmltool.attach.written import Written, written


@dataclass(frozen=True)
class Visited:
    """What a program had before a call and after it, and what its devices answered then and `later`. What follows from
    that is found out when it is wanted: the program need not stand still for it."""

    before: Snapshot
    after: Snapshot
    answers: Answers
    later: Answers | None

    @property
    def written(self) -> Written:
        """The scenario. Raises AttachError."""
        return self._found[0]

    @property
    def decided(self) -> dict[str, Any]:
        """What the program decided. Raises AttachError."""
        return self._found[1]

    @cached_property
    def _found(self) -> tuple[Written, dict[str, Any]]:
        made = written(self.before, self.answers, self.after, self.later)
        done = decided(self.after, made.ids, made.names, made.step, self.answers)
        if not self.before.sched.address:
            for backend in made.document["backends"]:
                done["buffer_sizes"].setdefault(backend["name"], 0)
        return with_assignments(made, done) if self.after is self.before else made, done

    @property
    def left(self) -> Left | None:
        """The state in which the call has left the scheduler, None of a program without one."""
        if not self.before.sched.address:
            return None
        return left_by(self.before, self.after, self.written.names.backends)


def glance(session: Session, called: Called, when: Literal["before", "after"]) -> Snapshot:
    """What a program has before the call that it has just entered, or after it, which lets it return; of a compute of a
    graph that is allocated always before, for it decides nothing. No device is asked. Raises AttachError.
    """
    read = read_snapshot if called.function in FUNCTIONS["any"] else read_alone
    if called.allocated or called.function in alone.COMPUTE or when == "before":
        return read(session, called.sched, called.graph, called.function, "before")
    session.finish()
    return read(session, called.sched, called.graph, called.function, "after")


def visit(session: Session) -> Visited:
    """Look at the call that the program has just entered, one of `FUNCTIONS`, and let it return.

    A compute of a graph that is allocated decides nothing more: the program stays at its entry. Raises AttachError.
    """
    function = cast("Function", session.function())
    sched, graph = session.link.arguments()[:2]
    if function not in FUNCTIONS["any"]:
        return _visit_alone(session, function, sched, graph)
    before = read_snapshot(session, sched, graph, function, "before")
    answers = ask(session, before)
    if "compute" in function and before.sched.is_alloc:
        return Visited(before, before, answers, None)
    session.finish()
    after = read_snapshot(session, sched, graph, function, "after", before)
    return Visited(before, after, answers, ask(session, after))


def _visit_alone(session: Session, function: Function, first: int, graph: int) -> Visited:
    """The same of a call of a graph allocator or a backend by a program without a scheduler. A compute allocates
    nothing: the program stays at its entry."""
    before = read_alone(session, first, graph, function, "before")
    answers = ask(session, before)
    if not alone.lacks_cpu(before) and all(answers.supports.values()):
        # The only backend that there is needs no word of the program's.
        before = replace(before, sched=replace(before.sched, backend_ids={}))
    if function not in alone.COMPUTE:
        session.finish()
    return Visited(before, read_alone(session, first, graph, function, "after", before), answers, None)
