"""What the ending of a file's name says of the file: its format, and whether it is packed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

FORMATS = {
    ".perfetto.json": "perfetto",
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
    ".ggtrace": "ggtrace",
    ".pickle": "pickle",
    ".pkl": "pickle",
    ".gguf": "gguf",
    ".npy": "npy",
    ".npz": "npz",
    ".tsv": "tsv",
    ".xml": "xml",
    ".toml": "toml",
    ".xlsx": "xlsx",
    ".parquet": "parquet",
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".gif": "gif",
    ".webp": "webp",
    ".eps": "eps",
    ".ps": "ps",
}
"""The endings that name a format; any other one is for text. A command refuses those of formats that it has not: no
file holds something else than its name says."""


_ALSO = {("yaml", "json"), ("json", "perfetto")}
"""What a file of one format may hold besides: all JSON is YAML, and what Perfetto reads is JSON."""


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
    name = path.stem if is_packed(path) else path.name
    double = "".join(PurePath(name).suffixes[-2:]).lower()
    return double if double in FORMATS else PurePath(name).suffix.lower()


def format_of(path: PurePath | None) -> str | None:
    """The format that the file's name asks for; None if it asks for none."""
    return FORMATS.get(ending_of(path))


def refusal(
    path: PurePath, formats: Iterable[str], chosen: str | None, own: Iterable[str], text: bool = True
) -> str | None:
    """Why a command that writes these formats cannot write `chosen` (None: its text) to the file; None if it can.

    What the endings in `own` hold, the command itself knows; without `text` it has nothing else for a file that is
    named otherwise.
    """
    ending, named = ending_of(path), format_of(path)
    if ending in own or (named is not None and (named == chosen or (named, chosen) in _ALSO)):
        return None
    if named is None and text:
        return None
    ours = [_ending(format) for format in formats if text or format != "text"]
    possible = dict.fromkeys([*own, *ours, *([".txt"] if text else [])])
    if named is not None and chosen is not None and named in formats:
        return f"{path} would hold {chosen.upper()}: leave the format out, or give the file another name."
    written = ", ".join(sorted(possible, key=lambda ending: ending == ".txt"))
    what = f"{ending} is not written here" if ending else f"{path} has no extension"
    return f"{what}; what can be written: {written}, each also with .gz."


def _ending(format: str) -> str:
    return next((ending for ending, of in FORMATS.items() if of == format), ".txt")
