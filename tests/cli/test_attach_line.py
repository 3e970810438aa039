"""The command line of attach says what does not go together before a program is touched."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Call

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="attach works on Linux alone")


BEHIND = (
    "No such option '--layers'. Options of the program stand behind `--`: ggmltool attach --at alloc -- sh --layers 3"
)


def refused(call: Call, *line: object) -> str:
    result = call("attach", *line)
    assert result.status == 2
    assert not result.out
    return result.err.partition("Error: ")[2].rstrip()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "--gdb 41271",
            "--gdb: It only prints a line for your own gdb, which has the program already. Leave out 41271.",
        ),
        ("--core x --graph 2 --verify", "--core: A core dump stands still at its end. Leave out --graph, --verify."),
        ("--core x --values all", "--core: A core dump stands still at its end. Leave out --values."),
        (
            "--until-abort --count 2 sh",
            "--until-abort: It waits for the end of the program alone. Leave out --count.",
        ),
        ("--timeout 2", "name a process by its number, or a program behind `--`"),
        ("--sysroot / sh", "--sysroot is for programs of another machine: --remote HOST:PORT, or --core FILE"),
        (
            "--remote :1 -- sh -c x",
            "--remote: the program runs already; name its file alone, without arguments",
        ),
        (
            "--remote nowhere",
            "'nowhere' is no place of a gdbserver: name HOST:PORT, or the path of a serial line or a socket",
        ),
        ("--remote :1 /no/such", "/no/such: No such file or directory"),
        ("--gdb-program no-such-gdb 41271", "no-such-gdb: no such gdb that can be run"),
        ("--redact sh", "--redact is for what is saved: add -o x.json.gz"),
        (
            "--at alloc sh --layers 3",
            BEHIND,
        ),
    ],
)
def test_options_that_do_not_go_together_are_named(call: Call, line: str, said: str) -> None:
    assert refused(call, *line.split()) == said


def test_a_misspelled_option_is_guessed_at(call: Call) -> None:
    assert "'--verify'" in refused(call, "--verfy", "41271")
    assert refused(call, "--at", "computes", "41271").endswith("Did you mean 'compute'?")


def test_files_are_refused_before_a_program_is_started(call: Call, tmp_path: Path) -> None:
    program = ["--", "touch", "started"]
    what = ".txt is not written here; what can be written: .json, .yaml, .yml, .gguf, each also with .gz."
    assert refused(call, "-o", "x.txt", *program) == what
    (tmp_path / "x-2.json.gz").touch()
    assert refused(call, "--count", "3", "-o", "x.json.gz", *program) == "x-2.json.gz exists; --force overwrites it"
    assert not (tmp_path / "started").exists()
