"""gdb, and a program that is launched for it to look at."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from ggmltool.attach.gdb.guards import SignalGuard
from ggmltool.attach.gdb.link import GdbLink
from ggmltool.attach.gdb.machines import REMEDY, not_ours
from ggmltool.state.errors import AttachError
from ggmltool.version import __version__

_STUB = """
import os, signal, sys
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
waits, tracer, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
try:
    with open("/proc/sys/kernel/yama/ptrace_scope") as scope:
        restricted = scope.read().strip() == "1"
except OSError:
    restricted = False
if restricted:
    import ctypes
    ctypes.CDLL(None).prctl(0x59616d61, ctypes.c_ulong(tracer), 0, 0, 0)
os.write(int(sys.argv[4]), b"r")
os.close(int(sys.argv[4]))
if not os.read(waits, 1):
    os._exit(127)
os.close(waits)
try:
    os.execvp(program, sys.argv[5:])
except OSError as error:
    sys.stderr.write(f"{program}: {error.strerror}\\n")
    os._exit(127 if isinstance(error, FileNotFoundError) else 126)
"""
"""What stands for the program until gdb has attached: it allows that, waits, and becomes the program."""

_INSIDE = Path(__file__).with_name("inside.py")
_DEATH = 1
"""PR_SET_PDEATHSIG."""
_ENDS = 5.0
"""How long gdb may take to end, in seconds."""
_MOST_SAID = 1 << 16
_SHOWN = 200
"""Characters of what gdb said last."""


class Gdb:
    """A gdb, the program at a path, that is asked through `link`. It has a session of its own: keys of the terminal do
    not reach it. When we are killed it lets go of the program by itself."""

    def __init__(self, program: str, guard: SignalGuard, link: type[GdbLink] = GdbLink) -> None:
        self.path = program
        requests_read, requests = os.pipe()
        answers, answers_write = os.pipe()
        halts, self._halts = os.pipe()
        self._said = os.fdopen(os.memfd_create("gdb"), "w+b")
        libc = ctypes.CDLL(None)
        # gdb's Python is another one than ours and the program's: what is set for these is not for it.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self._process = subprocess.Popen(
            [program, "-nx", "-nh", "-q", "-batch", "-ex", f"source {_INSIDE}", "-ex", "python start()"],
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            env={**environment, "GGMLTOOL_GDB": f"{requests_read},{answers_write},{halts}", "LC_ALL": "C.UTF-8"},
            pass_fds=(requests_read, answers_write, halts),
            start_new_session=True,
            preexec_fn=lambda: libc.prctl(_DEATH, signal.SIGTERM, 0, 0, 0),
        )
        os.close(requests_read)
        os.close(answers_write)
        os.close(halts)
        self._ends = os.fdopen(requests, "wb"), os.fdopen(answers, "rb")
        self.link = link(*self._ends, guard)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def halt(self) -> None:
        """Have gdb halt a program that it does not trace itself, as soon as that runs."""
        os.write(self._halts, b"h")

    def close(self) -> None:
        """End gdb, which lets go of the program; by force if it has to be. Nothing if it has ended so."""
        if self._said.closed:
            return
        self.link.close()
        for end in self._ends:
            with suppress(OSError):
                end.close()
        for by_force in (self._process.terminate, self._process.kill):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_ENDS)
                break
            by_force()
        self._process.wait()
        os.close(self._halts)
        self._said.close()

    def said(self) -> str:
        """What gdb has printed so far, its end."""
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - _MOST_SAID))
        return self._said.read(_MOST_SAID).decode("utf-8", "replace")


def why_lost(program: str, said: str) -> str:
    """Why a gdb ended before it answered, by what it printed: one of the usual reasons, else its last line."""
    if "ython scripting is not supported" in said or "ython is not supported" in said:
        return f"{program} has no Python; {REMEDY}"
    last = next((line for line in reversed(said.splitlines()) if line.strip()), "")
    shown = "".join(c if c.isprintable() else "?" for c in last[:_SHOWN])
    return f"{program} did not start as gdb does{f'; it said: {shown}' if shown else ''}"


class Launched:
    """A program that waits to be looked at: `gdb` attaches to what stands for it, then it starts. If it has not started
    at the end, both end."""

    def __init__(self, arguments: Sequence[str], gdb: Gdb) -> None:
        program = arguments[0]
        if shutil.which(program) is None:
            raise AttachError(f"{program}: {'it cannot be run' if Path(program).exists() else 'no such program'}")
        if why := not_ours(program):
            raise AttachError(why)
        waits, self._go = os.pipe()
        ready, tells = os.pipe()
        for end in (waits, tells):
            os.set_inheritable(end, True)
        words = (str(waits), str(gdb.pid), program, str(tells), *arguments)
        self._gdb = gdb
        self.process = subprocess.Popen([sys.executable, "-I", "-S", "-c", _STUB, *words], close_fds=False)
        os.close(waits)
        os.close(tells)
        os.read(ready, 1)
        os.close(ready)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._go >= 0:
            os.close(self._go)
            self._gdb.close()  # nobody sees the end of a process before who traces it
            self.process.kill()
            self.process.wait()

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    def start(self) -> None:
        """Become the program, as soon as gdb lets it run."""
        os.write(self._go, b"g")
        os.close(self._go)
        self._go = -1

    def wait(self) -> int:
        """What it ends with. An interrupt of the terminal is for the program, not for us who wait."""
        if threading.current_thread() is not threading.main_thread():
            return self.process.wait()
        old = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return self.process.wait()
        finally:
            signal.signal(signal.SIGINT, old)


_FILE = '''"""The command `ggml` in gdb, by ggmltool {version}: `source` this file, in ~/.gdbinit too."""

import os
import runpy

import gdb

PYTHON = {python!r}
PACKAGE = {package!r}
SCRIPT = {script!r}

if os.path.exists(SCRIPT) and os.path.exists(PYTHON):
    runpy.run_path(SCRIPT)["load"](PYTHON, PACKAGE, os.path.dirname(SCRIPT))
else:
    gdb.write("ggmltool is no more where it was; run `ggmltool attach --gdb` again\\n", gdb.STDERR)
'''

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def write_whole(path: Path, data: bytes, mode: int = 0o644) -> None:
    """A whole file or none. Raises OSError."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    Path(name).chmod(mode)
    Path(name).replace(path)


def gdb_file() -> Path:
    """Write the file into the user's cache folder, one for each Python that has ggmltool, and say where. Raises
    AttachError where it cannot be written."""
    script = Path(__file__).with_name("ingdb.py")
    text = _FILE.format(
        version=__version__, python=sys.executable, package=str(script.parents[3]), script=str(script)
    )  # fmt: skip
    key = hashlib.sha256(sys.executable.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    cache = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = (Path(cache) if cache.startswith("/") else Path.home() / ".cache") / "ggmltool"
    except RuntimeError:
        raise AttachError("there is no home folder; set XDG_CACHE_HOME to a folder") from None
    path = folder / f"gdb-{key}.py"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        # What gdb sources is run: nobody else may put a file there.
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & _OTHERS_WRITE:
            raise AttachError(
                f"{folder}: others can write there what gdb would run; set XDG_CACHE_HOME to a folder of yours"
            )
        write_whole(path, text.encode("utf-8", "surrogateescape"), 0o600)
    except OSError as error:
        raise AttachError(f"cannot write {path}: {error.strerror or error}; set XDG_CACHE_HOME to a folder") from None
    return path
