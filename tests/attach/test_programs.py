"""The programs that are attached to elsewhere say the same each time, and die when they are told to."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.attach.programs import (
    core_by_gdb,
    core_of,
    decoding,
    ended,
    linked,
    on_vulkan,
    output_of,
    python_program,
    started,
    whispering,
)
from tests.needs import compiled, library, made, needs_gcc, needs_gdb, real_vulkan
from tests.sources.library import needs_library
from tests.sources.random_weights import random_model

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
def test_it_runs_until_it_is_told_to_end() -> None:
    with started([compiled(), "--forever", "--pause", "1"], lines=5) as process:
        assert ended(process) == (0, b"done\n")


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


@needs_gcc
@needs_gdb
def test_there_are_cores_of_it() -> None:
    assert core_by_gdb([compiled()], "ggml_backend_sched_graph_compute_async").stat().st_size > 1 << 16
    written = core_of([compiled(), "--crash"])
    if written is None:
        pytest.skip("this system writes core dumps elsewhere: /proc/sys/kernel/core_pattern")
    assert written.stat().st_size > 1 << 16


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


@needs_library
def test_llama_cpp_decodes_tokens() -> None:
    program = decoding(random_model("gemma3"), "2,30,40")
    status, out, err = output_of(program)
    assert status == 0, err
    assert len(out.split()) == 4
    assert output_of(program)[1] == out


def test_whisper_cpp_hears_a_word_in_noise(tmp_path: Path) -> None:
    status, out, err = output_of(made(lambda: whispering(tmp_path)))
    assert status == 0, err
    assert out.startswith(b"w")
