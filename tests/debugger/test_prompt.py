"""What the prompt does with lines, whoever writes them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import ggmltool
from ggmltool.debugger.command import Repeat, find
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.prompt import COMMANDS
from ggmltool.state.story.history import record_history
from tests.debugger.sessions import history_of, prompt_of, transcript
from tests.golden import check_golden

GDB = {
    "b": "break", "br": "break", "tb": "tbreak", "c": "continue", "s": "step", "n": "next", "f": "frame", "p": "print",
    "i": "info", "l": "list", "r": "run", "bt": "backtrace", "where": "backtrace", "rs": "reverse-step",
    "rn": "reverse-next", "rc": "reverse-continue", "fin": "finish", "u": "until", "d": "delete", "h": "help",
    "q": "quit", "cond": "condition", "dis": "disable", "en": "enable", "disp": "display", "wat": "watch",
    "reverse-f": "reverse-finish", "undisp": "undisplay", "ig": "ignore", "adv": "advance",
}  # fmt: skip
"""Abbreviations that gdb takes."""


@pytest.mark.parametrize(("word", "name"), GDB.items())
def test_the_abbreviations_of_gdb_are_taken(word: str, name: str) -> None:
    assert find(word, COMMANDS).name == name


def test_what_is_not_unique_is_refused_with_what_it_could_be() -> None:
    with pytest.raises(CommandError, match=r'^Ambiguous command "re": reverse-continue, '):
        find("re", COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.name)
def test_help_of_every_command_begins_with_what_it_does(command: Any) -> None:
    said = prompt_of(history_of("matmul")).said(f"help {command.name}")
    assert said.startswith(", ".join((command.name, *command.aliases)) + "\n")
    assert command.summary.endswith(".")
    assert "Usage: " in said or "Example: " in said or command.name == "quit"
    assert max(map(len, said.splitlines())) <= 120


def test_the_examples_of_help_work() -> None:
    history = history_of("matmul")
    for command in COMMANDS:
        for example in re.findall(r"^Example: (.*)$", command.help, re.MULTILINE):
            prompt = prompt_of(history)
            prompt.said("break result")
            prompt.said("run")
            prompt.said("bt")
            for line in re.split(r",? then ", example):
                said = prompt.said(line)
                assert not re.search("No symbol|Undefined|No tensor|not defined", said), (line, said)


def test_why_knows_what_the_program_assigned_until_the_graph_of_the_next_step_is_split() -> None:
    history = history_of("versions-2026")
    prompt = prompt_of(history)
    said = {}
    for at in range(len(history.points)):
        prompt.said("start" if at == 0 else f"goto {at}")
        said[at] = prompt.said("why heavy").splitlines()[0]
    assigned = [at for at, point in enumerate(history.points) if getattr(point.event, "cause", "") == "usr"]
    after = next(at for at, point in enumerate(history.points) if point.step == history.points[assigned[0]].step + 1)
    assert {said[at] for at in range(assigned[0])} == {"Nothing is decided about heavy yet."}
    assert {said[at] for at in range(assigned[0], after)} == {"heavy is on GPU0."}


def test_scripts_end_at_what_fails_and_name_the_line(tmp_path: Path) -> None:
    script = tmp_path / "x.ggdb"
    script.write_text("start\n# nothing\n\nfoo\nstep\n", "utf-8")
    prompt = prompt_of(history_of("matmul"))
    said = prompt.said(f"source {script}")
    assert said.endswith(f'{script}:4: Error in sourced command file:\nUndefined command: "foo".  Try "help".\n')
    assert prompt.session.at == 0


def test_scripts_may_not_read_themselves_for_ever(tmp_path: Path) -> None:
    script = tmp_path / "x.ggdb"
    script.write_text(f"source {script}\n", "utf-8")
    assert "nested too deep" in prompt_of(history_of("matmul")).said(f"source {script}")


def test_a_hostile_name_reaches_the_terminal_escaped() -> None:
    name = "\u202e[2J\u200b]0;gone\u2066evil\ufe0f"
    scenario = {
        "ggmltool": 1,
        "backends": ["CPU"],
        "contexts": {"inputs": {"tensors": {"a": {"type": "f32", "ne": [4]}}}},
        "graphs": {"main": {"nodes": {name: "sqr(a)"}}},
    }
    history = record_history(ggmltool.load(scenario), False)
    lines = ["break backend", "catch abort", "run", "rc", "goto 12", "bt", "list", "info tensors", "info splits", "why"]
    prompt = prompt_of(history)
    said = "".join(prompt.said(line) for line in [*lines, "info locals", "explain", f"break {name}", "info b", "rs 3"])
    assert "2J" in said
    assert not set("\u202e\u200b\u2066\ufe0f\x1b") & set(said)


def test_commands_that_change_nothing_may_be_repeated() -> None:
    for command in COMMANDS:
        if command.name in ("delete", "break", "tbreak", "watch", "quit", "run", "undisplay", "set"):
            assert command.repeat is Repeat.NO


def test_a_scenario_that_ggml_aborts_ends_with_its_words_and_its_stack() -> None:
    lines = ["catch abort", "run", "bt", "delete", "rs", "c"]
    said = transcript(history_of("buffer-not-set"), lines)
    assert 'GGML_ASSERT(buf != NULL && "tensor buffer not set") failed' in said
    assert "\nCatchpoint 1, " in said
    assert "\nProgram received signal SIGABRT, Aborted.\n" in said


NINES = "9" * 400
NONSENSE = [
    "p " + "(" * 5000, f"x/{NINES}x 0", "delete 1-" + "9" * 19, f"list {NINES}", f"break {NINES}", f"step {NINES}",
    f"frame {NINES}", f"p {NINES}", "info functions (", f"ignore 1 {NINES}", f"set width {NINES}", f"c {NINES}",
    f"break offset CPU {NINES}", f"until {NINES * 20}", "\0", "p \0", "b \udcff", "p/" + "x" * 5000, "info " + NINES,
    "ptype int" + "[9]" * 1000, "source \0",
]  # fmt: skip


@pytest.mark.parametrize("line", NONSENSE, ids=lambda line: ascii(line)[1:20])
def test_nonsense_is_refused_and_the_session_goes_on(line: str) -> None:
    prompt = prompt_of(history_of("matmul"))
    prompt.said("start")
    prompt.said(line)
    assert "stands at event" in prompt.said("info program")


def test_structs_that_are_too_old_for_the_state_are_refused() -> None:
    prompt = prompt_of(history_of("inplace"))
    prompt.said("run")
    assert prompt.said("symbol-file 2024-01").startswith("The structs of 2024-01 cannot show")
    assert prompt.said("p *galloc->buf_tallocs[0]").startswith("$1 = {")


def test_a_line_that_nobody_types_is_refused_in_few_words(tmp_path: Path) -> None:
    prompt = prompt_of(history_of("matmul"))
    refused = "The line has 100004 characters; at most 4096 are read.\n"
    assert prompt.said("why " + "z" * 100_000) == refused
    script = tmp_path / "x.ggdb"
    script.write_bytes(b"why " + bytes(100_000))
    assert prompt.said(f"source {script}").endswith(f":1: Error in sourced command file:\n{refused}")


HERE = Path(__file__).parent
SCRIPTS = sorted((HERE / "scripts").glob("*.ggdb"))
ROOT = re.compile(r"/\S*/sample_graphs")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_session_prints_what_it_printed(script: Path) -> None:
    first, *lines = script.read_text("utf-8").splitlines()
    sample = first.removeprefix("# ")
    said = transcript(history_of(sample), lines, sample)
    check_golden(HERE / "golden" / f"{script.stem}.txt", ROOT.sub("sample_graphs", said))
