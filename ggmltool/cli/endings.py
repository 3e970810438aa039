"""What the ending of a file's name says of the file: its format, and whether it is packed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

FORMATS = {
    ".json": "json",
    ".csv": "csv",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".dot": "dot",
    ".gv": "dot",
    ".svg": "svg",
    ".png": "png",
    ".pdf": "pdf",
    ".html": "html",
    ".htm": "html",
}
"""The endings that name a format; any other one is for text."""


def is_packed(path: PurePath | None) -> bool:
    """Whether the file is to be compressed: `plan.json.gz`."""
    return path is not None and path.suffix.lower() == ".gz"


def ending_of(path: PurePath | None) -> str:
    """The ending that names the format, in lower case, without `.gz`.

    >>> ending_of(PurePath("plan.JSON.gz")), ending_of(PurePath("plan"))
    ('.json', '')
    """
    if path is None:
        return ""
    return PurePath(path.stem).suffix.lower() if is_packed(path) else path.suffix.lower()


def format_of(path: PurePath | None) -> str | None:
    """The format that the file's name asks for; None if it asks for none."""
    return FORMATS.get(ending_of(path))


def refusal(path: PurePath, formats: Iterable[str], chosen: str | None, own: Iterable[str]) -> str | None:
    """Why a command that writes these formats cannot write `chosen` (None: its text) to the file; None if it can.

    What the endings in `own` hold, the command itself knows.
    """
    ending, named = ending_of(path), format_of(path)
    if named is None or named == chosen or ending in own or (named, chosen) == ("yaml", "json"):
        return None
    possible = dict.fromkeys([*own, *(_ending(format) for format in formats), ".txt"])
    if named in formats and chosen is not None:
        return f"{path} would hold {chosen.upper()}: leave the format out, or give the file another name."
    written = ", ".join(sorted(possible, key=lambda ending: ending == ".txt"))
    return f"{ending} is not written here; what can be written: {written}, each also with .gz."


def _ending(format: str) -> str:
    return next((ending for ending, of in FORMATS.items() if of == format), ".txt")
