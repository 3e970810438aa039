"""The model that a user names, as a file that llama.cpp opens: itself, or a header whose data are a hole.

It is a GGUF file, as a whole or from its header on, the first of several, or a folder of safetensors.

A hole takes no room on the disk. The graph of a model depends on its metadata and on the names, types and shapes of its
weights, never on their values.
"""

from __future__ import annotations

import atexit
import errno
import mmap
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ggmltool.ggml.version import pad
from ggmltool.scenario.encoded import gguf_texts
from ggmltool.scenario.errors import Mistake
from ggmltool.scenario.gguf import MAGIC, GgufCutError, GgufDamagedError, GgufHeader, GgufValue, gguf_bytes, gguf_header
from ggmltool.scenario.text.text import elsewhere, file_meant, not_downloaded
from ggmltool.sources.llama.errors import CaptureError
from ggmltool.sources.llama.header.convert import converted, is_folder_of_safetensors
from ggmltool.sources.llama.header.quantization import Quantization, quantized, read_quantization

PART = re.compile(r"-(\d{5})-of-(\d{5})$")
_SPLIT = ("split.no", "split.count", "split.tensors.count")
_SHOWN = 3


MAX_SIZE = 1 << 46
"""Bytes of a model, at most: 64 TiB."""


class CutError(CaptureError):
    """The header goes on behind the end of the file."""


class OddError(Exception):
    """The header is none that this reads; what is the matter is told better by llama.cpp."""


def read_header(path: Path) -> GgufHeader:
    """The header of a GGUF file. Raises CutError where the file ends too early, OddError for one that is damaged."""
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            header = gguf_header(content)
        if header.alignment < 8 or any(t.offset > MAX_SIZE or t.n_bytes > MAX_SIZE for t in header.tensors):
            raise OddError
        return header
    except GgufCutError as cut:
        more = f", about {cut.guess} by those" if cut.guess > cut.least else ""
        first = pad(max(2 * cut.least, cut.guess + (1 << 20)), 16 << 20)
        raise CutError(
            f"{path} ends in its header, after {cut.end} bytes with {cut.what}; it needs more than {cut.least} "
            f"bytes{more}: get the first {first >> 20} MiB (curl -r 0-{first - 1})"
        ) from None
    except (OSError, ValueError, KeyError, GgufDamagedError):
        raise OddError from None


def write_header(
    path: Path, values: Mapping[str, GgufValue], tensors: Iterable[tuple[bytes, int, tuple[int, ...]]]
) -> None:
    """Write a GGUF file of these tensors (name, number of the type, ne) whose data are a hole. Raises OSError."""
    content, size = gguf_bytes(values, tensors)
    if size > MAX_SIZE:
        raise OSError(errno.EFBIG, "the model would have more than 64 TiB")
    write_hole(path, content, len(content) + size)


def write_hole(path: Path, content: bytes, size: int) -> None:
    """Write a file of that size: the content, and a hole that takes no room on the disk. Raises OSError."""
    with path.open("wb") as file:
        file.write(content)
        file.truncate(size)


class ModelFile(NamedTuple):
    """A model: the `path` that llama.cpp opens, what its user calls it, and whether the weights' values are there.

    `quantization` is the kind of file that it stands for, "" for itself.
    """

    path: Path
    title: str
    has_values: bool = True
    quantization: str = ""


def open_model(path: Path, quantization: str = "") -> ModelFile:
    """The model in a GGUF file, or in the files that it is the first of, each there as a whole or from its header on;
    or in a folder of safetensors, as llama.cpp's converter would make a file of it.

    With a `quantization`, such as Q4_K_M, it is the file that llama-quantize would make of it.

    Raises CaptureError: there is no such file, its header is cut, a part is missing, no file can be made.
    """
    wanted = read_quantization(quantization) if quantization else None
    if is_folder_of_safetensors(path):
        return _made(path, converted(path), wanted)
    check_gguf(path)
    try:
        return _made(path, _joined(_read(path)[1]), wanted) if wanted is not None else _opened(path)
    except OddError:
        if quantization:
            raise CaptureError(f"{path}: its header is damaged, or of another version of GGUF than 2 and 3") from None
        return ModelFile(path, str(path))  # llama.cpp says what is the matter with it


def is_model(path: Path) -> bool:
    """Whether this is a file that begins as GGUF does, or a folder, which is to be one of safetensors."""
    try:
        return is_gguf(path) or path.is_dir()
    except ValueError:
        return False


def model_name(path: Path) -> str:
    """What a model's file is called, without what says that it is the first part."""
    return path.resolve().name if path.is_dir() else PART.sub("", path.stem)


def is_gguf(path: Path) -> bool:
    """Whether this is a file that begins as GGUF does, whatever follows."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def check_gguf(path: Path) -> None:
    """Raise CaptureError for what is not a GGUF file at all."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise CaptureError(f"{path} is a folder without config.json and safetensors; name a GGUF file in it")
        if not stat.S_ISREG(mode):
            raise CaptureError(f"{path} is not a regular file")
        with path.open("rb") as file:
            head = file.read(64)
    except FileNotFoundError:
        hint = elsewhere(str(path)) or file_meant(str(path))
        raise CaptureError(f"{path}: there is no such file" + (f"; {hint}" if hint else "")) from None
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror or error}") from None
    if head[:4] != MAGIC:
        if found := not_downloaded(head):
            raise CaptureError(f"{path}: {found[0]}; {found[1]}")
        kind = "is empty" if not head else "is not a GGUF file: it does not begin with GGUF"
        raise CaptureError(f"{path} {kind}")
    if len(head) < 24:
        raise CaptureError(f"{path} is cut off: its header has {len(head)} of 24 bytes")


def _opened(path: Path) -> ModelFile:
    """The same. Raises OddError for a damaged file."""
    parts, headers = _read(path)
    if all(part.stat().st_size >= header.needed for part, header in zip(parts, headers, strict=True)):
        return ModelFile(path, str(path))
    if len(parts) == 1:
        with path.open("rb") as file:
            head = file.read(headers[0].size)
        return _with_hole(path, path.name, lambda new: write_hole(new, head, headers[0].whole))
    whole = _joined(headers)
    return _with_hole(path, path.name, lambda new: write_header(new, whole.values, _shapes(whole)))


def _made(path: Path, header: GgufHeader, wanted: Quantization | None) -> ModelFile:
    """The file that this is the header of, or that llama-quantize would make of it. Raises CaptureError."""
    values, tensors = header.values, list(_shapes(header))
    name = model_name(path)
    if wanted is not None:
        try:
            values, tensors = quantized(header, wanted)
        except CaptureError as error:
            raise CaptureError(f"{path}: --as {wanted}: {error}") from None
        name = f"{name}-{str(wanted).replace(':', '-')}"
    made = _with_hole(path, f"{name}.gguf", lambda new: write_header(new, values, tensors))
    return made._replace(quantization=str(wanted) if wanted is not None else "")


def _read(path: Path) -> tuple[list[Path], list[GgufHeader]]:
    """The parts of a model with their headers. Raises CaptureError, and OddError for a damaged file."""
    first = read_header(path)
    parts = _parts(path, first)
    return parts, [first, *(read_header(part) for part in parts[1:])]


def _joined(headers: Sequence[GgufHeader]) -> GgufHeader:
    """The header of all parts as one."""
    values = {key: value for key, value in headers[0].values.items() if key not in _SPLIT}
    return GgufHeader(values, [tensor for header in headers for tensor in header.tensors], 0)


def _parts(path: Path, first: GgufHeader) -> list[Path]:
    """The files of a model, all of which are there. Raises CaptureError."""
    n = first.number("split.count")
    found = PART.search(path.stem)
    if n < 2 or found is None or int(found[2]) != n:
        return [path]
    stem = path.stem[: found.start()]
    parts = [path.with_name(f"{stem}-{i + 1:05}-of-{n:05}{path.suffix}") for i in range(n)]
    if int(found[1]) != 1:
        raise CaptureError(f"{path} is part {int(found[1])} of {n}; name the first one, {parts[0].name}")
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        names = ", ".join(missing[:_SHOWN]) + (" …" if len(missing) > _SHOWN else "")
        raise CaptureError(
            f"{path} is the first of {n} parts, and {len(missing)} missing: {names}; "
            "the first megabytes of each are enough"
        )
    return parts


def _shapes(header: GgufHeader) -> Iterator[tuple[bytes, int, tuple[int, ...]]]:
    return ((t.name, t.type_id, t.ne) for t in header.tensors)


def _with_hole(path: Path, name: str, write: Callable[[Path], None]) -> ModelFile:
    """A file of that name in a folder of its own, which `write` makes. Raises CaptureError."""
    try:
        new = Path(tempfile.mkdtemp(dir=_folder())) / name
        write(new)
    except OSError as error:
        raise CaptureError(f"{path}: no header can be written to {tempfile.gettempdir()}: {error.strerror}") from None
    return ModelFile(new, str(path), has_values=False)


@cache
def _folder() -> Path:
    """A folder that is gone with the process."""
    folder = Path(tempfile.mkdtemp(prefix="ggmltool-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


_MODEL, _TOKENS = "tokenizer.ggml.model", "tokenizer.ggml.tokens"
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_BLANK = "\u2581"
"""What SentencePiece writes for a blank."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens of a model as its file has them; `kind` is how text was made of them (llama, gpt2, t5, bert …)."""

    kind: str
    tokens: list[str]

    def text(self, token: int) -> str:
        """The text that a token stands for; "" for a number that is no token."""
        if not 0 <= token < len(self.tokens):
            return ""
        piece = self.tokens[token]
        if self.kind == "gpt2":
            return _of_bytes(piece)
        byte = _BYTE.fullmatch(piece)
        if byte is not None:
            return bytes([int(byte[1], 16)]).decode("utf-8", "replace")
        return piece.replace(_BLANK, " ")


def read_vocabulary(path: Path) -> Vocabulary | None:
    """The vocabulary in a GGUF file; None if it has none, or cannot be read."""
    try:
        found = gguf_texts(path, (_MODEL, _TOKENS))
    except (Mistake, OSError, ValueError):
        return None
    tokens = found.get(_TOKENS)
    return Vocabulary((found.get(_MODEL) or [""])[0], tokens) if tokens else None


def _of_bytes(piece: str) -> str:
    """Text of which each byte is written as a letter: GPT-2 writes bytes that are no letters as those from 256 on."""
    if any(c not in _BYTES for c in piece):
        return piece
    return bytes(_BYTES[c] for c in piece).decode("utf-8", "replace")


def _letters() -> dict[str, int]:
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


_BYTES = _letters()
