"""`list`: the passage of the graph around the node that it is at."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ggmltool.debugger.command import Command, Repeat, Topic
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.locations import refuse_source
from ggmltool.debugger.session import Listing
from ggmltool.debugger.stops import point_of
from ggmltool.debugger.tables import Names
from ggmltool.scenario.errors import nearest
from ggmltool.show.colors import colors
from ggmltool.show.table import render_lines
from ggmltool.show.text import dims, printable
from ggmltool.state.story.points import about

if TYPE_CHECKING:
    from rich.text import Text

    from ggmltool.debugger.session import Session

_RANGE = re.compile(r"(\d{1,9})?\s*,\s*(\d{1,9})?")


def _list(session: Session, argument: str) -> None:
    refuse_source(argument, "`list` shows nodes of the graph, `ptype struct NAME` a struct")
    graph, nodes = session.graph()
    names = [session.names.tensor(t) for t in nodes]
    first, end = _passage(session, argument, graph, names)
    if first >= len(nodes) or end <= 0 or not nodes:
        raise CommandError(f"Graph {graph} has {len(nodes)} nodes.")
    first, end = max(first, 0), min(end, len(nodes))
    session.listing = Listing(graph, first, end)
    current = current_node(session, names)
    width = len(str(end - 1))
    lines = [_line(session, i, nodes[i], i == current, width) for i in range(first, end)]
    session.screen.write(render_lines(lines, session.style))


def _passage(session: Session, argument: str, graph: str, names: list[str]) -> tuple[int, int]:
    """The nodes to show, the first and the one behind the last."""
    rows = session.settings.listsize
    shown = session.listing if session.listing is not None and session.listing.graph == graph else None
    if not argument and shown is not None:
        return shown.end, shown.end + rows
    if argument == "-":
        first = _around(current_node(session, names) or 0, rows)[0] if shown is None else shown.first
        if first <= 0:
            raise CommandError(f"Already at the start of {graph}.")
        return first - rows, first
    if not argument or argument == ".":
        return _around(current_node(session, names) or 0, rows)
    found = _RANGE.fullmatch(argument)
    if found is not None and (found[1] or found[2]):
        first = int(found[1]) if found[1] else int(found[2]) + 1 - rows
        return first, int(found[2]) + 1 if found[2] else first + rows
    return _around(_node_called(argument, names), rows)


def _around(node: int, rows: int) -> tuple[int, int]:
    first = max(node - rows // 2, 0)
    return first, first + rows


def _node_called(argument: str, names: list[str]) -> int:
    if argument in names:
        return names.index(argument)
    if argument.isascii() and argument.isdecimal():
        return int(argument[:10])
    near = nearest(argument, names)
    hint = f' Did you mean "{near}"?' if near else ""
    raise CommandError(f'No node "{argument}" in the graph.{hint}')


def current_node(session: Session, names: list[str]) -> int | None:
    """The number of the node that the selected frame is at: of its event, or of the nearest one before it in the step
    that is about a node."""
    points = session.history.points
    at = point_of(session, session.frame) if session.walker.at is not None and not session.walker.exited else session.at
    numbers = {name: i for i, name in reversed(list(enumerate(names)))}
    step = points[at].step
    while at >= 0 and points[at].step == step:
        event = points[at].event
        for name in () if event is None else about(event):
            if name in numbers:
                return numbers[name]
        at -= 1
    return None


def _line(session: Session, i: int, t: int, current: bool, width: int) -> Text:
    from rich.text import Text

    names: Names = session.names
    cell = names.tensors[t]
    sources = ", ".join(names.tensor(s) for s in cell.src if s is not None)
    backend = session.cells.get(("id", t), -1)
    line = Text(f"{i:>{width}} {'→' if current else ' '} ", "bold" if current else "")
    line.append(printable(f"{names.tensor(t)} = {cell.op}({sources})  {cell.type}{dims(cell.ne)}"))
    if 0 <= backend < len(names.backends):
        name = names.backends[backend]
        line.append(f"  {name}", colors(names.backends)[name].term)
        line.append(f" {session.cells.get(('cause', t)) or ''}".rstrip(), "dim")
    line.truncate(session.style.width, overflow="ellipsis")
    return line


COMMANDS = [
    Command(
        "list",
        _list,
        Topic.STATUS,
        "Show the passage of the graph around the node that it is at, with an arrow.\n"
        "Usage: list [TENSOR | N | A,B | -]; without one it goes on behind what was shown, with - before it.\n"
        "Example: list 10,20",
        ("l",),
        Repeat.GO_ON,
        complete=lambda session, prefix: [t for t in session.reading.tensors if t.startswith(prefix)],
    ),
]
