"""Says what a command waits for, where it is a pipe that nobody writes into or reads from."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ggmltool.cli.command import current_settings
from ggmltool.show.text import harmless

WRITER, READER = "a program that writes into it", "a program that reads from it"
PATIENCE = 1.0
"""Seconds before anything is said."""


@contextmanager
def waiting_for(path: str | Path, what: str) -> Iterator[None]:
    """While a named pipe is opened and read or written: says on standard error `what` it waits for, unless --quiet."""
    if not _is_pipe(path) or current_settings().verbosity < 0:
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


def _is_pipe(path: str | Path) -> bool:
    try:
        return stat.S_ISFIFO(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return False
