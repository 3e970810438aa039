"""The prompt on a real terminal: keys, completion, history, ^C and ^D, pages, colors."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

pty = pytest.importorskip("pty", reason="needs a pseudo terminal")
pytest.importorskip("readline", reason="needs readline")

SAMPLES = Path(__file__).parents[2] / "sample_graphs"
PROMPT = "(ggml) "
WAIT = 60.0
CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x07|\r")


class Terminal:
    """A session on a pseudo terminal."""

    def __init__(self, folder: Path, *args: str, columns: int = 80, lines: int = 50) -> None:
        import fcntl
        import struct
        import termios

        self.fd, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        env = os.environ | {
            "TERM": "dumb", "XDG_STATE_HOME": str(folder), "PYTHONPATH": str(SAMPLES.parent), "INPUTRC": "/dev/null",
        }  # fmt: skip
        env.pop("COLUMNS", None)
        env.pop("LINES", None)

        def _begin() -> None:
            """The terminal is the session's own, and ^C is not ignored as in a shell's background jobs."""
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGINT, signal.SIG_DFL)

        command = [sys.executable, "-m", "ggmltool", "debug", *args]
        self.process = subprocess.Popen(
            command, stdin=child, stdout=child, stderr=child, env=env, cwd=folder, start_new_session=True,
            preexec_fn=_begin,
        )  # fmt: skip
        os.close(child)
        self.text = ""

    def until(self, wanted: str, wait: float = WAIT) -> str:
        """What is printed up to a text, which has to come."""
        end = time.monotonic() + wait
        while wanted not in self.text:
            assert time.monotonic() < end, f"{wanted!r} did not come; there is {self.text!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    data = os.read(self.fd, 65536)
                except OSError:
                    data = b""
                assert data, f"it ended before {wanted!r}; there is {self.text!r}"
                self.text += CODES.sub("", data.decode("utf-8", "replace"))
        found, _, self.text = self.text.partition(wanted)
        return found

    def type(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def say(self, line: str) -> str:
        """What a line prints, up to the next prompt."""
        self.type(line + "\n")
        self.until(line + "\n")
        return self.until(PROMPT)

    def interrupt(self) -> str:
        """What ^C at the prompt prints, up to the next one.

        A ^C between a key and the wait for the next is seen with the next: it is pressed again, as anybody would.
        """
        for _ in range(int(WAIT)):
            self.type("\x03")
            with suppress(AssertionError):
                return self.until(PROMPT, 2)
        raise AssertionError(f"^C at the prompt has no effect; there is {self.text!r}")

    def end(self) -> int:
        return self.process.wait(WAIT)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.fd)


Open = Callable[..., Terminal]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """`opened("moe", columns=160)`: a session at its first prompt."""
    made: list[Terminal] = []

    def open_terminal(*args: str, columns: int = 80, lines: int = 50) -> Terminal:
        made.append(Terminal(tmp_path, *args, columns=columns, lines=lines))
        made[-1].until(PROMPT)
        return made[-1]

    yield open_terminal
    for terminal in made:
        terminal.close()


@pytest.fixture
def terminal(opened: Open) -> Terminal:
    return opened("moe")


def test_an_empty_line_does_the_last_command_again(terminal: Terminal) -> None:
    terminal.say("start")
    assert "\n1\tdevices, contexts and the scheduler will" not in terminal.say("step")
    terminal.type("\n")
    assert terminal.until(PROMPT).strip().splitlines()[-1].startswith("2\t")
    terminal.type("\n")
    assert terminal.until(PROMPT).strip().splitlines()[-1].startswith("3\t")


def test_list_goes_on_with_an_empty_line_and_run_does_not_run_again(terminal: Terminal) -> None:
    terminal.say("break split 1")
    terminal.say("run")
    terminal.type("\n")
    assert terminal.until(PROMPT).strip() == ""
    assert terminal.say("list").lstrip().startswith("0 ")
    terminal.type("\n")
    assert terminal.until(PROMPT).strip().splitlines()[0].startswith("10 ")


def test_the_tabulator_completes_commands_functions_tensors_and_expressions(terminal: Terminal) -> None:
    terminal.type("reverse-c\t")
    terminal.until("reverse-continue ")
    terminal.type("\x15break ggml_gallocr_allocate_\t")
    terminal.until("break ggml_gallocr_allocate_node")
    terminal.type("\x15info spl\t")
    terminal.until("info splits ")
    terminal.type("\x15goto 100\n")
    terminal.until(PROMPT)
    terminal.type("p sched->n_spl\t")
    terminal.until("p sched->n_splits")
    terminal.type("\n")
    assert "= 2" in terminal.until(PROMPT)
    terminal.type("why weigh\t")
    terminal.until("why weight")


def test_lines_are_remembered_from_one_session_to_the_next(tmp_path: Path, opened: Open) -> None:
    first = opened("matmul")
    first.say("break result")
    first.type("quit\n")
    assert first.end() == 0
    kept = tmp_path / "ggmltool" / "debug_history"
    assert kept.read_text("utf-8").splitlines()[-2:] == ["break result", "quit"]
    again = opened("matmul")
    again.type("\x1b[A\x1b[A\n")
    assert "Breakpoint 1 at result" in again.until(PROMPT)


def test_an_interrupt_at_the_prompt_drops_the_line_and_one_on_the_way_stops_it(opened: Open) -> None:
    terminal = opened("gemma-3-270m", "--no-compute")
    terminal.type("brea")
    terminal.until("brea")
    assert "Quit" in terminal.interrupt()
    terminal.say("break ggml_backend_sched_backend_id_from_cur if sched->n_splits == 77")
    terminal.type("run\n")
    terminal.until("Starting program")
    os.kill(terminal.process.pid, signal.SIGINT)
    assert "Program received signal SIGINT, Interrupt." in terminal.until(PROMPT)
    assert "It stands at event" in terminal.say("info program")
    terminal.type("\x04")
    assert "quit" in terminal.until("\n")
    assert terminal.end() == 0


def test_long_tables_come_page_by_page(opened: Open) -> None:
    terminal = opened("moe", lines=10)
    terminal.say("run")
    terminal.type("info tensors\n")
    page = terminal.until("--Type <RET> for more, q to quit, c to continue without paging--")
    assert len(page.splitlines()) == 10
    terminal.type("\n")
    terminal.until("--Type <RET> for more")
    terminal.type("q\n")
    assert "Quit" in terminal.until(PROMPT)
    terminal.say("set pagination off")
    assert len(terminal.say("info tensors").splitlines()) > 20


def test_it_asks_before_it_deletes_and_before_it_begins_again(terminal: Terminal) -> None:
    terminal.say("break split 1")
    terminal.say("run")
    terminal.type("delete\n")
    terminal.until("Delete all breakpoints? (y or n) ")
    terminal.type("n\n")
    terminal.until(PROMPT)
    terminal.type("run\n")
    terminal.until("Start it from the beginning? (y or n) ")
    terminal.type("n\n")
    assert "Program not restarted." in terminal.until(PROMPT)
    assert "split 1" in terminal.say("info breakpoints")


@pytest.mark.parametrize("columns", [80, 160])
def test_tables_fit_the_terminal(opened: Open, columns: int) -> None:
    terminal = opened("moe", columns=columns)
    terminal.say("run")
    for table in ("tensors", "hash", "splits", "copies", "free-blocks"):
        lines = terminal.say(f"info {table}").splitlines()
        assert max(map(len, lines)) <= columns
