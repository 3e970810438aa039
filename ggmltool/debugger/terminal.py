"""Where a session prints and asks: standard output and error, with pages and line editing on a terminal."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from ggmltool.show.table import Style
from ggmltool.show.text import harmless

NO_WIDTH = 10_000
"""A width that is none: values are printed in one line."""
_PAGE = "--Type <RET> for more, q to quit, c to continue without paging--"
_REMEMBERED = 1000


class Quit(Exception):  # noqa: N818 - what gdb prints
    """The user wants no more of what is printed."""


class Terminal:
    """Standard output, which is paged where a user reads it. `interactive`: somebody can be asked."""

    def __init__(self, style: Style, interactive: bool) -> None:
        self._style = style
        self.interactive = interactive
        self.page: int | None = None
        self._printed = 0
        self._stop = False

    def style(self, width: int | None) -> Style:
        """The colors and the columns that there are."""
        if width is None:
            columns = shutil.get_terminal_size().columns if self.interactive else self._style.width
            return Style(max(columns, 20), self._style.colors)
        return Style(max(width, 20) if width else NO_WIDTH, self._style.colors)

    def begin(self, page: int | None) -> None:
        """A command begins. `page` is the lines that are printed before it is asked whether to go on, 0 for all, None
        for those of the terminal."""
        self._printed = 0
        self._stop = False
        self.page = page

    def write(self, text: str) -> None:
        """Print lines. Raises Quit if the user wants no more."""
        text = harmless(text, bool(self._style.colors))
        rows = self.page if self.interactive else 0
        rows = shutil.get_terminal_size().lines if rows is None else rows
        if not rows:
            sys.stdout.write(text)
            return
        for line in text.splitlines(keepends=True):
            if self._printed >= rows - 1:
                self._ask_for_more()
            sys.stdout.write(line)
            self._printed += 1

    def _ask_for_more(self) -> None:
        self._printed = 0
        answer = _answer(_PAGE)
        if answer is None or answer.strip().lower().startswith("q"):
            raise Quit
        if answer.strip().lower().startswith("c"):
            self.page = 0

    def error(self, text: str) -> None:
        """Print what went wrong on standard error, behind all that was printed."""
        sys.stdout.flush()
        sys.stderr.write(harmless(text) + "\n")
        sys.stderr.flush()

    def ask(self, question: str) -> bool:
        """Whether the user says yes; yes where nobody can be asked."""
        if not self.interactive:
            return True
        while True:
            answer = _answer(harmless(question))
            if answer is None or answer.strip().lower() in ("y", "yes"):
                return True
            if answer.strip().lower() in ("n", "no"):
                return False
            sys.stdout.write("Please answer y or n.\n")

    def interrupted(self) -> bool:
        """Whether the user pressed ^C since the command began."""
        return self._stop

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """^C asks what runs here to stop; a second one ends it."""
        if not self.interactive:
            yield
            return

        def handle(_: int, __: FrameType | None) -> None:
            if self._stop:
                raise KeyboardInterrupt
            self._stop = True

        before = signal.signal(signal.SIGINT, handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def _answer(question: str) -> str | None:
    """A line of the user's; None at the end of input."""
    sys.stdout.flush()
    try:
        return input(question)
    except EOFError:
        sys.stdout.write("\n")
        return None


def history_file() -> Path:
    """Where the lines that were typed are kept from one session to the next."""
    state = os.environ.get("XDG_STATE_HOME")
    folder = Path(state) if state and Path(state).is_absolute() else Path.home() / ".local" / "state"
    return folder / "ggmltool" / "debug_history"


@contextmanager
def line_editing(complete: Callable[[str, int], Sequence[str]]) -> Iterator[None]:
    """Lines can be edited, completed and found again. `complete` gives the words that could stand from a column of a
    line on."""
    try:
        import readline
    except ImportError:
        yield
        return
    found: list[str] = []

    def completer(_: str, state: int) -> str | None:
        if state == 0:
            found[:] = _quietly(
                lambda: complete(readline.get_line_buffer()[: readline.get_endidx()], readline.get_begidx())
            )
        return found[state] if state < len(found) else None

    readline.set_completer(completer)
    readline.set_completer_delims(" \t\n")
    readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
    readline.set_auto_history(False)
    file = history_file()
    with suppress(OSError):
        readline.read_history_file(file)
    try:
        yield
    finally:
        readline.set_completer(None)
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            readline.set_history_length(_REMEMBERED)
            readline.write_history_file(file)


def remember(line: str) -> None:
    """Keep a line that was typed, unless it is the last one again."""
    try:
        import readline
    except ImportError:
        return
    n = readline.get_current_history_length()
    if line.strip() and (not n or readline.get_history_item(n) != line):
        readline.add_history(line)


def _quietly(complete: Callable[[], Sequence[str]]) -> list[str]:
    """What completes a word; nothing where that fails, for a half-typed line is no mistake."""
    try:
        return list(complete())
    except Exception:
        return []
