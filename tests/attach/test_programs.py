"""The programs that are attached to elsewhere say the same each time, and die when they are told to."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.attach.programs import linked, on_vulkan, output_of, python_program, started
from tests.needs import compiled, library, made, needs_gcc, real_vulkan

LINES = [
    "graph 0, scheduler 0, tokens 2, splits 14: -11.955",
    "graph 1, scheduler 0, tokens 64, splits 16: -17.172",
    "graph 2, scheduler 0, tokens 1, splits 14: -8.3503",
]


@needs_gcc
@pytest.mark.parametrize("kind", ["", "debug", "stripped", "renamed"])
@pytest.mark.parametrize("release", ["0.20.2", "0.26"])
def test_the_program_in_c_computes_the_same_with_every_ggml(release: str, kind: str) -> None:
    program = compiled(release, **({kind: True} if kind else {}))
    status, out, _ = output_of([program])
    assert (status, out.decode().splitlines()) == (0, [f"ggml {linked(release).version}", *LINES, "done"])


@needs_gcc
def test_a_renamed_ggml_says_nothing_of_its_name() -> None:
    with started([compiled(renamed=True), "--forever"]) as process:
        maps = Path(f"/proc/{process.pid}/maps").read_text()
    assert "libengine-a" in maps
    assert "libggml" not in maps


@needs_gcc
def test_it_has_threads_processes_and_schedulers() -> None:
    program = compiled()
    _, out, _ = output_of([program, "--threads", "3"])
    assert out.decode().splitlines()[1:] == [line for i in range(3) for line in (f"worker {i}", *LINES)] + ["done"]
    _, out, _ = output_of([program, "--fork", "--schedulers", "2", "--iterations", "1"])
    once = [LINES[0], LINES[1].replace("graph 1, scheduler 0", "graph 0, scheduler 1")]
    assert out.decode().splitlines()[1:] == [*once, "the child ended with 0", *once, "done"]


@needs_gcc
@pytest.mark.parametrize(
    ("arguments", "killed", "said"),
    [
        (["--abort", "buffer"], signal.SIGABRT, b"tensor buffer not set"),
        (["--abort", "preallocated"], signal.SIGABRT, b"in a buffer (GPU0) that cannot run the operation (UNARY)"),
        (["--crash"], signal.SIGSEGV, b""),
    ],
)
def test_it_dies_as_it_is_told(arguments: list[str], killed: int, said: bytes) -> None:
    status, _, err = output_of([compiled(), *arguments])
    assert status == -killed
    assert said in err


@needs_gcc
def test_its_device_computes_wrong_values_on_demand() -> None:
    program = compiled()
    assert output_of([program])[1] != output_of([program, "--wrong"])[1]


@pytest.mark.parametrize("release", ["0.20.2", "0.26"])
def test_the_program_in_python_prints_what_its_schedulers_planned(release: str) -> None:
    library(release)
    status, out, err = output_of(python_program("--seeds", "2:4", "transformer", release=release))
    assert status == 0, err
    plans = [json.loads(line) for line in out.splitlines() if line.startswith(b"{")]
    assert [plan["splits"] for plan in plans]
    assert out.endswith(b"done\n")


@needs_gcc
def test_the_real_vulkan_device_computes_what_the_tests_device_does() -> None:
    real_vulkan()
    status, out, err = output_of(made(on_vulkan))
    assert status == 0, err
    assert [line.rpartition(": ")[2] for line in out.decode().splitlines()[1:-1]] == [
        line.rpartition(": ")[2] for line in LINES
    ]
