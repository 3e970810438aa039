"""A gdb of somebody with ggmltool's commands, on a program: what it prints, with addresses that are always the same."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ggmltool.attach.gdb.program import gdb_file
from tests.attach.programs import environment, scratch

_NOISE = re.compile(
    r"\[(?:New Thread|Thread|Inferior|Detaching|Switching to thread).*\]|Using host libthread_db.*|"
    r"warning: Error disabling address space randomization.*|\[New LWP.*|Core was generated.*|"
    r"Program terminated with.*"
)
_ADDRESS = re.compile(r"0x[0-9a-f]{4,16}")
_SCRATCH = re.compile(r"/\S*/(?=lib|graphs|types|site-packages)")
SECONDS = 120


@cache
def sourced() -> Path:
    """The file that `attach --gdb` writes, in a cache folder of the tests."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(scratch() / "cache")
    try:
        return gdb_file()
    finally:
        if before is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = before


def session(arguments: Sequence[str | Path], *commands: str, first: Sequence[str] = ()) -> str:
    """What such a gdb prints to these commands. `first` are commands in front of `source`."""
    settings = ["set debuginfod enabled off", "set breakpoint pending on", "set confirm off", "set height 0"]
    lines = [*settings, *first, f"source {sourced()}"]
    for command in commands:
        lines += [f"echo (gdb) {command}\\n" if "\\" not in command else "", command]
    options = [word for line in lines if line for word in ("-ex", line)]
    ran = subprocess.run(
        ["gdb", "-nx", "-q", "-batch", *options, "--args", *map(str, arguments)],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=SECONDS,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return ran.stdout.decode("utf-8", "replace")


def transcript(arguments: Sequence[str | Path], *commands: str, first: Sequence[str] = ()) -> str:
    """The session as it is kept: without what gdb says of threads, addresses as 0x…, files without folders."""
    out = session(arguments, *commands, first=first)
    kept = [line for line in out.split("\n") if not _NOISE.fullmatch(line.strip())]
    return steady("\n".join(kept))


def steady(text: str) -> str:
    """A text with addresses as 0x…, and files without folders."""
    return _SCRATCH.sub("", _ADDRESS.sub("0x…", text))
