"""A program that a gdbserver holds: on another machine, on a board, in a container, or in an emulator."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import NamedTuple

from ggmltool.attach.errors import AttachError
from ggmltool.attach.link import Link, LinkError
from ggmltool.attach.machines import machine_of

_PLACE = re.compile(r"(?:(?:tcp|tcp4|tcp6):)?(?:\[[0-9a-fA-F:.%\w]+\]|[\w.-]*):\d{1,5}")
_REJECTED = ("'g' packet", "rchitecture")
"""What gdb says when the other side sends registers of a machine that it does not know."""


class Remote(NamedTuple):
    """`where` is HOST:PORT, or the path of a serial line or a socket; `program` a file here that is the one that runs
    there, None if gdb is to fetch it; `sysroot` a folder here with the files of the other machine, None: they are
    fetched from there."""

    where: str
    program: str | None = None
    sysroot: str | None = None

    @property
    def machine(self) -> str:
        """Its machine, as far as the program's file tells, else ""."""
        return machine_of(self.program) if self.program is not None else ""

    @property
    def name(self) -> str:
        """What messages call it."""
        return (
            f"{Path(self.program).name} at {self.where}" if self.program is not None else f"the program at {self.where}"
        )

    def check(self) -> None:
        """Raises AttachError for a place that is none, and OSError for a file or folder that is not there."""
        if not _PLACE.fullmatch(self.where) and not (self.where.startswith("/") and Path(self.where).exists()):
            raise AttachError(
                f"{self.where!r} is no place of a gdbserver: name HOST:PORT, or the path of a serial line or a socket"
            )
        if self.program is not None:
            with open(self.program, "rb"):  # noqa: PTH123 - it raises what is the matter with it
                pass
        if self.sysroot is not None and not Path(self.sysroot).is_dir():
            raise NotADirectoryError(20, "Not a directory", self.sysroot)

    def join(self, link: Link) -> float:
        """Connect, as soon as gdb has started; when that was. The program stands still from then on. Raises
        AttachError."""
        try:
            link.ask("ready")
            began = time.monotonic()
            link.ask("remote", self.where, self.program, self.sysroot)
        except LinkError as error:
            why = str(error).rstrip(".")
            if any(word in why for word in _REJECTED):
                why = (
                    "its registers are those of a machine that this gdb does not know, or was not told of: name the "
                    "program's file behind HOST:PORT, and install gdb-multiarch (or name a gdb with --gdb-program)"
                )
            raise AttachError(f"cannot attach to {self.where}: {why}") from None
        return began
