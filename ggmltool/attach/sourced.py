"""The file to `source` in gdb: it says where this ggmltool is, and which Python runs it."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
from pathlib import Path

from ggmltool.attach.errors import AttachError
from ggmltool.version import __version__

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


def gdb_file() -> Path:
    """Write the file into the user's cache folder, one for each Python that has ggmltool, and say where. Raises
    AttachError where it cannot be written."""
    script = Path(__file__).with_name("ingdb.py")
    text = _FILE.format(
        version=__version__, python=sys.executable, package=str(script.parents[2]), script=str(script)
    )  # fmt: skip
    key = hashlib.sha256(sys.executable.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    path = _folder() / f"gdb-{key}.py"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check(path.parent)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        Path(name).replace(path)
    except OSError as error:
        raise AttachError(f"cannot write {path}: {error.strerror or error}; set XDG_CACHE_HOME to a folder") from None
    return path


def _check(folder: Path) -> None:
    """What gdb sources is run: nobody else may put a file there. Raises AttachError."""
    status = folder.stat()
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & _OTHERS_WRITE:
        raise AttachError(
            f"{folder}: others can write there what gdb would run; set XDG_CACHE_HOME to a folder of yours"
        )


def _folder() -> Path:
    """The user's cache folder of ggmltool."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    try:
        home = Path.home()
    except RuntimeError:
        raise AttachError("there is no home folder; set XDG_CACHE_HOME to a folder") from None
    return (Path(cache) if cache.startswith("/") else home / ".cache") / "ggmltool"
