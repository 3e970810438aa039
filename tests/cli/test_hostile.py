"""R3: what a log, a scenario, a GGUF or a command line calls its things steers no terminal and breaks no format."""

from __future__ import annotations

import json
import re
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from ggmltool.cli.main import COMMANDS
from tests.cli.conftest import SAMPLES, Call
from tests.cli.test_every_command import BYTES, IS_THERE, TALKING, WITHOUT_JSON, line

LOG = Path(__file__).parents[1] / "sources" / "logs" / "2025-03.log"
HOSTILE = {
    "title": "\x1b]0;pwn\x07", "clear": "\x1b[2J", "hide": "\x1b[8m", "nul": "\0", "bell": "\x07", "delete": "\x7f",
    "backspace": "\x08\x08", "csi": "\x9b2J", "override": "\u202e", "isolate": "\u2066", "mark": "\u200f",
    "zero width": "\u200b", "joiner": "\u2060", "bom": "\ufeff", "soft hyphen": "\xad", "line": "\u2028",
    "paragraph": "\u2029", "next line": "\x85", "tag": "\U000e0041", "selector": "\ufe0f", "filler": "\u3164",
    "space": "\xa0",
}  # fmt: skip
NAME = '"]; x [label="<b>&amp;&#27;{|}\\N[red]:smile:[/]\ufe0f\u3164'
OURS = re.compile("\x1b\\[(?:0|[12347]|3[0-7]|38;5;[0-9]+)(?:;(?:0|[12347]|3[0-7]|38;5;[0-9]+))*m")
NO_SCENARIO = BYTES | {"attach", "tui", "capture", "import", "man", "ops", "sample", "types", "explain"}
GGML_TEXT = {"splits", "graph"}


def unseen(text: str, colored: bool = False) -> set[str]:
    """The characters of a text that are not seen as they are, but for the ends of lines."""
    text = OURS.sub("", text) if colored else text
    bad = {c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    return bad | {c for c in text if c in "\u3164\ufe0f\xa0"}


@pytest.fixture
def hostile_log(tmp_path: Path) -> Path:
    """A log in which names, ops, backends, buffer types and what ggml says hold such characters."""
    text = LOG.read_text()
    for i, code in enumerate(HOSTILE.values()):
        text = text.replace(" la (", f" {code}a (", 1).replace("   MUL_MAT)", f" M{code}UL)", 1) if i % 2 else text
        text += f"\nggml_gallocr_needs_realloc: node {code}{i} is not valid\n"
        text += f"ggml_gallocr_reserve_n: reallocating C{code} buffer from size 0.00 MiB to 0.00 MiB\n"
        text += f"\n## SPLIT #0: G{code} # 1 inputs: [{code} (   0K)] \n"
        text += f"node #  0 (   M{code}):   x{code} (   0K) [G{code}   1.wgt0]: {code} (   4K) [G{code}  1.dst]\n"
    path = tmp_path / "hostile.log"
    path.write_text(text, newline="")
    return path


@pytest.fixture
def hostile_scenario(tmp_path: Path) -> Path:
    """The transformer with names that are markup somewhere, and with what Python calls printable and nobody sees."""
    from ggmltool.scenario.dump import dump
    from ggmltool.scenario.load import load_spec

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {renamed(k): renamed(v) for k, v in value.items()}
        if isinstance(value, list):
            return [renamed(v) for v in value]
        return NAME if value == "kq" else value

    scenario = renamed(dump(load_spec(SAMPLES / "transformer.yaml")))
    folder = tmp_path / "f\x1b[2J\u202e"
    folder.mkdir()
    path = folder / "s\x07\u200b.json"
    path.write_text(json.dumps(scenario | {"name": NAME}))
    return path


@pytest.mark.parametrize("options", [(), ("--format", "table"), ("--by", "op,backend"), ("--bytes",)])
def test_a_terminal_gets_no_splits_of_a_log_that_steer_it(
    call: Call, hostile_log: Path, options: tuple[str, ...]
) -> None:
    """R3"""
    for graph in range(1, 20):
        result = call("splits", "--graph", graph, *options, hostile_log, tty=True)
        assert result.status in (0, 2)
        assert unseen(result.out + result.err, colored=True) == set()


def test_a_pipe_gets_the_splits_of_a_log_byte_for_byte_and_a_terminal_with_raw(call: Call, hostile_log: Path) -> None:
    """R3"""
    piped = call("splits", "--graph", "3", hostile_log)
    assert unseen(piped.out)
    assert call("splits", "--raw", "--graph", "3", hostile_log, tty=True).out == piped.out
    assert call("splits", "--graph", "3", hostile_log, tty=True).out != piped.out


@pytest.mark.parametrize("tty", [False, True])
@pytest.mark.parametrize(
    "command",
    [("import",), ("plan",), ("plan", "--graph", "5"), ("dot",), ("splits", "--graph", "9", "--bytes"), ("diff",)],
)
def test_what_a_log_says_steers_no_terminal(call: Call, hostile_log: Path, command: tuple[str, ...], tty: bool) -> None:
    """R3"""
    logs = [f"{hostile_log}:3", f"{hostile_log}:5"] if command == ("diff",) else [hostile_log]
    result = call(*command, *logs, "--color", "always" if tty else "auto", tty=tty)
    assert result.status in (0, 1)
    assert result.out
    assert unseen(result.out + result.err, colored=tty) == set()
    if command != ("dot",):
        document = call(*command, *logs, "--json").out
        assert unseen(document) == set()
        assert json.loads(document)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in NO_SCENARIO])
@pytest.mark.parametrize("tty", [False, True])
def test_no_command_gives_a_terminal_what_a_scenario_or_its_file_is_called(
    call: Call, hostile_scenario: Path, command: str, tty: bool
) -> None:
    """R3"""
    if command in IS_THERE and not IS_THERE[command]():
        pytest.skip("the library is not installed")
    words = [w if w != "kq" else NAME for w in line(command, hostile_scenario)]
    words = [str(hostile_scenario) if w.endswith("transformer.yaml") else w for w in words]
    result = call(*words, "--color", "always" if tty else "auto", tty=tty)
    assert result.status == 2 if (command, tty) == ("report", True) else result.status in (0, 1), result.err
    shown = result.err if command in GGML_TEXT and not tty else result.out + result.err
    assert unseen(shown, colored=tty) == set()
    if command not in WITHOUT_JSON | TALKING and result.status == 0:
        document = call(*words, "--json").out
        assert unseen(document) == set()
        assert json.loads(document)


@pytest.mark.parametrize("style", ["ggml", "ggmltool"])
@pytest.mark.parametrize("fold", [False, True])
def test_a_picture_of_names_that_are_markup_is_whole(
    call: Call, hostile_scenario: Path, style: str, fold: bool
) -> None:
    """R3"""
    if shutil.which("dot") is None or (fold and style == "ggml"):
        pytest.skip("nothing to draw")
    options = ["--style", style, *(["--fold"] if fold else []), "-f", "svg"]
    drawn, plain = (call("dot", *options, file).out for file in (hostile_scenario, SAMPLES / "transformer.yaml"))
    assert drawn.count('class="node"') == plain.count('class="node"')
    assert drawn.count('class="edge"') == plain.count('class="edge"')
    assert unseen(drawn.replace("\xa0", " ")) == set()
    from xml.etree import ElementTree

    texts = "".join(ElementTree.fromstring(drawn).itertext())
    assert NAME[:-2] in texts.replace("\xa0", " ") or fold


@pytest.mark.parametrize("code", HOSTILE.values(), ids=HOSTILE)
def test_messages_about_words_of_the_command_line_are_seen_as_they_are(call: Call, code: str) -> None:
    """R3"""
    for words in (
        ("plan", f"no{code}where.yaml"), (f"pl{code}", "moe"), ("plan", f"--gr{code}"), ("run", "-t", f"{code}", "moe"),
        ("splits", "--by", f"op{code}", "moe"), ("explain", f"x{code}", "moe"), ("explain", "error", f"blah{code}"),
        ("place", "--device", f"GPU{code}:1GiB", "gemma-3-270m"), ("ops", f"rope{code}"), ("sample", f"moe{code}"),
        ("plan", "-v", "--traceback", f"no{code}where.yaml"), ("backends", "--device", f"A{code}"),
    ):  # fmt: skip
        result = call(*words, tty=True)
        assert unseen(result.out + result.err, colored=True) == set(), words
