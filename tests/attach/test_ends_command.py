"""`attach` tells the end of a program that comes meanwhile, waits for it, and looks at core dumps."""

from __future__ import annotations

import gzip
import json
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.attach.conftest import Attach
from tests.attach.programs import core_by_gdb, core_of, output_of, python_program
from tests.cli.conftest import Call
from tests.needs import compiled, library, needs_gcc, needs_gdb

pytestmark = [needs_gcc, needs_gdb]


@pytest.fixture(autouse=True)
def _wide(attach: Attach, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


@pytest.mark.parametrize("options", [("--until-abort",), ("--at", "compute"), ()])
def test_an_abort_is_told_and_the_program_dies_as_without_us(attach: Attach, options: tuple[str, ...]) -> None:
    program = [compiled("0.20.2"), "--abort", "preallocated"]
    status, out, err = attach(*options, "--", *program)
    alone = output_of(program)
    assert status == 1
    assert out.encode() == alone[1]
    assert err.startswith(alone[2].decode())
    assert "GPU0: not the op, CPU: not its memory" in err
    assert "ends with the same words" in err


def test_the_scenario_of_an_abort_ends_in_it_with_its_names_or_without(
    attach: Attach, call: Call, tmp_path: Path
) -> None:
    program = ["--", compiled("0.20.2"), "--abort", "preallocated"]
    for name, options in (("blk.0.up.weight (view)", []), ("t00", ["--redact"])):
        file = tmp_path / f"{len(options)}.json.gz"
        assert attach("--until-abort", "-o", file, *options, *program)[0] == 1
        assert (b"blk." in gzip.decompress(file.read_bytes())) == (not options)
        planned = call("plan", file)
        assert planned.status == 1
        assert f"pre-allocated tensor ({name}" in planned.err


def test_a_signal_is_told_with_the_function_that_it_came_in(attach: Attach) -> None:
    status, _, err = attach("--until-abort", "--", compiled("0.20.2"), "--crash")
    assert status == 1
    assert "SIGSEGV in backend_compute · " in err
    assert "It read or wrote where it has no memory." in err


def test_a_program_that_does_not_abort_is_said_to_have_ended(attach: Attach) -> None:
    status, out, err = attach("--until-abort", "--", compiled("0.20.2"))
    assert status == 1
    assert out.endswith("done\n")
    assert "ended with status 0, by no abort" in err


def test_a_core_dump_as_json(attach: Attach) -> None:
    core = core_of([compiled("0.20.2"), "--abort", "preallocated"])
    if core is None:
        pytest.skip("this system writes core dumps elsewhere: /proc/sys/kernel/core_pattern")
    status, out, _ = attach("--json", "--core", core, compiled("0.20.2"))
    document = json.loads(out)
    assert (status, document["kind"], document["signal"]) == (1, "attach_end", signal.SIGABRT.name)
    assert document["plan"]["same"] is True
    (tensor,) = document["tensors"]
    assert (tensor["known_by"], tensor["node"]) == ("named", 0)
    assert tensor["backends"] == [
        {"backend": "GPU0", "op": False, "memory": True},
        {"backend": "CPU", "op": True, "memory": False},
    ]


def test_a_core_dump_of_a_program_that_lives_shows_what_it_had_decided(attach: Attach) -> None:
    core = core_by_gdb([compiled("0.20.2")], "ggml_backend_sched_graph_compute_async")
    status, out, _ = attach("--core", core, compiled("0.20.2"))
    assert status == 0
    assert out.startswith("stopped in ggml_backend_sched_graph_compute_async")
    assert "the program did what the plan says" in out


def test_a_question_at_which_a_device_aborts_is_given_up_and_the_program_lives(attach: Attach) -> None:
    program = [compiled("0.20.2"), "--picky"]
    status, out, err = attach("--verify", "--", *program)
    assert (status, out.encode()) == output_of(program)[:2]
    assert "the program did what the plan says" in err
    assert "nobody asks about an input" not in err


@pytest.mark.parametrize("options", [["--compare"], ["--values", "all", "-o", "died.gguf"]])
def test_a_program_that_dies_while_its_values_are_read_is_explained(
    attach: Attach, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, err = attach(*options, "--", compiled("0.20.2"), "--crash")
    assert status == 1
    assert "SIGSEGV in backend_compute" in err
    assert "It read or wrote where it has no memory." in err
    assert [file.name for file in tmp_path.iterdir()] == (["died.json.gz"] if "-o" in options else [])


def test_what_a_core_dump_lacks_is_said(attach: Attach, tmp_path: Path) -> None:
    program = tmp_path / "my program"
    shutil.copy(compiled("0.20.2"), program)
    core = core_of([program, "--abort", "preallocated"])
    if core is None:
        pytest.skip("this system writes core dumps elsewhere: /proc/sys/kernel/core_pattern")
    named = tmp_path / "my 'core' \"1\""
    core.rename(named)
    assert "pre-allocated tensor" in attach("--core", named)[1]
    cut = tmp_path / "cut"
    cut.write_bytes(named.read_bytes()[:300_000])
    assert "The core dump is cut off: its last " in attach("--core", cut)[2]
    other = tmp_path / "other"
    shutil.copy(sys.executable, other)
    assert "Another file now than the one that was mapped, by its build-id: " in attach("--core", named, other)[2]
    program.unlink()
    assert f"Not here, so that neither its code nor its symbols are known: {program}" in attach("--core", named)[2]


def test_devices_whose_functions_do_more_than_read_are_deduced(attach: Attach) -> None:
    library("0.26")  # the other copies of ggml that the program has loaded have no scheduler
    program = python_program("--values", "moe", release="0.26")
    core = core_by_gdb(program, "ggml_backend_sched_graph_compute_async")
    status, out, _ = attach("--core", core)
    assert status == 0
    assert "which ops the devices take: each is held to take the nodes that it was given" in out
    assert "the program did what the plan says" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--core", __file__], "is no core dump"),
        (["--core", "/nonexistent"], "No such file"),
        (["--core", __file__, "--until-abort"], "Leave out --until-abort"),
        (["--redact", "1"], "add -o"),
    ],
)
def test_wrong_use_is_one_message(attach: Attach, arguments: list[str], said: str) -> None:
    status, out, err = attach(*arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert "Traceback" not in err
