"""One call of a program's scheduler, looked at from its entry to its return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from ggmltool.sources.process.asking import ask
from ggmltool.sources.process.assigned import with_assignments
from ggmltool.sources.process.decided import decided
from ggmltool.sources.process.reading import read_snapshot
from ggmltool.sources.process.session import Session
from ggmltool.sources.process.state import Answers, Function, Snapshot
from ggmltool.sources.process.written import Written, written

STOPS = (
    "ggml_backend_sched_reserve",
    "ggml_backend_sched_alloc_graph",
    "ggml_backend_sched_graph_compute",
    "ggml_backend_sched_graph_compute_async",
)
"""The functions whose entry is such a call: scheduler and graph are their first arguments."""


@dataclass(frozen=True, slots=True)
class Visited:
    """What a program had before a call and after it, what its devices answered, the scenario, and what was decided."""

    before: Snapshot
    after: Snapshot
    answers: Answers
    written: Written
    decided: dict[str, Any]


def visit(session: Session) -> Visited:
    """Look at the call that the program has just entered, one of `STOPS`, and let it return.

    A compute of a graph that is allocated decides nothing more: the program stays at its entry. Raises AttachError.
    """
    function = cast("Function", session.function())
    sched, graph = session.link.arguments()[:2]
    before = read_snapshot(session, sched, graph, function, "before")
    answers = ask(session, before)
    if "compute" in function and before.sched.is_alloc:
        after, later = before, None
    else:
        session.finish()
        after = read_snapshot(session, sched, graph, function, "after")
        later = ask(session, after)
    made = written(before, answers, after, later)
    done = decided(after, made.ids, made.names, made.step, answers)
    return Visited(before, after, answers, with_assignments(made, done) if after is before else made, done)
