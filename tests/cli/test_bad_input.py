"""Bad input of every kind through the command line: one message with its place, the right status, nothing lost.

What the loader says to mistakes in a scenario is in tests/scenario/test_mistakes.py; here is what comes from outside of
it: files of any content, paths, data beside the scenario, the command line itself, and what names can do to an output.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from ggmltool.cli.main import COMMANDS, cli
from tests.cli.conftest import SAMPLES, Call, Result, bash, python
from tests.cli.test_every_command import BYTES, IS_THERE, TALKING, WITHOUT_JSON, line

HEAD = "ggmltool: 1\nbackends: [CPU]\n"
TENSOR = "contexts: {c: {buft: CPU, tensors: {x: %s}}}\n"
GRAPH = "graphs: {main: {nodes: {y: sqr(x)}}}\n"
GOOD = HEAD + TENSOR % "'f32[4]'" + GRAPH
MIB = 2**20
FIVE_MB = "n" * 5_000_000
MILLION = 1_000_000

SECONDS, MEMORY = 2.0, 300 * MIB
"""A second of a quiet machine, doubled for one that also runs other tests; and what the process may take."""


def data(text: str, type: str = "f32") -> str:
    return HEAD + TENSOR % f"{{type: {type}, ne: [4], data: {text}}}" + GRAPH


def npy(header: bytes, content: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", len(header))
    return b"\x93NUMPY" + version + size + header + content


def array(shape: str, dtype: str = "<f4") -> bytes:
    return f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"


def alias_bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    return "\n".join(lines)


FILES: dict[str, tuple[str, str | bytes, str]] = {
    # what it is: the file's name, its content, and how the message starts
    "an empty file": ("a.yaml", "", "a.yaml: there is nothing in this file"),
    "an empty JSON file": ("a.json", "", "a.json: there is nothing in this file"),
    "white space": ("a.yaml", "\n \n", "a.yaml: there is nothing in this file"),
    "a comment only": ("a.yaml", "# soon\n", "a.yaml: there is nothing in this file"),
    "binary junk": ("a.yaml", bytes(range(256)) * 4000, "a.yaml:2:118: this is not text: byte 0x80 is not UTF-8"),
    "a program": ("a", b"\x7fELF\x02\x01\x01" + bytes(1000), "a:1:1: this is not YAML: control characters"),
    "NUL bytes": ("a.json", bytes(1000), "a.json:1:1: this is not JSON"),
    "Latin-1": ("a.yaml", "ggmltool: 1\nname: café\n".encode("latin-1"), "a.yaml:2:10: this is not text: byte 0xe9"),
    "text that is no gzip": ("a.yaml.gz", b"hello", "a.yaml.gz:1:1: a scenario must be a map"),
    "gzip cut off": ("a.yaml.gz", gzip.compress(HEAD.encode() * 99)[:40], "a.yaml.gz: this gzip file is cut off"),
    "gzip that is damaged": ("a.yaml.gz", gzip.compress(b"x")[:-8] + bytes(8), "a.yaml.gz: this gzip file is damaged"),
    "an empty gzip file": ("a.json.gz", gzip.compress(b""), "a.json.gz: there is nothing in this file"),
    "half of UTF-16": (
        "a.yaml", "ggmltool: 1".encode("utf-16") + b"\0",
        "a.yaml: this begins as UTF-16-LE, and byte 24 cannot be decoded (truncated data)",
    ),
    "a model": ("a.json", b"GGUF\3\0", "a.json: this is a GGUF file, a model; `ggmltool capture` makes it a scenario"),
    "an array": ("a", b"\x93NUMPY", "a: this is an npy file, not a scenario"),
    "another kind of JSON": ("a.json", '{"nbformat": 4}', "a.json:1:1: this is not a scenario: it has"),
    "a list": ("a.json", "[[[]]]", "a.json:1:1: a scenario must be a map, not a list"),
    "a number of 5000 digits": ("a.yaml", HEAD + "scheduler: {graph_size: " + "9" * 5000 + "}\n", "a.yaml:3:25: "),
    "a graph size beyond memory": ("a.yaml", GOOD + f"scheduler: {{graph_size: {2**63 - 1}}}\n", "a.yaml:5:25: graph_"),
    "data beyond memory": (
        "a.yaml",
        HEAD + TENSOR % "{type: f32, ne: [4000000000000], data: {fill: 1}}",
        "a.yaml:3:79: data for 4000000000000 elements",
    ),
    "a 5 MB title": ("a.yaml", HEAD + f"name: {FIVE_MB}\n", "a.yaml:3:7: name has 5000000 characters; at most 10000"),
    "a 5 MB key": ("a.json", f'{{"ggmltool": 1, "{FIVE_MB}": 1}}', 'a.json:1:17: a scenario has no key "nnnnn'),
    "a 5 MB tensor name": (
        "a.json",
        f'{{"ggmltool": 1, "contexts": {{"c": {{"tensors": {{"{FIVE_MB}": "f32[4]"}}}}}}}}',
        'a.json:1:48: id "nnnn',
    ),
    "a 5 MB short form": ("a.yaml", HEAD + f"graphs: {{g: {{nodes: {{y: sqr({FIVE_MB})}}}}}}\n", "a.yaml:3:25: "),
    "a 5 MB graph name in a step": ("a.yaml", GOOD + f"steps: [alloc {FIVE_MB}]\n", "a.yaml:5:15: there is no graph"),
    "10^6 brackets": ("a.yaml", HEAD + "a: " + "[" * MILLION, "a.yaml:3:53: this is nested too deeply"),
    "10^6 maps": ("a.yaml", HEAD + "a: " + "{a: " * MILLION, "a.yaml:3:200: this is nested too deeply"),
    "10^6 dashes": ("a.yaml", HEAD + "a:\n  " + "- " * MILLION, "a.yaml:4:101: this is nested too deeply"),
    "10^6 JSON maps": ("a.json", '{"ggmltool": 1, "a": ' + '{"a":' * MILLION, "a.json:1:1017: this is nested too de"),
    "10^6 nested calls": ("a.yaml", HEAD + f"graphs: {{g: {{nodes: {{y: '{'sqr(' * MILLION}'}}}}}}\n", "a.yaml:3:25: "),
    "deep data": ("a.yaml", data("[" * 40 + "1" + "]" * 40), "a.yaml:3:"),
    "an alias bomb": ("a.yaml", alias_bomb(), "a.yaml:7:10: more than 2000000 values"),
    "a merge key": ("a.yaml", HEAD + "name: &a x\n<<: *a\n", 'a.yaml:4:1: << takes a map, or a list of maps'),
    "no base64": ("a.yaml", data("{base64: '!!!!'}"), "a.yaml:3:76: this is not base64"),
    "base64 cut off": ("a.yaml", data("{base64: AAAAA}"), "a.yaml:3:76: this is not base64"),
    "base64 beyond ASCII": ("a.yaml", data("{base64: 'ÄÄÄÄ'}"), "a.yaml:3:76: this is not base64"),
    "base64 of the wrong size": ("a.yaml", data("{base64: AAAA}"), "a.yaml:3:76: base64 gives 3 bytes; f32[4] has 16"),
    "data of the wrong size": ("a.yaml", data("[1, 2]"), "a.yaml:3:67: data has 2 values; f32[4] has 4 elements"),
    "a path that goes up": ("a.yaml", data("{npy: ../../etc/passwd}"), 'a.yaml:3:73: "../../etc/passwd" lies outside'),
    "an absolute path": ("a.yaml", data("{npy: /etc/passwd}"), 'a.yaml:3:73: "/etc/passwd" lies outside'),
    "a link that leads out": ("a.yaml", data("{npy: link.npy}"), 'a.yaml:3:73: "link.npy" lies outside'),
    "data that is missing": ("a.yaml", data("{npy: nope.npy}"), 'a.yaml:3:73: there is no file "nope.npy"'),
    "data that is a folder": ("a.yaml", data("{npy: .}"), 'a.yaml:3:73: "." is not a regular file'),
    "data that is a pipe": ("a.yaml", data("{gguf: pipe, tensor: w}"), 'a.yaml:3:74: "pipe" is not a regular file'),
    "a NUL in a path": ("a.yaml", data('{npy: "a\\0b"}'), 'a.yaml:3:73: "a\\x00b" cannot be read'),
}  # fmt: skip

BESIDE: dict[str, tuple[str, bytes, str]] = {
    # what it is: its name, its content, and the message without its place
    "an empty npy file": ("w.npy", b"", '"w.npy" is not an npy file that can be read'),
    "an npy file of text": ("w.npy", b"hello", '"w.npy" is not an npy file that can be read'),
    "an npy file without its values": ("w.npy", npy(array("(4,)")), '"w.npy" is not an npy file that can be read'),
    "an npy file of 4 TB": ("w.npy", npy(array("(1000000000000,)")), '"w.npy" is not an npy file that can be read'),
    "an npy file of objects": ("w.npy", npy(array("(4,)", "|O")), '"w.npy" is not an npy file that can be read'),
    "an npy file of texts": ("w.npy", npy(array("(1,)", "<U1"), b"a\0\0\0"), 'holds "<U1", not numbers'),
    "an npy file of complex numbers": ("w.npy", npy(array("(4,)", "<c8"), bytes(32)), "not numbers"),
    "an npy file of another shape": ("w.npy", npy(array("(5,)"), bytes(20)), 'in "w.npy" has the shape (5,)'),
    "an npy file of the future": ("w.npy", npy(b"x" * 99, b"", b"\x09\x00"), '"w.npy" is not an npy file'),
    "an npy header of brackets": ("w.npy", npy(b"(" * 9999, b"", b"\x02\x00"), '"w.npy" is not an npy file'),
    "a GGUF file of text": ("w.gguf", b"hello", '"w.gguf" is not a GGUF file'),
    "a GGUF file of four bytes": ("w.gguf", b"GGUF", '"w.gguf" is a damaged GGUF file: it ends too early'),
    "a GGUF file of 2^60 tensors": (
        "w.gguf",
        b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60),
        '"w.gguf" is a damaged GGUF file: it ends too early',
    ),
    "a GGUF file with a key of 2^50 bytes": (
        "w.gguf",
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 50),
        '"w.gguf" is a damaged GGUF file',
    ),
    "a GGUF tensor of 2^80 elements": (
        "w.gguf",
        b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"w" + struct.pack("<IQQIQ", 2, 1 << 40, 1 << 40, 0, 0),
        '"w.gguf" is a damaged GGUF file',
    ),
}

LINES: dict[str, tuple[tuple[str, ...], str]] = {
    # what it is: the command line, and what the message says
    "an unknown command": (("spilts", "good.yaml"), "No such command 'spilts'. Did you mean 'splits'?"),
    "an unknown option": (("plan", "--setp", "x"), "No such option '--setp'"),
    "a wrong choice": (("plan", "--step", "rserve", "good.yaml"), "'rserve' is not one of 'reserve', 'alloc'"),
    "a number out of range": (("splits", "--debug", "9" * 30, "good.yaml"), "is not in the range 1<=x<=2"),
    "no number": (("splits", "--debug", "two", "good.yaml"), "'two' is not a valid int"),
    "an option without its value": (("plan", "good.yaml", "--graph"), "'--graph' requires an argument"),
    "a value for a flag": (("plan", "--json=yes", "good.yaml"), "'--json' does not take a value"),
    "two scenarios": (("plan", "good.yaml", "good.yaml"), "unexpected extra argument (good.yaml)"),
    "an unknown graph": (("plan", "-g", "mian", "good.yaml"), "no graph is called \"mian\"; did you mean \"main\"?"),
    "an unknown node": (("run", "-t", "yy", "good.yaml"), "no tensor is called \"yy\"; did you mean \"y\"?"),
    "an unknown node in a table": (("hash", "--at", "yy", "good.yaml"), 'did you mean "y"?'),
    "an unknown tensor": (("tensor", "yy", "good.yaml"), "graph main has no tensor \"yy\"; did you mean \"y\"?"),
    "a wrong word in a list": (("splits", "--by", "op,bakend", "good.yaml"), "Did you mean 'backend'?"),
    "an unknown colour": (("--color", "blue", "plan", "good.yaml"), "'blue' is not one of 'auto', 'always', 'never'"),
    "a picture of no format": (("dot", "good.yaml", "-o", "x.bmp"), "cannot tell a format from x.bmp"),
    "a missing file": (("plan", "nowhere.yaml"), "nowhere.yaml: there is no such file"),
    "a folder": (("plan", "."), ".: this is a directory; name a scenario file"),
    "no name": (("plan", ""), "this is a directory; name a scenario file"),
    "a file taken for a folder": (("plan", "good.yaml/x"), "good.yaml/x: cannot be read: Not a directory"),
    "a name with a NUL": (("plan", "a\0b"), "this is not a file name"),
    "a name of 5000 characters": (("plan", "n" * 5000), "cannot be read: File name too long"),
    "an output in no folder": (("plan", "good.yaml", "-o", "no/x"), "the folder no does not exist; make it first"),
    "an output that is a folder": (("plan", "good.yaml", "-o", "."), ". is a folder; name a file in it"),
    "an output below a file": (("plan", "good.yaml", "-o", "good.yaml/x"), "the folder good.yaml does not exist"),
    "an output that is full": (("plan", "good.yaml", "-o", "/dev/full"), "cannot write /dev/full: No space left"),
    "an output that exists": (("plan", "good.yaml", "-o", "old.txt"), "old.txt exists; --force overwrites it"),
    "terminal escapes": (("plan", "-g", "\x1b]0;owned\x07", "good.yaml"), "no graph is called \"\\x1b]0;owned\\x07"),
}  # fmt: skip


@pytest.fixture
def folder(call: Call, tmp_path: Path) -> Path:
    """Where the commands of a test run: a good scenario, a link that leads out, a pipe, a result of yesterday."""
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "old.txt").write_text("yesterday's result")
    (tmp_path / "link.npy").symlink_to(SAMPLES / "matmul.yaml")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def in_a_line(text: str) -> str:
    """What a terminal shows in lines of its width."""
    return " ".join(text.split())


def refused(result: Result, status: int = 2) -> str:
    """The one message of a call that failed as it should."""
    assert (result.status, result.out) == (status, "")
    assert "Traceback" not in result.err
    assert "\x1b" not in result.err
    assert "\x07" not in result.err
    assert len(result.err) < 6000
    assert len(result.err.splitlines()) <= 6
    return result.err


@pytest.fixture
def in_time() -> Callable[[], None]:
    start = time.process_time()

    def check() -> None:
        assert time.process_time() - start < SECONDS

    return check


@pytest.mark.parametrize("kind", FILES)
def test_a_bad_file_gives_one_message(call: Call, folder: Path, in_time: Callable[[], None], kind: str) -> None:
    name, content, message = FILES[kind]
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    assert in_a_line(refused(call("run", name, "-o", "old.txt", "--force", tty=True))).startswith(message)
    in_time()
    assert (folder / "old.txt").read_text() == "yesterday's result"


@pytest.mark.parametrize("kind", FILES)
def test_standard_input_is_no_different(call: Call, folder: Path, kind: str) -> None:
    name, content, message = FILES[kind]
    place, _, what = message.partition(": ")
    if name.endswith((".json", ".gz")) or not what:
        what = ""
    raw = content.encode() if isinstance(content, str) else content
    err = refused(call("plan", "-", stdin=raw))
    assert err.startswith("<stdin>")
    assert what in err
    assert not what or place.removeprefix(name) in err


@pytest.mark.parametrize("kind", BESIDE)
def test_bad_data_beside_a_scenario_gives_one_message(
    call: Call, folder: Path, in_time: Callable[[], None], kind: str
) -> None:
    name, content, message = BESIDE[kind]
    (folder / name).write_bytes(content)
    (folder / "a.yaml").write_text(data("{npy: w.npy}" if name == "w.npy" else "{gguf: w.gguf, tensor: w}"))
    err = refused(call("run", "a.yaml", "-o", "old.txt", "--force"))
    assert err.startswith("a.yaml:3:")
    assert message in err
    in_time()
    assert (folder / "old.txt").read_text() == "yesterday's result"


@pytest.mark.parametrize("kind", LINES)
def test_a_bad_command_line_gives_one_message(call: Call, folder: Path, kind: str) -> None:
    args, message = LINES[kind]
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert message in in_a_line(refused(call(*args, tty=True)))
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


MEASURED = """
import sys, time
from ggmltool.cli.errors import run_and_report
from ggmltool.cli.main import cli
status = run_and_report(cli, ["plan", sys.argv[1]])
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(status, time.process_time(), peak * 1024)
"""


HEAVY = [kind for kind, (_, content, _) in FILES.items() if len(content) >= MILLION]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux to measure memory")
@pytest.mark.parametrize("kind", [*HEAVY, "a gzip bomb", "an alias bomb"])
def test_a_heavy_file_takes_neither_long_nor_much_memory(folder: Path, kind: str) -> None:
    name, content, message = FILES.get(kind, ("a.yaml.gz", b"", "a.yaml.gz: this gzip file of "))
    raw = gzip.compress(b"a" * (256 * MIB), 1) if kind == "a gzip bomb" else content
    (folder / name).write_bytes(raw.encode() if isinstance(raw, str) else raw)
    result = python("-c", MEASURED, name)
    assert result.stderr.startswith(message)
    status, seconds, peak = result.stdout.split()
    assert int(status) == 2
    assert float(seconds) < SECONDS
    assert int(peak) < MEMORY


FULL = "Error: cannot write to standard output: "
STREAMS = {
    # what a shell runs: the exit status, and the message
    **{
        f"ggmltool {command} >/dev/full </dev/null": (2, "No space left on device\n")
        for command in ("plan good.yaml", "--help", "plan --help", "--version", "debug good.yaml")
    },
    "ggmltool plan good.yaml >&-": (0, ""),
    "ggmltool plan good.yaml 2>&-": (0, ""),
    "ggmltool plan good.yaml 2>/dev/full": (0, ""),
    "ggmltool plan missing.yaml 2>/dev/full": (2, ""),
    "ggmltool plan - <&-": (2, "<stdin>: there is nothing in this file"),
    "export PYTHONDONTWRITEBYTECODE=1; ulimit -f 64; ggmltool plan gemma-3-270m --json >half.json": (
        2,
        f"{FULL}File too large\n",
    ),
    "set -o pipefail; ggmltool plan gemma-3-270m --json | head -c 10": (0, ""),
}


@pytest.mark.parametrize("line", STREAMS)
def test_streams_that_are_full_closed_or_cut(folder: Path, line: str) -> None:
    status, said = STREAMS[line]
    for unbuffered in ("", "1"):
        result = bash(line, PYTHONUNBUFFERED=unbuffered)
        assert result.returncode == status
        assert said in result.stderr if said else not result.stderr
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", [["plan", "gemma-3-270m", "--json"], ["debug", "--help"]])
def test_a_pipe_that_does_not_wait_gets_all_or_it_is_an_error(
    command: list[str], unbuffered: str, folder: Path
) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    while True:
        with suppress(BlockingIOError):
            os.write(writing, b" " * 4096)
            continue
        break
    program = [sys.executable, "-m", "ggmltool", *command]
    environment = os.environ | {"PYTHONPATH": str(SAMPLES.parent), "PYTHONUNBUFFERED": unbuffered}
    result = subprocess.run(program, stdout=writing, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    os.close(reading)
    os.close(writing)
    assert result.returncode == 2
    assert result.stderr.startswith(f"{FULL}it does not wait (O_NONBLOCK)")


def test_what_ggml_refuses_has_status_1_and_keeps_the_old_file(call: Call, folder: Path) -> None:
    (folder / "a.yaml").write_text(GOOD.replace("sqr(x)", "'reshape(x, 3)'"))
    for command in ("run", "plan", "splits", "buffers", "dot"):
        err = refused(call(command, "a.yaml", "-o", "old.txt", "--force"), status=1)
        assert err.startswith("GGML_ASSERT(")
        assert "a.yaml:4:" in err
    assert (folder / "old.txt").read_text() == "yesterday's result"


def test_values_that_numpy_reads_are_taken(call: Call, folder: Path) -> None:
    np.save(folder / "w.npy", np.arange(4, dtype=np.float32))
    (folder / "a.yaml").write_text(data("{npy: w.npy}"))
    assert call("run", "a.yaml").status == 0


EVIL = {
    "markup": "[bold red]x[/] [/x] :smile: \\[",
    "dot": 'x"]; node [label="owned"]; /* <b> \\n \\',
    "records": "{a|<p> b} \\N \\G",
    "html": "<script>alert(1)</script>&amp;",
    "direction": "a\u202eb\u2066c",
    "wide": "漢字" * 20,
    "combining": "e" + "\u0301" * 40,
    "cut": "é" * 40,
    "percent": "%s%n{0}{x}",
    "spaces": "  a  b  ",
}


ARGUMENTS = dict.fromkeys(("tensor", "explain", "lifetime"), ("y", "a.yaml")) | {"diff": ("a.yaml", "a.yaml")}
"""Of the commands that take more than a scenario."""


def views() -> list[tuple[str]]:
    """The commands that print something of a scenario."""
    shown = []
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        if (
            command is not None
            and name not in ("verify", "tui", "record", "report")
            and any(param.name == "scenario" for param in command.params)
        ):
            shown.append((name,))
    return shown


@pytest.mark.parametrize("kind", EVIL)
def test_a_name_is_a_name_in_every_view(call: Call, folder: Path, kind: str) -> None:
    name = EVIL[kind].replace("'", "''")
    (folder / "a.yaml").write_text(
        f"{HEAD}name: '{name}'\n"
        f"contexts: {{c: {{tensors: {{x: {{type: f32, ne: [4], name: '{name}', data: {{fill: 1}}}}}}}}}}\n"
        f"graphs:\n  '{name}':\n    nodes:\n      y: {{op: sqr, src: [x], name: '{name}', flags: [output]}}\n",
        "utf-8",
    )
    texts = [*views(), ("splits", "-f", "table"), ("dot", "--style", "ggmltool")]
    for command in [*texts, *((name, "--json") for name in ("run", "plan", "splits", "buffers"))]:
        for columns in (40, 80, 200):
            args = ARGUMENTS.get(command[0], ("a.yaml",))
            result = call(*command, *args, tty=True, columns=columns)
            assert (result.status, result.err) == (0, ""), command
            assert not any(mark in result.out for mark in "\u202e\u2066\x07"), (command, columns)
            assert "\x1b" not in result.out.replace("\x1b[", "")
            assert kind != "markup" or command != ("plan",) or name in result.out
    assert "node [label=owned" not in call("dot", "a.yaml").out


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
    for graph in range(1, 20):
        result = call("splits", "--graph", graph, *options, hostile_log, tty=True)
        assert result.status in (0, 2)
        assert unseen(result.out + result.err, colored=True) == set()


def test_a_pipe_gets_the_splits_of_a_log_byte_for_byte_and_a_terminal_with_raw(call: Call, hostile_log: Path) -> None:
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
    for words in (
        ("plan", f"no{code}where.yaml"), (f"pl{code}", "moe"), ("plan", f"--gr{code}"), ("run", "-t", f"{code}", "moe"),
        ("splits", "--by", f"op{code}", "moe"), ("explain", f"x{code}", "moe"), ("explain", "error", f"blah{code}"),
        ("place", "--device", f"GPU{code}:1GiB", "gemma-3-270m"), ("ops", f"rope{code}"), ("sample", f"moe{code}"),
        ("plan", "-v", "--traceback", f"no{code}where.yaml"), ("backends", "--device", f"A{code}"),
        ("plan", "moe", "-o", f"no{code}where/x"),
    ):  # fmt: skip
        result = call(*words, tty=True)
        assert unseen(result.out + result.err, colored=True) == set(), words
