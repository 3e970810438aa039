"""Reading a scenario: bytes from a file or standard input, bounded, unpacked and decoded; and places in its text."""

from __future__ import annotations

import codecs
import os
import re
import stat
import sys
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Literal, Protocol

from ggmltool.scenario.errors import Mistake, Place, ScenarioError, did_you_mean, quoted
from ggmltool.scenario.text.json import decode_json, find_in_json
from ggmltool.scenario.text.record import is_record, unpacked
from ggmltool.scenario.text.yaml import compose_yaml, find_in_yaml

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LANES = {
    (False, True, True, True): "utf-32-le",
    (True, True, True, False): "utf-32-be",
    (False, True, False, True): "utf-16-le",
    (True, False, True, False): "utf-16-be",
}
"""Which of every four bytes are 0 where the text is mostly ASCII."""

_HEAD = 256


def wide_codec(head: bytes) -> str | None:
    """The codec of a text that begins so, where that is UTF-16 or UTF-32, with a byte order mark or without one."""
    for mark, codec in _MARKS:
        if head.startswith(mark):
            return codec
    lanes = [head[i:_HEAD:4] for i in range(4)]
    if min(map(len, lanes)) == 0:
        return None
    zeros = [lane.count(0) / len(lane) for lane in lanes]
    if any(0.1 < part < 0.9 for part in zeros):
        return None
    return _LANES.get((zeros[0] > 0.5, zeros[1] > 0.5, zeros[2] > 0.5, zeros[3] > 0.5))


def decoded(raw: bytes) -> str:
    """The text of bytes in any of these encodings, or in UTF-8; raises UnicodeDecodeError for what is in none."""
    return raw.decode(wide_codec(raw) or "utf-8-sig")


class Pieced:
    """A stream of what comes in pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._ready = b""

    def read(self, n: int = -1, /) -> bytes:
        """Up to `n` bytes, fewer only at the end; all of them for -1."""
        parts = [self._ready]
        have = len(self._ready)
        while (n < 0 or have < n) and (piece := next(self._pieces, None)) is not None:
            parts.append(piece)
            have += len(piece)
        whole = b"".join(parts)
        end = len(whole) if n < 0 else n
        self._ready = whole[end:]
        return whole[:end]


def recoded(stream: Readable, codec: str) -> Pieced:
    """A stream in UTF-16 or UTF-32 as one in UTF-8; what cannot be decoded comes out as U+FFFD."""

    def pieces() -> Iterator[bytes]:
        decoder = codecs.getincrementaldecoder(codec)("replace")
        while raw := stream.read(_CHUNK):
            yield decoder.decode(raw).encode("utf-8", "replace")
        yield decoder.decode(b"", final=True).encode("utf-8", "replace")

    return Pieced(pieces())


_MOST_ENTRIES = 10_000
"""Entries of a folder that are looked at."""


def files_beside(argument: str, endings: tuple[str, ...] = ("",)) -> list[str]:
    """The files with these endings in the folder that `argument` names a file of, as they are named from here."""
    folder = os.path.dirname(argument)  # noqa: PTH120 - the names go on as they began
    try:
        with os.scandir(folder or ".") as entries:
            names = [e.name for e in islice(entries, _MOST_ENTRIES) if e.name.endswith(endings) and e.is_file()]
    except (OSError, ValueError):
        return []
    return sorted(os.path.join(folder, name) for name in names)  # noqa: PTH118


def file_meant(argument: str) -> str:
    """`did you mean "x"?` for the name of a file that is not there, "" if none beside it is called like it."""
    return did_you_mean(argument, files_beside(argument))


_LOG_HEAD = 1 << 20
_GRAPH_LINE = re.compile(r"## SPLIT #\d{1,9}: |node # *\d{1,9} \(.{1,10}\): ")
_LOAD_LINE = re.compile(
    r"^.{0,100}?(?<!\w)(?:llama_\w{3,60}|llm_load_\w{3,40}|ggml_(?:cuda|metal|vulkan|vk|backend|gallocr|sycl)\w{0,60}"
    r"|common_\w{3,60}|load_tensors|print_info|sched_reserve|graph_reserve|load_backend|create_tensor): +\S"
    r"|GGML_ASSERT\(|GGML_ASSERT: |\.(?:c|cpp|cu|m|h):\d{1,6}: \S|(?:CUDA|ROCm|MUSA) error: ",
    re.MULTILINE,
)
"""A line of llama.cpp's while it loads a model, or of ggml's where it stops."""

_FORMAT_KEY = re.compile(r"^[\s{,]{0,200}[\"']?ggmltool[\"']?\s{0,20}:", re.MULTILINE)
_TAKES_LOGS = "`ggmltool import` shows what is in it, and `splits`, `plan` and `dot` take it too"
_HOW_TO_LOG = (
    "`ggmltool import` shows what is in it; for its graphs run the program with GGML_SCHED_DEBUG=2 in the environment, "
    "llama.cpp also with -v"
)


def is_scenario(text: str) -> bool:
    """Whether a text has the key `ggmltool` at the beginning of a line or object."""
    return _FORMAT_KEY.search(text) is not None


def no_log(text: str, source: str) -> None:
    """Raises ScenarioError for a text that is a log: of the scheduler's prints, or of a model that is loaded."""
    if _GRAPH_LINE.search(text):
        if not is_scenario(text):
            raise ScenarioError("this is a log of GGML_SCHED_DEBUG, not a scenario", source, expected=_TAKES_LOGS)
    elif not is_scenario(text) and _LOAD_LINE.search(text[:_LOG_HEAD]):
        raise ScenarioError("this is a log without graphs, not a scenario", source, expected=_HOW_TO_LOG)


MAX_BYTES = 128 << 20
"""Bytes of a scenario's text, unpacked. Larger data belongs into npy and gguf files."""

MAX_YAML_BYTES = 32 << 20
"""Bytes of a YAML scenario (YAML is read a hundred times slower than JSON)."""

MAX_RATIO = 60
"""How much smaller than its text a packed file may be (graphs reach 15), beyond the first megabytes."""

_FREE = 8 << 20
_CHUNK = 1 << 20
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_MAGIC = {b"\x93NUMPY": "an npy file", b"PK\x03\x04": "a zip archive"}

Format = Literal["json", "yaml", "dict"]


@dataclass(slots=True)
class ScenarioText:
    """A scenario as it was read: `value` is its content, `text` what it was read from ("" for a dict).

    `source` is what messages call it, `folder` where the files it names lie.
    """

    source: str
    folder: Path | None
    format: Format
    text: str
    value: object
    _breaks: list[int] | None = field(default=None, repr=False)

    def error(self, mistake: Mistake, *path: str | int) -> ScenarioError:
        """The mistake, made somewhere below `path`, with its place in the text."""
        full = (*path, *mistake.path)
        offset = self._offset(full, mistake.on_key, mistake.offset)
        if offset is None:
            where = _path_text(full)
            message = f"{where}: {mistake.message}" if where else mistake.message
            return ScenarioError(message, self.source, expected=mistake.expected)
        place, line = self._place(offset)
        return ScenarioError(mistake.message, self.source, place, mistake.expected, line)

    def place(self, *path: str | int) -> Place | None:
        """Where the key or list item at the end of `path` stands; None if there is no text.

        It is asked for every node of a scenario in YAML, all of which may stand in one line.
        """
        if self.format == "yaml":
            return find_in_yaml(self.value, path, on_key=True)
        offset = self._offset(path, on_key=True, inner=None)
        return None if offset is None else self._place(offset)[0]

    def _offset(self, path: Sequence[str | int], on_key: bool, inner: int | None) -> int | None:
        if self.format == "dict":
            return None
        if self.format == "yaml":
            mark = find_in_yaml(self.value, path, on_key)
            breaks = self._line_breaks()
            start = breaks[min(mark.line, len(breaks)) - 1] + mark.column - 1
        else:
            start = find_in_json(self.text, path, on_key)
        return start if inner is None else inside_string(self.text, start, inner)

    def _line_breaks(self) -> list[int]:
        if self._breaks is None:
            self._breaks = [0, *(m.end() for m in _LINE_BREAK.finditer(self.text))]
        return self._breaks

    def _place(self, offset: int) -> tuple[Place, str]:
        breaks = self._line_breaks()
        line = bisect_right(breaks, offset)
        start = breaks[line - 1]
        end = _LINE_BREAK.search(self.text, start)
        return Place(line, offset - start + 1), self.text[start : end.start() if end else len(self.text)]


def _path_text(path: Sequence[str | int]) -> str:
    """`graphs.main.nodes.h.src[1]`."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            plain = isinstance(part, str) and part.isprintable() and len(part) <= 60
            shown = part if plain else quoted(part)
            out += f".{shown}" if out else shown
    return out


def inside_string(text: str, start: int, n: int) -> int:
    """The offset in `text` of character `n` of the string written at `start`, plain, quoted, escaped or folded."""
    quote = text[start : start + 1]
    i = start
    if quote in ('"', "'"):
        i += 1
    elif quote in ("|", ">"):
        newline = _LINE_BREAK.search(text, start)
        i = newline.end() if newline else start
        while text[i : i + 1] == " ":
            i += 1
    else:
        quote = ""
    for _ in range(n):
        i += _raw_length(text, i, quote)
        if i > len(text):
            return start
    return i


_ESCAPE_LENGTH = {"x": 4, "u": 6, "U": 10}


def _raw_length(text: str, i: int, quote: str) -> int:
    """How many characters of the file stand for one character of the string."""
    c = text[i : i + 1]
    if quote == '"' and c == "\\":
        return _ESCAPE_LENGTH.get(text[i + 1 : i + 2], 2)
    if quote == "'" and c == "'":
        return 2
    if c in ("\n", "\r"):
        j = i
        while text[j : j + 1] in (" ", "\n", "\r", "\t"):
            j += 1
        return max(j - i, 1)
    return 1


class Readable(Protocol):
    """All that a stream must be able to do here."""

    def read(self, n: int, /) -> bytes:
        """Up to `n` bytes, fewer only at the end."""


def read_document(source: str | Path | dict[str, object], stream: Readable | None = None) -> ScenarioText:
    """Read a scenario from a path, from standard input (`-`) or from a dict, which is taken as it is.

    `stream` is the content of the path or of standard input where somebody has opened it already. Raises ScenarioError
    for whatever cannot be read.
    """
    if isinstance(source, dict):
        return ScenarioText("<dict>", None, "dict", "", source)
    if not isinstance(source, str | PathLike):
        raise ScenarioError(
            f"a scenario cannot be of type {type(source).__name__}",
            "load",
            expected='give a path, "-" for standard input, or a dict',
        )
    name = str(source)
    raw, shown = read_bytes(source, stream)
    folder = Path.cwd() if name == "-" else Path(source).parent
    if is_record(raw):
        return parse_document(unpacked(raw, shown).scenario, shown, "json", folder)
    text = _decode(raw, shown)
    stem = name.lower().removesuffix(".gz")
    if stem.endswith((".yaml", ".yml")):
        format_: Literal["json", "yaml"] = "yaml"
    elif stem.endswith(".json"):
        format_ = "json"
    else:
        format_ = "json" if re.match(r"\s*\{\s*[\"}]", text) else "yaml"
    return parse_document(text, shown, format_, folder)


def read_bytes(source: str | Path, stream: Readable | None = None) -> tuple[bytes, str]:
    """The bytes of a file, unpacked if it is a gzip file, or of standard input (`-`); and what messages call it.

    Raises ScenarioError if it cannot be read, or is too large.
    """
    name = str(source)
    shown = "<stdin>" if name == "-" else name if name.isprintable() and len(name) < 1000 else quoted(name)
    if stream is None and name == "-":
        stream = sys.stdin.buffer
    return (_read_file(Path(source), shown) if stream is None else _read_stream(stream, shown)), shown


def parse_document(text: str, source: str, format_: Literal["json", "yaml"], folder: Path | None) -> ScenarioText:
    """The content of a scenario's text."""
    document = ScenarioText(source, folder, format_, text, None)
    if not text.strip():
        raise _empty(source)
    no_log(text, source)
    if format_ == "yaml" and len(text) > MAX_YAML_BYTES:
        raise ScenarioError(
            f"YAML of {len(text)} characters", source, expected=f"at most {MAX_YAML_BYTES}: write large graphs as JSON"
        )
    try:
        document.value = decode_json(text) if format_ == "json" else compose_yaml(text)
    except Mistake as mistake:
        place, line = document._place(min(mistake.offset or 0, len(text)))
        raise ScenarioError(mistake.message, source, place, mistake.expected, line) from None
    if document.value is None:
        raise _empty(source)
    return document


def _empty(source: str) -> ScenarioError:
    return ScenarioError("there is nothing in this file", source, expected="a scenario starts with `ggmltool: 1`")


def _read_file(path: Path, shown: str) -> bytes:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ScenarioError("this is a directory", shown or ".", expected="name a scenario file")
        with path.open("rb") as stream:
            return _read_stream(stream, shown)
    except FileNotFoundError:
        expected = elsewhere(shown) or file_meant(str(path))
        raise ScenarioError("there is no such file", shown, expected=expected) from None
    except OSError as e:
        raise ScenarioError(f"cannot be read: {e.strerror or e}", shown) from None
    except ValueError:
        raise ScenarioError("this is not a file name", shown) from None


def _read_stream(stream: Readable, shown: str) -> bytes:
    raw = stream.read(MAX_BYTES + 1)
    no_model(raw, shown)
    if len(raw) > MAX_BYTES:
        raise _too_large(shown, raw)
    return _unpack(raw, shown) if raw[:2] == b"\x1f\x8b" else raw


def no_model(head: bytes, shown: str) -> None:
    """Raises ScenarioError for what begins as a GGUF file does, or is what a download left in the place of one."""
    if head.startswith(b"GGUF"):
        raise ScenarioError("this is a GGUF file, a model", shown, expected="`ggmltool capture` makes it a scenario")
    found = not_downloaded(head)
    if found is not None:
        raise ScenarioError(found[0], shown, expected=found[1])
    if shown.lower().endswith(".gguf"):
        raise ScenarioError("this is not a GGUF file: it does not begin with GGUF", shown)


def not_downloaded(head: bytes) -> tuple[str, str] | None:
    """What a download left in the place of a file, and what to do; None if the file looks like another thing."""
    if head.startswith(b"version https://git-lfs.github.com/spec/"):
        return "this is a Git LFS pointer, not the file that it stands for", "`git lfs pull` fetches that"
    if head[:512].lstrip(b"\xef\xbb\xbf \t\r\n")[:9].lower().startswith((b"<!doctype", b"<html")):
        return "this is an HTML page", "download the file itself, not the page about it; a login may be needed"
    return None


_HUB = re.compile(r"[\w.-]+/[\w.-]+(?<!\.yaml)(?<!\.yml)(?<!\.json)(?<!\.gguf)(?<!\.gz)(?<!\.log)(?<!\.txt)(:[\w.-]+)?")


def elsewhere(name: str) -> str:
    """What to do where a name is a URL, or looks like that of a model on a hub; "" for others."""
    if re.match(r"(https?|hf|s3|file):/", name):
        return "download it first; of a model the first megabytes are enough: curl -L -r 0-16777215 -o model.gguf URL"
    folder = name.partition("/")[0]
    if _HUB.fullmatch(name) and folder not in (".", "..") and not Path(folder).exists():
        return "models are not downloaded here: fetch the .gguf file (its first megabytes are enough) and name that"
    return ""


def _too_large(shown: str, content: bytes | bytearray) -> ScenarioError:
    """What to raise for a text that is too long. Raises it for a log."""
    head = content[:_CHUNK].decode("utf-8", "replace")
    no_log(head, shown)
    if is_scenario(head):
        hint = "put large data into npy or gguf files beside the scenario"
    else:
        hint = "a scenario starts with `ggmltool: 1`; `ggmltool import` shows what is in a log"
    return ScenarioError(f"more than {MAX_BYTES >> 20} MiB", shown, expected=hint)


def _unpack(raw: bytes, shown: str) -> bytes:
    """Gunzip, with a bound on the result and on how much larger it is than what it came from."""
    limit = min(MAX_BYTES, _FREE + MAX_RATIO * len(raw))
    out = bytearray()
    rest = raw
    try:
        while rest:
            unpacker = zlib.decompressobj(wbits=31)
            while not unpacker.eof:
                chunk = unpacker.decompress(rest, _CHUNK)
                rest = unpacker.unconsumed_tail
                out += chunk
                if len(out) > MAX_BYTES:
                    raise _too_large(shown, out)
                if len(out) > limit:
                    raise ScenarioError(f"this gzip file of {len(raw)} bytes unpacks to more than {limit}", shown)
                if not chunk and not rest and not unpacker.eof:
                    raise ScenarioError("this gzip file is cut off", shown)
            rest = unpacker.unused_data.lstrip(b"\0")
    except zlib.error as e:
        raise ScenarioError(f"this gzip file is damaged ({str(e).rsplit(': ', 1)[-1]})", shown) from None
    return bytes(out)


def _decode(raw: bytes, shown: str) -> str:
    for magic, what in _MAGIC.items():
        if raw.startswith(magic):
            raise ScenarioError(f"this is {what}, not a scenario", shown)
    try:
        return decoded(raw)
    except UnicodeDecodeError as e:
        if e.encoding != "utf-8":
            name = e.encoding.upper()
            message = f"this begins as {name}, and byte {e.start} cannot be decoded ({e.reason})"
            raise ScenarioError(message, shown, expected="write the scenario in UTF-8") from None
        line = raw.count(b"\n", 0, e.start) + 1
        column = len(raw[raw.rfind(b"\n", 0, e.start) + 1 : e.start].decode("utf-8", "replace")) + 1
        message = f"this is not text: byte 0x{raw[e.start]:02x} is not UTF-8"
        raise ScenarioError(message, shown, Place(line, column), "a scenario is YAML or JSON in UTF-8") from None
