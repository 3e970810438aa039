"""Calls of the library that may abort, each in a fork of a small process.

To fork a process that has collected all tests takes ten times what ggml takes for such a call. `apart`
forks one that has imported no more than the function's module.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from ggmltool.ggml.releases.table import RELEASES
from ggmltool.oracle.fork import ChildError, read_message, write_message
from ggmltool.oracle.lib import load


def apart(release: str, function: Callable[..., Any], *args: Any) -> Any:
    """What `function(release, *args)` returns in a fork, or an `Abort`. Raises ChildError where it raises."""
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
