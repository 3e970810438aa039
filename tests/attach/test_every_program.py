"""Every program is stopped, read and let go, and prints what it prints without us."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ggmltool.sources.process.reading import read_snapshot
from ggmltool.sources.process.session import Session
from ggmltool.sources.process.state import Snapshot
from tests.attach.programs import (
    core_by_gdb,
    decoding,
    ended,
    environment,
    on_vulkan,
    output_of,
    python_program,
    started,
)
from tests.needs import compiled, library, made, needs_gcc, needs_gdb, real_vulkan
from tests.sources.random_weights import random_model

pytestmark = [needs_gdb, needs_gcc]

ALLOC, COMPUTE = "ggml_backend_sched_alloc_graph", "ggml_backend_sched_graph_compute_async"


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
    "llama.cpp": (llama, "0.26", "CPU"),
}
"""Programs, the release of their ggml, and a device that they have."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_the_same_when_it_is_looked_at(
    name: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program, release, device = PROGRAMS[name]
    arguments = program()
    status, out, _ = output_of(arguments)
    for key, value in environment().items():
        monkeypatch.setenv(key, value)
    capfd.readouterr()
    with Session.launch(arguments) as session:
        session.stop_at([ALLOC])
        sched, graph = session.link.arguments()[:2]
        before = read_snapshot(session, sched, graph, ALLOC, "before")
        session.finish()
        after = read_snapshot(session, sched, graph, ALLOC, "after")
        assert session.instance.release.name == release
        session.detach()
        assert session.wait() == status
    assert capfd.readouterr().out.encode() == out
    assert device in [found.name for found in before.devices.values()]
    assert_allocated(before, after)


def assert_allocated(before: Snapshot, after: Snapshot) -> None:
    """The call gave splits to the scheduler, and memory to the nodes."""
    assert not before.unread
    assert not after.unread
    assert after.sched.is_alloc
    assert after.sched.splits
    assert all(after.tensors[node].data for node in after.graph.nodes)


def test_a_running_program_is_read_and_goes_on() -> None:
    with started([compiled(), "--forever", "--pause", "1"], lines=5) as process:
        with Session.attach(process.pid) as session:
            session.stop_at([ALLOC])
            sched, graph = session.link.arguments()[:2]
            before = read_snapshot(session, sched, graph, ALLOC, "before")
            session.finish()
            assert_allocated(before, read_snapshot(session, sched, graph, ALLOC, "after"))
        assert ended(process) == (0, b"done\n")


def test_a_core_dump_is_read() -> None:
    program = compiled()
    with Session.core(str(core_by_gdb([program], COMPUTE)), str(program)) as session:
        sched, graph = session.link.arguments()[:2]
        within = read_snapshot(session, sched, graph, COMPUTE, "before")
        assert session.instance.version == "0.20.2"
    assert len(within.graph.nodes) == 24
    assert len(within.sched.splits) == 14
    assert all(within.tensors[node].data for node in within.graph.nodes)
