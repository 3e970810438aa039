"""What there is: ops, types, devices, samples, what messages mean; and what logs and records tell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, overload

from ggmltool.ask.answer import Answer
from ggmltool.ask.backends import backends as ask_backends
from ggmltool.ask.backends import profiles
from ggmltool.ask.checked import checked
from ggmltool.ask.ops import ops as ask_ops
from ggmltool.ask.types import types as ask_types
from ggmltool.inspect.ready import check_weights, computed_graphs
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.ask.backends.record import MadeBackends, Profiles
    from ggmltool.ask.explain.message import ExplainedMessage, NoMessage
    from ggmltool.ask.log.record import ImportedGraph, ImportedLog
    from ggmltool.ask.reference.record import Samples
    from ggmltool.inspect.opened import Opened
    from ggmltool.state.story.history import History

ops = checked(ask_ops)
types = checked(ask_types)


@checked
def backends(*devices: str, ggml: str | None = None) -> Answer[Profiles] | Answer[MadeBackends]:
    """The kinds of devices that are known, or the backends of these: `backends("CUDA0:24GiB", "CPU")`.

    `ggml` is a release, by default the newest. Raises InspectError for a device or a release that there is not.
    """
    from ggmltool.ggml.releases.table import DEFAULT
    from ggmltool.scenario.devices.texts import read_devices
    from ggmltool.scenario.errors import Mistake
    from ggmltool.scenario.spec import ScenarioSpec
    from ggmltool.scenario.versions import read_ggml

    try:
        release = DEFAULT if ggml is None else read_ggml(ggml)
        made = read_devices(devices, release) if devices else []
    except Mistake as mistake:
        raise InspectError(mistake.message + (f"; {mistake.expected}" if mistake.expected else "")) from None
    if not devices:
        return profiles(release)
    return ask_backends(ScenarioSpec("", made, [], [], {}, [], release=release), "devices")


@checked
def samples() -> Answer[Samples]:
    """The samples, with what each teaches; `load` takes their names."""
    from ggmltool.ask.reference.record import sample_infos

    return Answer(sample_infos())


@checked
def explain_error(text: str) -> Answer[ExplainedMessage | NoMessage]:
    """What a message of ggml's or llama.cpp's means: a line of a log, or a whole one.

    Raises InspectError with the nearest ones where no message is known of these words.
    """
    from ggmltool.ask.explain import message_of

    answer = message_of(text)
    if not answer.fine:
        raise InspectError(answer.text())
    return answer


def record(opened: Opened, path: str | Path | None, compute: bool, zeros: bool) -> History:
    """The history of a scenario's steps, also written to `path` (see `Scenario.record`)."""
    from ggmltool.state.story.history import record_history

    graphs = computed_graphs(opened.model)
    if compute and graphs and not zeros:
        check_weights(opened.model, graphs, opened.model.steps, "record(compute=False)")
    history = record_history(opened.scenario, compute)
    if path is not None:
        from ggmltool.state.story.record import record_bytes

        Path(path).write_bytes(record_bytes(history))
    return history


@checked
def open_record(path: str | Path) -> History:
    """The history in the file of a record: its points, the state at each, and the call stack.

    Raises ScenarioError for a file that is none, or cannot be read.
    """
    from ggmltool.state.story.record import open_history

    return open_history(path)


@overload
def import_log(path: str | Path, graph: None = None) -> Answer[ImportedLog]: ...


@overload
def import_log(path: str | Path, graph: int | str) -> Answer[ImportedGraph]: ...


@checked
def import_log(path: str | Path, graph: int | str | None = None) -> Answer[ImportedLog] | Answer[ImportedGraph]:
    """What a log of GGML_SCHED_DEBUG=2 tells: its graphs, how often buffers were reallocated and why, memory.

    `path` is a file, also `.gz`. With `graph`, a number or a part of its title, that graph, of which `plan` is as much
    as the log tells; `scenario.diff` compares a plan with it. Raises ScenarioError for what is no such log, or has no
    such graph.
    """
    from ggmltool.ask.log.record import graph_answer, log_answer
    from ggmltool.sources.sched_log.reader import read_graph, read_summary
    from ggmltool.sources.sched_log.stream import open_log

    file, title = str(path), Path(path).name
    with open_log(file, file) as lines:
        if graph is None:
            return log_answer(read_summary(lines), file, title)
        found, _ = read_graph(lines, str(graph))
    return graph_answer(found, file, title, "scenario.diff(…)")
