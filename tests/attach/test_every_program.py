"""Every program does what the plan of its scenario says, and prints what it prints when nobody looks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from ggmltool.ask.attach.verified import AttachVerifyDocument, verify
from ggmltool.attach.calls import calls, visit
from ggmltool.attach.devices.asking import ask
from ggmltool.attach.reading import read_snapshot
from ggmltool.attach.session import AttachSession
from ggmltool.attach.state import Answers, Snapshot
from ggmltool.attach.write.written import GRAPH, decided, written
from tests.attach.programs import (
    decoding,
    ended,
    on_vulkan,
    output_of,
    python_program,
    scratch,
    started,
    whispering,
)
from tests.needs import compiled, library, made, needs_gcc, needs_gdb, real_vulkan
from tests.sources.random_weights import random_model

pytestmark = [needs_gdb, needs_gcc]

RESERVE, ALLOC = "ggml_backend_sched_reserve", "ggml_backend_sched_alloc_graph"
STOPS = 4
"""How often a program is stopped; what it decides then is held beside the plan."""


def in_c(release: str = "0.20.2", *arguments: str, **kind: bool) -> Callable[[], list[str]]:
    return lambda: [str(compiled(release, **kind)), *arguments]


def vulkan() -> list[str]:
    real_vulkan()
    return made(on_vulkan)


def in_python(release: str) -> Callable[[], list[str]]:
    def program() -> list[str]:
        library(release)
        return python_program("--seeds", "3:4", "transformer", release=release)

    return program


def whisper() -> list[str]:
    return made(lambda: whispering(Path(tempfile.mkdtemp(dir=scratch()))))


def llama() -> list[str]:
    library("0.26")
    return decoding(random_model("gemma3"), "2,30,40", "-n", "2")


PROGRAMS: dict[str, tuple[Callable[[], list[str]], str, str]] = {
    "C": (in_c(), "0.20.2", "GPU0"),
    "C, 0.26": (in_c("0.26"), "0.26", "GPU0"),
    "C with debug information": (in_c(debug=True), "0.20.2", "GPU0"),
    "C without symbols": (in_c(stripped=True), "0.20.2", "GPU0"),
    "C with a renamed ggml": (in_c(renamed=True), "0.20.2", "GPU0"),
    "C that forks": (in_c("0.20.2", "--fork"), "0.20.2", "GPU0"),
    "C with pipeline copies": (in_c("0.20.2", "--parallel", "--assign"), "0.20.2", "GPU0"),
    "C on Vulkan": (vulkan, "0.26", "Vulkan0"),
    "Python": (in_python("0.20.2"), "0.20.2", "CPU"),
    "whisper.cpp": (whisper, "0.20.2", "CPU"),
    "llama.cpp": (llama, "0.26", "CPU"),
}
"""Programs, the release of their ggml, and a device that they have."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_the_same_when_it_is_looked_at(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    program, release, device = PROGRAMS[name]
    arguments = program()
    status, out, _ = output_of(arguments)
    capfd.readouterr()
    with AttachSession.launch(arguments) as session:
        for _ in range(STOPS):
            session.stop_at([RESERVE, ALLOC])
            before, answers, after = decision(session)
            assert session.instance.release.name == release
            assert device in [found.name for found in before.devices.values()]
            assert beside(before, answers, after).first is None
        session.detach()
        assert session.wait() == status
    assert capfd.readouterr().out.encode() == out


def test_what_the_calls_of_an_older_ggml_leave_is_what_the_plan_leaves() -> None:
    with AttachSession.launch(whisper()) as session:
        for called in islice(calls(session, None), 4):
            seen = visit(session)
            made = seen.written
            found = verify(made.document, GRAPH, made.step, seen.decided, made.notes, seen.left)
            assert found.same, (called, found.first)
        assert session.instance.version == "0.13.1"
        session.detach()
    session.wait()


def decision(session: AttachSession) -> tuple[Snapshot, Answers, Snapshot]:
    """What is there before a call and after it, and what the devices answer."""
    function = session.function()
    sched, graph = session.link.arguments()[:2]
    before = read_snapshot(session, sched, graph, function, "before")
    answers = ask(session, before)
    session.finish()
    return before, answers, read_snapshot(session, sched, graph, function, "after")


def beside(before: Snapshot, answers: Answers, after: Snapshot) -> AttachVerifyDocument:
    """The process beside the plan of its scenario."""
    scenario = written(before, answers, after)
    process = decided(after, scenario.ids, scenario.names, scenario.step, answers)
    found = verify(scenario.document, GRAPH, scenario.step, process, scenario.notes)
    assert found.nodes == len(before.graph.nodes)
    assert found.fields > 10 * found.nodes
    return found


def test_a_running_program_is_read_and_goes_on() -> None:
    with started([compiled(), "--forever", "--pause", "1"], lines=5) as process:
        with AttachSession.attach(process.pid) as session:
            session.stop_at([ALLOC])
            assert beside(*decision(session)).same
        assert ended(process) == (0, b"done\n")
