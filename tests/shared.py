"""What takes long to make is made once in a session of tests: its workers share a folder, and wait for each other."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

FOLDER = "GGMLTOOL_TESTS_SHARED"
"""The variable that names the folder: the first process of a session sets it, and takes the folder away at its end."""


def folder() -> Path:
    if FOLDER not in os.environ:
        os.environ[FOLDER] = tempfile.mkdtemp(prefix="ggmltool-tests-")
        atexit.register(_remove, os.environ[FOLDER], os.getpid())
    return Path(os.environ[FOLDER])


def _remove(made: str, by: int) -> None:
    if os.getpid() == by:
        shutil.rmtree(made, ignore_errors=True)


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """The file of that name, which is made by `make` unless a worker has done so."""
    path = folder() / name
    unfinished = path.parent / "unfinished" / path.name
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            make(unfinished)
            unfinished.replace(path)
    return path


def answered_once(question: object, ask: Callable[[], bytes]) -> bytes:
    """What `ask` answers to a question, which is known by its `repr`."""
    name = sha256(repr(question).encode()).hexdigest()
    return made_once(name, lambda path: path.write_bytes(ask())).read_bytes()
