"""Processes that load llama.cpp, forked from one that has imported what they need.

Half of what a capture of a small model takes is the start of its process. Tests that make hundreds of them do so in
`warm`: `python -m MODULE` in `capture`, `place` and `decode` is then a fork of a server, which reads the same
standard input, in the same environment, and ends as it would. Other tests start the process as users do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

ENTRIES = {
    "ggmltool.sources.llama.child": "main",
    "tests.sources.fake_gpus": "_main",
    "tests.sources.real_fit": "_main",
    "tests.sources.reference": "main",
}
"""Modules that are started, and the function that `python -m` calls."""

CALLERS = ("ggmltool.sources.llama.asking", "tests.sources.fake_gpus", "tests.sources.reference")
"""Modules that start them, with subprocess.run."""


class Server:
    """A process that has imported a module and forks itself for every call."""

    def __init__(self, module: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.sources.warm", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            text=True,
        )

    def ask(self, request: dict[str, Any]) -> int:
        """The exit status of the fork; files for its input and output are named in the request."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def stop(self) -> None:
        self.process.communicate("")


SERVERS: dict[str, Server] = {}


def run(
    args: Sequence[str],
    *,
    input: str | bytes,
    env: Mapping[str, str],
    text: bool = False,
    check: bool = False,
    **pipes: Any,
) -> subprocess.CompletedProcess[Any]:
    """subprocess.run of one of the modules; standard output and error are always captured."""
    module = args[-1]
    with tempfile.TemporaryFile() as ask, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        ask.write(input.encode() if isinstance(input, str) else input)
        ask.seek(0)
        if module not in SERVERS:
            SERVERS[module] = Server(module)
        pid = os.getpid()
        files = [f"/proc/{pid}/fd/{file.fileno()}" for file in (ask, out, err)]
        status = SERVERS[module].ask({"files": files, "env": dict(env), "cwd": str(Path.cwd())})
        said = [_read(out), _read(err)]
    done = subprocess.CompletedProcess(list(args), status, *([s.decode() for s in said] if text else said))
    if check:
        done.check_returncode()
    return done


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


@contextmanager
def warm() -> Iterator[None]:
    """Lets the processes of `CALLERS` be forks."""
    with pytest.MonkeyPatch.context() as patch:
        for caller in CALLERS:
            patch.setattr(
                import_module(caller),
                "subprocess",
                SimpleNamespace(run=run, PIPE=subprocess.PIPE, Popen=subprocess.Popen),
            )
        yield
    while SERVERS:
        SERVERS.popitem()[1].stop()


def _serve(module: str) -> None:
    """Fork for every line of standard input; write the exit status of each."""
    entry = getattr(import_module(module), ENTRIES[module])
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if not pid:
            _be(entry, request)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201


def _be(entry: Any, request: dict[str, Any]) -> None:
    """Become the process: its directory, environment and standard files."""
    os.chdir(request["cwd"])
    for name in os.environ.keys() - request["env"].keys():
        del os.environ[name]
    os.environ.update(request["env"])
    for fd, (path, flags) in enumerate(zip(request["files"], (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY), strict=True)):
        opened = os.open(path, flags)
        os.dup2(opened, fd)
        os.close(opened)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    try:
        entry()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1])
