"""Processes that load llama.cpp, forked from one that has imported what they need.

Most of what a capture of a small model takes is the start of its process. Tests that make many of them do so in
`warm`: `python -m MODULE` in `capture`, `place` and `decode` is then a fork of a server, which reads the same
standard input, in the same environment, and ends as it would. Other tests start the process as users do.

A server ends with the process that asks it.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any
from uuid import uuid4

import pytest

from tests.shared import answered_once

ENTRIES = {
    "ggmltool.sources.llama.capture.child": "main",
    "tests.sources.fake_gpus": "_main",
    "tests.sources.real_fit": "_main",
    "tests.sources.reference": "main",
}
"""Modules that are started, and the function that `python -m` calls."""

CALLERS = ("ggmltool.sources.llama.capture.capture", "tests.sources.fake_gpus")
"""Modules that start them, with subprocess.run or subprocess.Popen."""


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
        """The number that answers a request: to start a process its id, to wait for one its exit status."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def start(self, files: Sequence[int], env: Mapping[str, str]) -> int:
        """The id of a fork, which has opened these descriptors of ours as its standard files."""
        names = [f"/proc/{os.getpid()}/fd/{fd}" for fd in files]
        return self.ask({"files": names, "env": dict(env), "cwd": str(Path.cwd())})

    def wait(self, pid: int) -> int:
        return self.ask({"wait": pid})


@cache
def _server(module: str, asking: int) -> Server:
    """The server of a process; one that was forked from ours has its own."""
    server = Server(module)
    atexit.register(server.process.communicate, "")
    return server


class Child:
    """What subprocess.Popen gives, as far as it is used: pipes to a fork, its end, and a way to end it."""

    def __init__(self, args: Sequence[str], *, stderr: IO[bytes], env: Mapping[str, str], **pipes: Any) -> None:
        self.server = _server(args[-1], os.getpid())
        asked, write = os.pipe()
        read, told = os.pipe()
        self.pid = self.server.start([asked, told, stderr.fileno()], env)
        os.close(asked)
        os.close(told)
        self.stdin, self.stdout = open(write, "wb"), open(read, "rb")  # noqa: SIM115, PTH123
        self.status: int | None = None

    def kill(self) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        if self.status is None:
            self.status = self.server.wait(self.pid)
        return self.status


def popen(args: Sequence[str], **pipes: Any) -> Child | subprocess.Popen[bytes]:
    """subprocess.Popen of one of the modules, or of anything else."""
    return Child(args, **pipes) if args[-1] in ENTRIES else subprocess.Popen(args, **pipes)


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
    asked = input.encode() if isinstance(input, str) else input
    about = sorted((name, value) for name, value in env.items() if not name.startswith("PYTEST_"))
    question = (args[-1], asked, about, _as_it_is(asked))
    status, *said = pickle.loads(answered_once(question, lambda: _answer(args[-1], asked, env)))
    done = subprocess.CompletedProcess(list(args), status, *([s.decode() for s in said] if text else said))
    if check:
        done.check_returncode()
    return done


def _answer(module: str, asked: bytes, env: Mapping[str, str]) -> bytes:
    """Exit status, output and errors, as one pickle."""
    with tempfile.TemporaryFile() as ask, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        ask.write(asked)
        ask.seek(0)
        server = _server(module, os.getpid())
        status = server.wait(server.start([ask.fileno(), out.fileno(), err.fileno()], env))
        return pickle.dumps((status, _read(out), _read(err)))


def _as_it_is(asked: bytes) -> object:
    """What tells a model's file from another one in its place, or from itself after a change."""
    request = json.loads(asked)
    path = Path(request["path"]) if isinstance(request, dict) and "path" in request else None
    if path is None or not path.exists():
        return uuid4()
    stat = path.stat()
    return str(path.resolve()), stat.st_ino, stat.st_size, stat.st_mtime_ns


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


@contextmanager
def warm() -> Iterator[None]:
    """Lets the processes of `CALLERS` be forks, where the system lets a process open the files of another."""
    with pytest.MonkeyPatch.context() as patch:
        for caller in CALLERS if Path("/proc/self/fd").exists() else ():
            patch.setattr(
                import_module(caller), "subprocess", SimpleNamespace(run=run, PIPE=subprocess.PIPE, Popen=popen)
            )
        yield


def _serve(module: str) -> None:
    """Fork, or wait for a fork, for every line of standard input, and answer it."""
    entry = getattr(import_module(module), ENTRIES[module])
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        else:
            began, begins = os.pipe()
            answer = os.fork()
            if not answer:
                _be(entry, request, begins)
            os.close(begins)
            os.read(began, 1)  # until it has opened its files
            os.close(began)
        print(answer, flush=True)  # noqa: T201


def _be(entry: Any, request: dict[str, Any], begins: int) -> None:
    """Become the process: its directory, environment and standard files."""
    os.chdir(request["cwd"])
    for name in os.environ.keys() - request["env"].keys():
        del os.environ[name]
    os.environ.update(request["env"])
    for fd, (path, flags) in enumerate(zip(request["files"], (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY), strict=True)):
        opened = os.open(path, flags)
        os.dup2(opened, fd)
        os.close(opened)
    os.close(begins)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    try:
        entry()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1])
