"""Where a command's result goes: standard output, or a file that is written whole or not at all."""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TextIO

from ggmltool.cli.command import current_settings
from ggmltool.cli.errors import FINE, GGML_FAILED, CliError, cannot_write, say, suggestion
from ggmltool.inspect.watched import Watched
from ggmltool.show.table import Style
from ggmltool.show.text import harmless

if TYPE_CHECKING:
    from ggmltool.ask.answer import Answer
    from ggmltool.show.document import Document

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
    endings = {format: ending for ending, format in reversed(FORMATS.items())}
    ours = [endings.get(format, ".txt") for format in formats if text or format != "text"]
    possible = dict.fromkeys([*own, *ours, *([".txt"] if text else [])])
    if named is not None and chosen is not None and named in formats:
        return f"{path} would hold {chosen.upper()}: leave the format out, or give the file another name."
    written = ", ".join(sorted(possible, key=lambda ending: ending == ".txt"))
    what = f"{ending} is not written here" if ending else f"{path} has no extension"
    return f"{what}; what can be written: {written}, each also with .gz."


UNLIMITED = 10_000
"""The width of output that no terminal shows: nothing is cut."""


@dataclass(frozen=True, slots=True)
class Output:
    """The `-o` of a command: `path` None is standard output; `force` allows to overwrite a file; `raw` lets a terminal
    have ggml's own text as ggml prints it. `table` is the one of a document that is written as CSV ("": its main one),
    None for documents as JSON. `aside` is for what is said beside a program that has standard output: it
    goes to standard error."""

    path: Path | None = None
    force: bool = False
    raw: bool = False
    table: str | None = None
    aside: bool = False

    @property
    def to_terminal(self) -> bool:
        return self.path is None and self._stream.isatty()

    @property
    def _stream(self) -> TextIO:
        return sys.stderr if self.aside else sys.stdout

    @property
    def style(self) -> Style:
        """The room and the colors that a view may use here."""
        return Style(self.width, self._colors())

    def _colors(self) -> Literal["", "standard", "256"]:
        """Colors as asked, else on a terminal that has not been told otherwise; as many as it says it has."""
        wanted = current_settings().color
        term = os.environ.get("TERM", "")
        if wanted == "never" or (
            wanted == "auto" and (not self.to_terminal or os.environ.get("NO_COLOR") or term == "dumb")
        ):
            return ""
        many = "256" in term or not term or os.environ.get("COLORTERM")
        return "256" if many else "standard"

    @property
    def width(self) -> int:
        """Columns there are: those of the terminal or of COLUMNS; elsewhere names need not be cut."""
        if self.to_terminal:
            return max(_columns(self._stream), 20)
        columns = os.environ.get("COLUMNS", "")
        return max(int(columns), 20) if columns.isdecimal() and int(columns) else UNLIMITED

    def check(self) -> None:
        """Refuse a path that cannot be written before any work is done. Raises CliError."""
        if self.path is None:
            return
        try:
            self.path.stat()
        except FileNotFoundError:
            pass
        except NotADirectoryError:
            raise CliError(f"the folder {self.path.parent} does not exist; make it first") from None
        except OSError as error:
            raise CliError(f"cannot write {self.path}: {error.strerror or error}") from None
        if self.path.is_dir():
            raise CliError(f"{self.path} is a folder; name a file in it")
        if not self.path.parent.is_dir():
            raise CliError(f"the folder {self.path.parent} does not exist; make it first")
        if self.path.is_file() and not self.force:
            raise CliError(f"{self.path} exists; --force overwrites it")

    def write(self, result: str | bytes) -> None:
        """Write the whole result: of text only what is seen as it is, the rest as escapes; bytes as they are.

        What comes from outside and reaches a view (names in a log, a scenario, a GGUF) can so steer no terminal.
        """
        if isinstance(result, str):
            result = harmless(result, bool(self._colors())).encode()
        self._write(result)

    def answer(self, answer: Answer[Any], format: str, made: str | bytes | None = None) -> int:
        """Write an answer in one of its formats, or what was `made` of it; the exit status. ggml's words go to standard
        error where it refused, unless the answer has them."""
        record: Any = answer.facts  # a Document, or facts that make one
        if made is not None:
            self.write(made)
        elif format in ("json", "csv"):
            self.write_document(answer.document())
        elif getattr(record, "in_ggmls_words", False):
            self.write_ggml(answer.shown(format, self.style))
        else:
            self.write(answer.shown(format, self.style))
        plan = answer.plan
        error = None if plan is None else plan.error or plan.compute_error
        if error is not None and format not in getattr(record, "tells_refusal", ()):
            from ggmltool.show.text import ggml_error

            note(ggml_error(dict(error)))
        return FINE if answer.fine else GGML_FAILED

    def write_document(self, document: Document) -> None:
        """Write a document as JSON, or one of its tables as CSV. Raises CliError for a table that it does not have."""
        if self.table is None:
            from ggmltool.show.document import json_text

            self.write(json_text(document))
            return
        from ggmltool.show.csv import UnknownTableError, csv_text

        try:
            text = csv_text(document, self.table)
            if self.to_terminal:
                self.write(text.replace("\r\n", "\n"))
            else:
                self._write(text.encode())
        except UnknownTableError as error:
            there = f"the tables are {', '.join(error.there)}" if error.there else "it is one row; leave out --rows"
            hint = suggestion(error.name, error.there)
            raise CliError(f"{document.kind} has no table {error.name!r}; {there}.{hint}") from None

    def write_ggml(self, text: str) -> None:
        """Write text as ggml itself prints it, byte for byte, bytes that are no UTF-8 in names included; a terminal
        gets it with escapes, unless it is to be raw."""
        if self.to_terminal and not self.raw:
            self.write(text)
        else:
            self._write(text.encode("utf-8", "surrogateescape"))

    def _write(self, data: bytes) -> None:
        if is_packed(self.path):
            data = gzip.compress(data, mtime=0)
        if self.path is None:
            _print(data, self._stream)
            return
        self.check()
        try:
            if self.path.exists() and not self.path.is_file():
                from ggmltool.cli.progress import READER, waiting_for

                with waiting_for(self.path, READER):
                    self.path.write_bytes(data)
            else:
                replace_file(Path(os.path.realpath(self.path)), lambda file: file.write(data))
        except OSError as error:
            raise CliError(f"cannot write {self.path}: {error.strerror or error}") from None
        note(f"Wrote {self.path}")


def _columns(stream: TextIO) -> int:
    """The columns of the terminal, as shutil tells them of standard output."""
    if stream is sys.stderr and not sys.stdout.isatty() and not os.environ.get("COLUMNS"):
        with suppress(OSError, ValueError):
            return os.get_terminal_size(stream.fileno()).columns
    return shutil.get_terminal_size().columns


def _print(data: bytes, stream: TextIO) -> None:
    """Write to standard output or error. Raises CliError if that fails, BrokenPipeError if the reader is gone."""
    try:
        stream.flush()
        stream.buffer.write(data)
        stream.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CliError(cannot_write(error, "error" if stream is sys.stderr else "output")) from None


def replace_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a new file beside `path` and move it there: readers see the old one or the whole new one."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~mask)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def note(message: str) -> None:
    """Tell the user something on standard error, unless --quiet."""
    if current_settings().verbosity >= 0:
        say(message)


def detail(message: str) -> None:
    """Tell the user something on standard error with --verbose."""
    if current_settings().verbosity > 0:
        say(harmless(message))


def log_lines(lines: Iterable[str]) -> None:
    """What ggml logged, on standard error with --verbose."""
    for line in lines:
        detail(f"ggml: {line.rstrip()}")


def status_of(watched: Watched, say: bool = True) -> int:
    """The exit status; ggml's words go to standard error if it refused (and the view did not `say` them)."""
    plan = watched.plan
    error = plan.error or plan.compute_error
    if error is None:
        return FINE
    if say:
        from ggmltool.show.text import ggml_error

        note(ggml_error(dict(error)))
    return GGML_FAILED
