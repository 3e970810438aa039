"""How far long work is, on standard error: nothing in the first second, then a line that is drawn anew on a terminal,
elsewhere a line every few seconds.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ggmltool.cli.command import current_settings
from ggmltool.inspect.opened import Advance
from ggmltool.show.text import harmless, printable, size

FIRST = 1.0
"""Seconds before anything is said."""

_REDRAWN = 0.2
_REPEATED = 5.0
_BAR = 24
_GUESSED = (0.02, 0.98)
"""The parts of the work between which the rest is guessed: the last node of a model is the largest."""


def _ignore(n: int = 1, /) -> None:
    """Nobody looks."""


_shown = threading.Lock()
"""Held while something is shown: what goes on within it shows nothing of its own."""


@contextmanager
def progress(
    label: str, total: int = 0, unit: str = "", show: bool = True, detail: Callable[[], str] = str
) -> Iterator[Advance]:
    """Say how far the work in the block is; the block calls what it gets.

    `total` is how much there is of `unit` ("bytes" are written with units), 0 if that is not known: then only the time
    is shown. `detail` gives what else there is to say. Nothing is shown with --quiet, without `show`, and in another
    one.
    """
    if not show or current_settings().verbosity < 0 or not _shown.acquire(blocking=False):
        yield _ignore
        return
    ticker = _Ticker(label, total, unit, detail)
    try:
        ticker.start()
        yield ticker.advance
    finally:
        ticker.stop()
        _shown.release()


class _Ticker:
    """A thread that says how far the work is while the main thread does it."""

    def __init__(self, label: str, total: int, unit: str, detail: Callable[[], str] = str) -> None:
        self.label = printable(label)
        self.total = total
        self.unit = unit
        self.detail = detail
        self.done = 0
        self.terminal = sys.stderr.isatty() and os.environ.get("TERM", "") != "dumb"
        self._began = time.monotonic()
        self._end = threading.Event()
        self._drawn = False
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def advance(self, n: int = 1, /) -> None:
        self.done += n

    def stop(self) -> None:
        """End it, and take away what was drawn."""
        self._end.set()
        self._thread.join()
        if self._drawn and self.terminal:
            _write("\r\x1b[K")

    def _run(self) -> None:
        wait = FIRST
        while not self._end.wait(wait):
            text = self.text(time.monotonic() - self._began)
            if self.terminal:
                columns = max(shutil.get_terminal_size().columns - 1, 10)
                _write(f"\r{text[:columns]}\x1b[K")
            else:
                _write(f"{text}\n")
            self._drawn = True
            wait = _REDRAWN if self.terminal else _REPEATED

    def text(self, seconds: float) -> str:
        """How far the work is after so many seconds."""
        if not self.total:
            detail = self.detail()
            return f"{self.label}: {_duration(seconds)}" + (f", {printable(detail)}" if detail else "")
        part = min(self.done / self.total, 1.0)
        done, total = (size(n) if self.unit == "bytes" else str(n) for n in (self.done, self.total))
        unit = f" {self.unit}" if self.unit not in ("", "bytes") else ""
        left = ""
        if _GUESSED[0] <= part <= _GUESSED[1]:
            left = f", about {_duration(seconds * (1 - part) / part)} left"
        full = round(part * _BAR)
        bar = f" [{'#' * full}{'-' * (_BAR - full)}]" if self.terminal else ""
        return f"{self.label}:{bar} {done} of {total}{unit} ({part:.0%}), {_duration(seconds)}{left}"


def _duration(seconds: float) -> str:
    """
    >>> _duration(7.4), _duration(150), _duration(7300)
    ('7 s', '2 min 30 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        return  # standard error is closed; the work goes on


WRITER, READER = "a program that writes into it", "a program that reads from it"
PATIENCE = 1.0
"""Seconds before anything is said."""


@contextmanager
def waiting_for(path: str | Path, what: str) -> Iterator[None]:
    """While a named pipe is opened and read or written: says on standard error `what` it waits for, unless --quiet."""
    try:
        is_pipe = stat.S_ISFIFO(Path(path).stat().st_mode)
    except (OSError, ValueError):
        is_pipe = False
    if not is_pipe or current_settings().verbosity < 0:
        yield
        return
    from threading import Timer

    timer = Timer(PATIENCE, click.echo, [harmless(f"{path} is a pipe; waiting for {what}")], {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
