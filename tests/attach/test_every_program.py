"""Every program does what the plan of its scenario says, and prints what it prints when nobody looks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ggmltool.ask.attach.verified import verify_written
from ggmltool.attach.calls import ALLOC, RESERVE, Visited, visit
from ggmltool.attach.session import AttachSession
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
VERSIONS = {"whisper.cpp": "0.13.1"}
"""Versions of a ggml that has no release of its own here."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_the_same_when_it_is_looked_at(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    program, release, device = PROGRAMS[name]
    arguments = program()
    status, out, _ = output_of(arguments)
    capfd.readouterr()
    with AttachSession.launch(arguments) as session:
        for _ in range(STOPS):
            session.stop_at(RESERVE + ALLOC)
            seen = verified(session)
            assert session.instance.release.name == release
            assert session.instance.version.startswith(VERSIONS.get(name, release))
            assert device in [found.name for found in seen.before.devices.values()]
        session.detach()
        assert session.wait() == status
    assert capfd.readouterr().out.encode() == out


def verified(session: AttachSession) -> Visited:
    """The call that a program is stopped at, which does what its plan says."""
    seen = visit(session)
    found = verify_written(seen.written, seen.decided, seen.left)
    assert found.first is None
    assert found.nodes == len(seen.before.graph.nodes)
    assert found.fields > 10 * found.nodes
    return seen


def test_a_running_program_is_read_and_goes_on() -> None:
    with started([compiled(), "--forever", "--pause", "1"], lines=5) as process:
        with AttachSession.attach(process.pid) as session:
            session.stop_at(ALLOC)
            verified(session)
        assert ended(process) == (0, b"done\n")
