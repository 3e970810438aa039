"""`why` and `explain`: why a tensor is where it is, as far as it is decided at this point."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggmltool.debugger.command import Command, Topic
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.lines import line_of
from ggmltool.ggml.events import Assigned
from ggmltool.scenario.errors import nearest
from ggmltool.show.text import printable
from ggmltool.state.story.points import about, said_until

if TYPE_CHECKING:
    from ggmltool.debugger.session import Session


def _why(session: Session, argument: str) -> None:
    tensor = _tensor(session, argument)
    name = printable(tensor)
    rules = [(at, said) for at, said in said_until(session.history.points, session.told) if said.tensor == tensor]
    backend = next((said.backend for _, said in rules if isinstance(said, Assigned)), "")
    if not rules:
        session.say(f"Nothing is decided about {name} yet.")
    else:
        session.say(f"{name} is on {backend}." if backend else f"{name} has no backend yet.")
    for at, _ in reversed(rules):
        session.say(f"{at}\t{line_of(session.history, at)}")


def _tensor(session: Session, argument: str) -> str:
    """The tensor that is meant: by default that of the event that it is at. Raises CommandError."""
    name = argument.strip("'\"")
    if name and name not in session.reading.tensors:
        near = nearest(name, session.reading.tensors)
        hint = f' Did you mean "{near}"?' if near else ""
        raise CommandError(f'No tensor "{name}" in the history.{hint}')
    if name:
        return name
    event = session.history.points[session.at].event
    found = [] if event is None else [tensor for tensor in about(event) if tensor]
    if not found:
        raise CommandError("This event is about no tensor; name one.")
    return found[0]


def _explain(session: Session, argument: str) -> None:
    """All events about a tensor up to this point."""
    tensor = _tensor(session, argument)
    name = printable(tensor)
    points = [at for at in session.reading.tensors[tensor] if at <= session.told]
    if not points:
        session.say(f"Nothing happened to {name} yet.")
    for at in points:
        session.say(f"{at}\t{line_of(session.history, at)}")
    later = len(session.reading.tensors[tensor]) - len(points)
    if later:
        session.say(
            f"({later} more events are about {name} later.)" if later > 1 else f"(1 more is about {name} later.)"
        )


def _tensors(session: Session, prefix: str) -> list[str]:
    return [name for name in session.reading.tensors if name.startswith(prefix)]


COMMANDS = [
    Command(
        "why",
        _why,
        Topic.STATUS,
        "Show why a tensor is on its backend: the rules that were asked so far, and what they said.\n"
        "Usage: why [TENSOR]; by default that of this event.\nExample: why result",
        complete=_tensors,
    ),
    Command(
        "explain",
        _explain,
        Topic.STATUS,
        "Show all that happened to a tensor so far.\nUsage: explain [TENSOR]; by default that of this event.\n"
        "Example: explain result",
        complete=_tensors,
    ),
]
