"""`info`: tables of the state, of breakpoints and displays, and where it stands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ggmltool.debugger import tables
from ggmltool.debugger.breaking import info_breakpoints
from ggmltool.debugger.breakpoints import Kind
from ggmltool.debugger.command import Command, Repeat, Topic, find
from ggmltool.debugger.data import info_display
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.lines import step_name
from ggmltool.debugger.stack import info_args, info_frame, info_locals
from ggmltool.debugger.stops import moment_line, point_of
from ggmltool.show.text import count, printable

if TYPE_CHECKING:
    from ggmltool.debugger.session import Session


def _shown(session: Session, table: str, otherwise: str) -> None:
    if table:
        session.screen.write(table)
    else:
        session.say(otherwise)


def _splits(session: Session, _: str) -> None:
    splits = any(key[0] == "split" for key in session.cells)
    nodes = session.graph()[1] if splits else ()
    _shown(session, tables.splits_table(session.cells, session.names, nodes, session.style), "No splits yet.")


def _hash(session: Session, _: str) -> None:
    _shown(session, tables.hash_table(session.cells, session.names, session.style), "The hash table is empty.")


def _free_blocks(session: Session, wanted: str) -> None:
    table = tables.free_table(session.cells, session.names, wanted, session.style)
    _shown(session, table, f'No free blocks in a buffer called "{wanted}".' if wanted else "No free blocks.")


def _copies(session: Session, _: str) -> None:
    _shown(session, tables.copies_table(session.cells, session.names, session.style), "No copies.")


def _tensors(session: Session, wanted: str) -> None:
    table = tables.tensors_table(session.cells, session.names, wanted, session.style)
    _shown(session, table, f'No tensor whose name contains "{wanted}".' if wanted else "No tensors yet.")


def _watchpoints(session: Session, argument: str) -> None:
    info_breakpoints(session, argument, (Kind.WATCHPOINT,))


def _line(session: Session, _: str) -> None:
    at = point_of(session, session.frame) if not session.walker.exited else session.at
    point = session.history.points[at]
    calls = session.walker.calls
    function = calls[session.frames()[session.frame] if not session.walker.exited else calls.innermost[at]].function
    where = printable(f"{session.title}, {step_name(session.history, point.step)}")
    session.say(f"Event {at} of {session.walker.last} is in {function}, {where}.")
    session.say(f"{at}\t{moment_line(session, at)}")


def _source(session: Session, _: str) -> None:
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


def _program(session: Session, _: str) -> None:
    at = session.walker.at
    if at is None:
        session.say("The program being debugged is not being run.")
        return
    session.say(f"It stands at event {at} of {session.walker.last}.")
    here = [str(one.number) for one in session.walker.breakpoints if at in one.places]
    if here:
        session.say(f"It stopped at breakpoint {', '.join(here)}.")


def _functions(session: Session, pattern: str) -> None:
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


def _signals(session: Session, _: str) -> None:
    session.say("Signal        Stop      Description")
    session.say("SIGABRT       Yes       Aborted: ggml refused to go on")
    session.say("SIGINT        Yes       Interrupt")


def _sub(name: str, run: object, help: str, *aliases: str) -> Command:
    return Command(name, run, Topic.STATUS, help, aliases)  # type: ignore[arg-type]


SUBCOMMANDS = [
    _sub("args", info_args, "The arguments of the selected frame."),
    _sub("breakpoints", lambda s, a: info_breakpoints(s, a), "Breakpoints, watchpoints and catchpoints.", "b"),
    _sub("copies", _copies, "The copies of tensors that the scheduler made."),
    _sub("display", info_display, "The expressions that are displayed at every stop."),
    _sub("frame", info_frame, "The selected frame: who called it, from which event to which.", "f"),
    _sub("free-blocks", _free_blocks, "The free blocks of the allocator.\nUsage: info free-blocks [BUFFER]"),
    _sub("functions", _functions, "The functions that are called, and how often.\nUsage: info functions [REGEX]"),
    _sub("hash", _hash, "The allocator's hash table: what it knows of every tensor."),
    _sub("line", _line, "The event that the selected frame is at."),
    _sub("locals", info_locals, "The local variables of the selected frame."),
    _sub("program", _program, "Where it stands, and what stopped it."),
    _sub("signals", _signals, "What it stops for without a breakpoint."),
    _sub("source", _source, "The scenario: its ggml, backends, graphs and steps."),
    _sub("splits", _splits, "The splits as far as they are made."),
    _sub("tensors", _tensors, "The tensors that there are.\nUsage: info tensors [PART OF A NAME]"),
    _sub("watchpoints", _watchpoints, "Watchpoints."),
]


def _info(session: Session, argument: str) -> None:
    if not argument:
        session.say("List of info subcommands:\n")
        for sub in SUBCOMMANDS:
            session.say(f"info {sub.name} -- {sub.summary}")
        return
    word, _, rest = argument.partition(" ")
    find(word, SUBCOMMANDS, "info ").run(session, rest.strip())


def _complete(session: Session, prefix: str) -> list[str]:
    return [sub.name for sub in SUBCOMMANDS if sub.name.startswith(prefix)]


COMMANDS = [
    Command(
        "info",
        _info,
        Topic.STATUS,
        "Show the state at this point, or what the session has.\nUsage: info WHAT; `info` alone lists them.\n"
        "Example: info splits",
        ("i", "inf"),
        Repeat.YES,
        _complete,
    )
]
