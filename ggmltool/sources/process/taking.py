"""What is taken from a program at a call that counts: how things stood before it, and what was decided in it."""

from __future__ import annotations

from typing import NamedTuple

from ggmltool.sources.process.reading import read_snapshot
from ggmltool.sources.process.session import Session
from ggmltool.sources.process.state import Snapshot
from ggmltool.sources.process.stops import Called, let_decide


class Taken(NamedTuple):
    """A call, with the program's memory `before` and `after` it. The program has gone on to where it was decided."""

    called: Called
    before: Snapshot
    after: Snapshot


def take(session: Session, called: Called, seconds: float | None = None) -> Taken:
    """Take what a call that the program has just entered has to say. Raises AttachError."""
    before = read_snapshot(session, called.sched, called.graph, called.function, "before")
    let_decide(session, called, seconds)
    after = read_snapshot(session, called.sched, called.graph, called.function, "after")
    return Taken(called, before, after)
