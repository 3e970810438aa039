"""What a search has found, in a file: a search that was ended goes on from there.

The file is JSON: `version` of this layout, `search` that tells one search from another, and `found`, an entry for each
setting that is done.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import msgspec

from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.search.setting_best import SettingBest
from ggmltool.sources.llama.search.space import Setting
from ggmltool.version import __version__


class SavedError(PlaceError):
    """The file cannot be read or written, or belongs to another search; the message names it."""


LAYOUT = 1
MAX_BYTES = 64 << 20


class File(msgspec.Struct):
    """What the file holds."""

    version: int
    search: str
    found: list[SettingBest]


@dataclass(slots=True)
class Saved:
    """The settings of a search that are done, in a file (None: nowhere).

    `about` tells the model and the devices, which a search does not know by name.
    """

    path: Path | None = None
    about: str = ""
    _file: File = field(default_factory=lambda: File(LAYOUT, "", []))

    def open(self, *asked: object) -> None:
        """Read the file, if there is one. Raises SavedError if it is none, or that of another search."""
        key = sha256(repr((__version__, self.about, asked)).encode()).hexdigest()[:16]
        self._file = File(LAYOUT, key, [])
        if self.path is None:
            return
        try:
            with self.path.open("rb") as file:
                text = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            if not self.path.parent.is_dir():
                raise SavedError(f"the folder {self.path.parent} does not exist; make it first") from None
            return
        except OSError as error:
            raise SavedError(f"{self.path}: {error.strerror or error}") from None
        found = self._decoded(text)
        if found.search != key:
            raise SavedError(f"{self.path} is of another search: other options, or another model or version")
        self._file = found

    def _decoded(self, text: bytes) -> File:
        try:
            found = msgspec.json.decode(text[:MAX_BYTES], type=File)
        except msgspec.MsgspecError as error:
            raise SavedError(f"{self.path} is not what a search has saved: {error}") from None
        if found.version != LAYOUT:
            raise SavedError(f"{self.path} was saved by another version")
        return found

    def best(self, setting: Setting) -> SettingBest | None:
        """What was found for a setting; None if it is still to be searched."""
        return next((best for best in self._file.found if best.setting == setting), None)

    def add(self, best: SettingBest) -> None:
        """Note what was found; the file is whole at any time. Raises SavedError if it cannot be written."""
        self._file.found.append(best)
        if self.path is None:
            return
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        try:
            new.write_bytes(msgspec.json.encode(self._file))
            new.replace(self.path)
        except OSError as error:
            raise SavedError(f"{self.path}: {error.strerror or error}") from None
