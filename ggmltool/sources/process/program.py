"""A program under gdb: launched by us, running already, or dead and dumped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ggmltool.sources.process.link import Link

_STUB = """
import os, sys
os.read(int(sys.argv[1]), 1)
os.close(int(sys.argv[1]))
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.stderr.write(f"{sys.argv[2]}: {error.strerror}\\n")
    os._exit(127)
"""
"""What stands for the program until gdb has attached: it waits, and becomes the program."""

_INSIDE = Path(__file__).with_name("inside.py")


class NoGdb(Exception):  # noqa: N818 - it says what is missing
    """There is no gdb on this machine."""


class Gdb:
    """A gdb that is asked through `link`. It has a session of its own: keys of the terminal do not reach it."""

    def __init__(self) -> None:
        program = shutil.which("gdb")
        if program is None:
            raise NoGdb("gdb is not installed; `attach` reads programs through it (version 9 or later, with Python)")
        requests_read, requests = os.pipe()
        answers, answers_write = os.pipe()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - it is there as long as gdb is
        self._process = subprocess.Popen(
            [program, "-nx", "-nh", "-q", "-batch", "-ex", f"source {_INSIDE}", "-ex", "python start()"],
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            env={**os.environ, "GGMLTOOL_GDB": f"{requests_read},{answers_write}", "LC_ALL": "C.UTF-8"},
            pass_fds=(requests_read, answers_write),
            start_new_session=True,
        )
        os.close(requests_read)
        os.close(answers_write)
        self._ends = os.fdopen(requests, "wb"), os.fdopen(answers, "rb")
        self.link = Link(*self._ends)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End gdb, which lets go of the program."""
        for end in self._ends:
            end.close()
        self._process.wait()
        self._said.close()

    def said(self) -> str:
        """What gdb has printed so far."""
        self._said.seek(0)
        return self._said.read().decode("utf-8", "replace")


class Launched:
    """A program that waits to be looked at: gdb attaches to what stands for it, then it starts."""

    def __init__(self, arguments: Sequence[str]) -> None:
        waits, self._go = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _STUB, str(waits), *arguments], pass_fds=(waits,)
        )
        os.close(waits)

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    def start(self) -> None:
        """Become the program, as soon as gdb lets it run."""
        os.write(self._go, b"g")
        os.close(self._go)
