"""Calls of the library that may abort, in forks of a small process.

To fork a process that has collected all tests takes ten times what ggml takes for such a call. `each_apart`
forks one that has imported no more than the function's module.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from queue import Queue
from tempfile import NamedTemporaryFile
from threading import Event, Thread
from typing import Any

from ggmltool.ggml.releases.table import RELEASES
from ggmltool.oracle.fork import ABORT_CALLBACK, Abort, ChildError, read_message, write_message
from ggmltool.oracle.lib import load


def each_apart(release: str, function: Callable[[str, Any], Any], cases: Sequence[Any]) -> list[Any]:
    """What `function(release, case)` returns for each case in a fork, or an `Abort`. Raises ChildError where it raises.

    A fork goes on behind a call that aborts, and ends with one that crashes.
    """
    outcomes: list[Any] = []
    while len(outcomes) < len(cases):
        with NamedTemporaryFile() as kept:
            end = _in_a_fork(release, _in_a_row, kept.name, function, cases[len(outcomes) :])
            with suppress(EOFError):
                while True:
                    outcomes.append(read_message(kept.fileno()))
        if isinstance(end, Abort):
            outcomes.append(end)
    return outcomes


def _in_a_fork(release: str, function: Callable[..., Any], *args: Any) -> Any:
    """What `function(release, *args)` returns in a fork, or an `Abort`."""
    try:
        pickle.dumps(args)
    except (pickle.PicklingError, AttributeError, TypeError):
        return load(RELEASES[release]).run_forked(lambda: function(release, *args))
    process = _small()
    assert process.stdin is not None
    assert process.stdout is not None
    write_message(process.stdin.fileno(), (release, function, args))
    raised, value = read_message(process.stdout.fileno())
    if raised:
        raise ChildError(value)
    return value


def _in_a_row(release: str, file: str, function: Callable[[str, Any], Any], cases: Sequence[Any]) -> None:
    """Writes the outcome of each case. A thread in which ggml aborts stays where it is, and another goes on."""
    left, stops = iter(cases), Queue[BaseException | None]()

    def on_abort(message: bytes) -> None:
        write_message(stream.fileno(), Abort(message.decode("utf-8", "surrogateescape")))
        start()
        Event().wait()

    def go_on() -> None:
        try:
            for case in left:
                write_message(stream.fileno(), function(release, case))
            stops.put(None)
        except BaseException as error:
            stops.put(error)

    def start() -> None:
        Thread(target=go_on, daemon=True).start()

    callback = ABORT_CALLBACK(on_abort)
    load(RELEASES[release]).ggml_set_abort_callback(callback)
    with Path(file).open("wb") as stream:
        start()
        error = stops.get()
    if error is not None:
        raise error


@cache
def _small() -> subprocess.Popen[bytes]:
    """The process, which ends with this one."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-P", "-m", __name__]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


def main() -> None:
    out = os.dup(1)
    os.dup2(2, 1)
    while True:
        try:
            release, function, args = read_message(0)
        except EOFError:
            return
        call = partial(function, release, *args)
        try:
            answer = (False, load(RELEASES[release]).run_forked(call))
        except ChildError as error:
            answer = (True, str(error))
        write_message(out, answer)


if __name__ == "__main__":
    main()
