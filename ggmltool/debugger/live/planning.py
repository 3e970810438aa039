"""`ggml save`, `ggml why`, `ggml verify`: the program's graph as a scenario, and the plan of it."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ggmltool.ask.answer import Answer
from ggmltool.ask.attach.live import title_of
from ggmltool.ask.attach.verified import verified_view, verify_written
from ggmltool.ask.explain import text
from ggmltool.ask.explain.node import explain_node
from ggmltool.attach.calls import ALLOC, COMPUTE, RESERVE
from ggmltool.attach.devices.asking import ask
from ggmltool.attach.gdb.program import write_whole
from ggmltool.attach.reading import read_snapshot
from ggmltool.attach.state import Snapshot
from ggmltool.attach.write.written import GRAPH, Written, decided, redacted, scenario_file, with_assignments, written
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.live.process import GdbCommand, StoppedProcess
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.show.text import printable


def _stop(process: StoppedProcess) -> str:
    """How to come to where the scheduler has decided: at a function that is there, or behind the one that decides."""
    there = next((name for name in COMPUTE if process.session.instance.has(name)), "")
    return f"break {there}, and continue" if there else "break ggml_backend_sched_alloc_graph, continue, and finish"


def _before(process: StoppedProcess) -> Snapshot:
    """What the scheduler had when the graph came, or has of a graph that is allocated. Raises AttachError, and
    CommandError where the scheduler is about to decide."""
    found = process.found
    if process.snapshot.sched.is_alloc:
        return read_snapshot(process.session, found.sched, found.graph, COMPUTE[0], "before")
    function = next((name for name in RESERVE + ALLOC if name == found.call), None)
    if function is None or not found.entered:
        doing = f"is in the middle of {found.call}" if found.call else "has no graph now"
        raise CommandError(f"The scheduler {doing}; look where it has one: {_stop(process)}.")
    return read_snapshot(process.session, found.sched, found.graph, function, "before")


@dataclass
class Made:
    """The graph of a moment as a scenario; and what was decided of it, None before it is."""

    written: Written
    decided: dict[str, Any] | None

    @cached_property
    def opened(self) -> Opened:
        """The scenario to be command."""
        return Opened(LoadedScenario(load_spec(self.written.document)))


def _scenario(process: StoppedProcess) -> Made:
    if not isinstance(process.made, Made):
        before = _before(process)
        answers = ask(process.session, before) if process.link.ask("threads") else None
        made = written(before, answers)
        done = None
        if before.sched.is_alloc:
            done = decided(before, made.ids, made.names, made.step, answers)
            made = with_assignments(made, done)
        process.made = Made(made, done)
    return process.made


def save(process: StoppedProcess, command: GdbCommand) -> str:
    """Write the scenario to a file. Raises AttachError for one that cannot be loaded."""
    words = command.words
    names = [word for word in words if word != "--redact"]
    if len(names) != 1:
        raise CommandError("Name one file: ggml save FILE.json.gz [--redact].")
    path = command.path(names[0])
    if not path.name.endswith((".json", ".yaml", ".yml", ".json.gz", ".yaml.gz", ".yml.gz")):
        raise CommandError(f"{printable(path.name)} is no name of a scenario; it ends in .json.gz, .json or .yaml.")
    made = _scenario(process).written
    document = redacted(made.document) if "--redact" in words else made.document
    data = scenario_file(document)
    try:
        write_whole(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    except OSError as error:
        raise CommandError(f"cannot write {printable(str(path))}: {error.strerror or error}.") from None
    notes = "".join(f"{printable(note)}\n" for note in made.notes)
    return f"Wrote {printable(str(path))}: ggmltool plan {printable(names[0])}\n{notes}"


def why(process: StoppedProcess, command: GdbCommand) -> str:
    """Why a node runs on its backend."""
    address = process.tensor_at(command.argument.strip())
    found = _scenario(process)
    name = found.written.ids.get(address)
    if name is None:
        raise CommandError(f"{printable(command.argument.strip())} is no tensor of the graph.")
    state, record = explain_node(found.opened, Moment(GRAPH, found.written.step), name)
    return text.node(Answer(record, title_of(process.named), state.heading, state.plan), command.style)


def verified(process: StoppedProcess, command: GdbCommand) -> str:
    """What the process decided beside the plan of its scenario."""
    if command.argument.strip():
        raise CommandError("`ggml verify` takes no argument.")
    said = _scenario(process)
    if said.decided is None:
        raise CommandError(f"The scheduler has not decided yet; look when it has: {_stop(process)}.")
    return verified_view(verify_written(said.written, said.decided), title_of(process.named), command.style)
