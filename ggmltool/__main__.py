"""The console script and `python -m ggmltool`: ^C and signals end it without a traceback, from the first moment on."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command line and leave with its exit status; 128 and a signal's number where that ended it."""
    listens = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if listens:
        signal.signal(signal.SIGINT, _leave_at_once)  # what is imported now cannot be interrupted in the middle
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _leave)
    from ggmltool.cli.errors import run_and_report
    from ggmltool.cli.main import cli

    status = INTERRUPTED
    try:
        if listens:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = run_and_report(cli, None)
    except KeyboardInterrupt:
        _say_interrupted()
    finally:
        if listens:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to be told
    sys.exit(status)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End as from an error: half files are removed, processes ended."""
    sys.exit(128 + number)


def _leave_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """End where nothing has been done yet."""
    _say_interrupted()
    os._exit(INTERRUPTED)


def _say_interrupted() -> None:
    if sys.stderr is not None:
        sys.stderr.write("interrupted\n")
        sys.stderr.flush()


if __name__ == "__main__":
    main()
