"""What the state is at a point: `info` with its tables, `list` of the graph, `why` and `explain` of a tensor."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ggmltool.debugger import tables
from ggmltool.debugger.breaking import info_breakpoints, info_watchpoints
from ggmltool.debugger.command import Commands, DebuggerCommand, Repeat, Run, Topic, find, hint
from ggmltool.debugger.data import info_display
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.lines import line_of, step_name
from ggmltool.debugger.locations import known_tensor, refuse_source
from ggmltool.debugger.session import Listing
from ggmltool.debugger.stack import info_args, info_frame, info_locals, moment_line, point_of
from ggmltool.ggml.events import Assigned
from ggmltool.show.colors import colors
from ggmltool.show.table import render_lines
from ggmltool.show.text import count, dims, printable
from ggmltool.state.story.points import about, said_until

if TYPE_CHECKING:
    from rich.text import Text

    from ggmltool.debugger.session import DebugSession

COMMANDS = Commands()
_RANGE = re.compile(r"(\d{1,9})?\s*,\s*(\d{1,9})?")


def _table(make: Callable[..., str], none: str, none_like: str = "") -> Run:
    """Print a table of the state, or that there is none (like what was named)."""

    def run(session: DebugSession, wanted: str) -> None:
        table = make(session.cells, session.names, wanted, session.style)
        if table:
            session.screen.write(table)
        else:
            session.say(none_like.format(wanted) if wanted and none_like else none)

    return run


def _splits(session: DebugSession, _: str) -> None:
    splits = any(key[0] == "split" for key in session.cells)
    nodes = session.graph()[1] if splits else ()
    table = tables.splits_table(session.cells, session.names, nodes, session.style)
    session.screen.write(table or "No splits yet.\n")


def _line(session: DebugSession, _: str) -> None:
    at = point_of(session, session.frame) if not session.walker.exited else session.at
    calls = session.walker.calls
    function = calls[session.frames()[session.frame] if not session.walker.exited else calls.innermost[at]].function
    where = printable(f"{session.title}, {step_name(session.history, session.history.points[at].step)}")
    session.say(f"Event {at} of {session.walker.last} is in {function}, {where}.")
    session.say(f"{at}\t{moment_line(session, at)}")


def _source(session: DebugSession, _: str) -> None:
    model = session.history.scenario.model
    session.say(f"Current scenario is {session.title}")
    session.say(f"Located in {printable(model.source)}")
    session.say(f"Decided by ggml {model.ggml}.")
    backends = ", ".join(printable(b.name) for b in session.history.backends)
    session.say(f"Backends: {backends or 'none'}.")
    graphs = ", ".join(f"{printable(name)} ({count(len(graph.nodes), 'node')})" for name, graph in model.graphs.items())
    session.say(f"Graphs: {graphs or 'none'}.")
    session.say(f"Steps: {printable(', '.join(map(str, model.steps))) or 'none'}.")
    session.say(f"The history has {count(len(session.history.points), 'event')}.")


def _program(session: DebugSession, _: str) -> None:
    at = session.walker.at
    if at is None:
        session.say("The program being debugged is not being run.")
        return
    session.say(f"It stands at event {at} of {session.walker.last}.")
    here = [str(one.number) for one in session.walker.breakpoints.values() if at in one.places]
    if here:
        session.say(f"It stopped at breakpoint {', '.join(here)}.")


def _functions(session: DebugSession, pattern: str) -> None:
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise CommandError(f"Invalid regexp: {error}") from None
    calls = session.walker.calls
    rows = [(name, len(calls.starts(name))) for name in calls.functions if wanted.search(name)]
    if not rows:
        session.say("No function that is called matches.")
    for name, times in rows:
        session.say(f"{times:>7}  {name}")


def _signals(session: DebugSession, _: str) -> None:
    session.say("Signal        Stop      Description")
    session.say("SIGABRT       Yes       Aborted: ggml refused to go on")
    session.say("SIGINT        Yes       Interrupt")


_ALIASES = {"breakpoints": ("b",), "frame": ("f",)}
_INFO: dict[str, tuple[Run, str]] = {
    "args": (info_args, "The arguments of the selected frame."),
    "breakpoints": (info_breakpoints, "Breakpoints, watchpoints and catchpoints."),
    "copies": (_table(tables.copies_table, "No copies."), "The copies of tensors that the scheduler made."),
    "display": (info_display, "The expressions that are displayed at every stop."),
    "frame": (info_frame, "The selected frame: who called it, from which event to which."),
    "free-blocks": (
        _table(tables.free_table, "No free blocks.", 'No free blocks in a buffer called "{}".'),
        "The free blocks of the allocator.\nUsage: info free-blocks [BUFFER]",
    ),
    "functions": (_functions, "The functions that are called, and how often.\nUsage: info functions [REGEX]"),
    "hash": (
        _table(tables.hash_table, "The hash table is empty."),
        "The allocator's hash table: what it knows of every tensor.",
    ),
    "line": (_line, "The event that the selected frame is at."),
    "locals": (info_locals, "The local variables of the selected frame."),
    "program": (_program, "Where it stands, and what stopped it."),
    "signals": (_signals, "What it stops for without a breakpoint."),
    "source": (_source, "The scenario: its ggml, backends, graphs and steps."),
    "splits": (_splits, "The splits as far as they are made."),
    "tensors": (
        _table(tables.tensors_table, "No tensors yet.", 'No tensor whose name contains "{}".'),
        "The tensors that there are.\nUsage: info tensors [PART OF A NAME]",
    ),
    "watchpoints": (info_watchpoints, "Watchpoints."),
}
SUBCOMMANDS = [
    DebuggerCommand(name, run, Topic.STATUS, help, _ALIASES.get(name, ())) for name, (run, help) in _INFO.items()
]


def _names_of_info(session: DebugSession, prefix: str) -> list[str]:
    return [name for name in _INFO if name.startswith(prefix)]


def _tensors_of_list(session: DebugSession, prefix: str) -> list[str]:
    return [name for name in session.reading.tensors if name.startswith(prefix)]


@COMMANDS.add(Topic.STATUS, "l", repeat=Repeat.GO_ON, complete=_tensors_of_list)
def list_(session: DebugSession, argument: str) -> None:
    """Show the passage of the graph around the node that it is at, with an arrow.
    Usage: list [TENSOR | N | A,B | -]; without one it goes on behind what was shown, with - before it.
    Example: list 10,20"""
    refuse_source(argument, "`list` shows nodes of the graph, `ptype struct NAME` a struct")
    graph, nodes = session.graph()
    names = [session.names.tensor(t) for t in nodes]
    current = _current_node(session, names)
    first, end = _passage(session, argument, graph, names, current or 0)
    if first >= len(nodes) or end <= 0 or not nodes:
        raise CommandError(f"Graph {graph} has {len(nodes)} nodes.")
    first, end = max(first, 0), min(end, len(nodes))
    session.listing = Listing(graph, first, end)
    width = len(str(end - 1))
    lines = [_node_line(session, i, nodes[i], i == current, width) for i in range(first, end)]
    session.screen.write(render_lines(lines, session.style))


def _passage(session: DebugSession, argument: str, graph: str, names: list[str], current: int) -> tuple[int, int]:
    rows = session.settings.listsize
    shown = session.listing if session.listing is not None and session.listing.graph == graph else None
    if not argument and shown is not None:
        return shown.end, shown.end + rows
    node = current
    if argument == "-":
        first = max(node - rows // 2, 0) if shown is None else shown.first
        if first <= 0:
            raise CommandError(f"Already at the start of {graph}.")
        return first - rows, first
    if argument not in ("", "."):
        found = _RANGE.fullmatch(argument)
        if found is not None and (found[1] or found[2]):
            first = int(found[1]) if found[1] else int(found[2]) + 1 - rows
            return first, int(found[2]) + 1 if found[2] else first + rows
        if argument in names:
            node = names.index(argument)
        elif argument.isascii() and argument.isdecimal():
            node = int(argument[:10])
        else:
            raise CommandError(f'No node "{argument}" in the graph.{hint(argument, names)}')
    first = max(node - rows // 2, 0)
    return first, first + rows


def _current_node(session: DebugSession, names: list[str]) -> int | None:
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


def _node_line(session: DebugSession, i: int, t: int, current: bool, width: int) -> Text:
    from rich.text import Text

    names = session.names
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


@COMMANDS.add(Topic.STATUS, "i", "inf", repeat=Repeat.YES, complete=_names_of_info)
def info(session: DebugSession, argument: str) -> None:
    """Show the state at this point, or what the session has.
    Usage: info WHAT; `info` alone lists them.
    Example: info splits"""
    if not argument:
        session.say("List of info subcommands:\n")
        for sub in SUBCOMMANDS:
            session.say(f"info {sub.name} -- {sub.summary}")
        return
    word, _, rest = argument.partition(" ")
    find(word, SUBCOMMANDS, "info ").run(session, rest.strip())


@COMMANDS.add(Topic.STATUS, complete=_tensors_of_list)
def why(session: DebugSession, argument: str) -> None:
    """Show why a tensor is on its backend: the rules that were asked so far, and what they said.
    Usage: why [TENSOR]; by default that of this event.
    Example: why result"""
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


@COMMANDS.add(Topic.STATUS, complete=_tensors_of_list)
def explain(session: DebugSession, argument: str) -> None:
    """Show all that happened to a tensor so far.
    Usage: explain [TENSOR]; by default that of this event.
    Example: explain result"""
    tensor = _tensor(session, argument)
    points = [at for at in session.reading.tensors[tensor] if at <= session.told]
    if not points:
        session.say(f"Nothing happened to {printable(tensor)} yet.")
    for at in points:
        session.say(f"{at}\t{line_of(session.history, at)}")
    later = len(session.reading.tensors[tensor]) - len(points)
    if later:
        more = f"{later} more events are" if later > 1 else "1 more is"
        session.say(f"({more} about {printable(tensor)} later.)")


def _tensor(session: DebugSession, argument: str) -> str:
    """The tensor that is meant: by default that of the event that it is at. Raises CommandError."""
    name = argument.strip("'\"")
    if name:
        return known_tensor(session, name)
    event = session.history.points[session.at].event
    for tensor in () if event is None else about(event):
        if tensor:
            return tensor
    raise CommandError("This event is about no tensor; name one.")
