"""Capturing a model's graph: checks what can be told without llama.cpp, then asks the child process."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from ggmltool.sources.llama.asking import ask, ask_many
from ggmltool.sources.llama.errors import CaptureError
from ggmltool.sources.llama.options import CaptureOptions
from ggmltool.sources.llama.packages import find
from ggmltool.sources.llama.replies import Reply

_MAGIC = b"GGUF"
_PART = re.compile(r"-\d{5}-of-\d{5}$")


@dataclass(frozen=True, slots=True)
class Captured:
    """A captured graph as a scenario, and what the library logged on the way."""

    scenario: dict[str, Any]
    log: list[str]

    @property
    def facts(self) -> dict[str, Any]:
        """The scenario's `meta`: the model, the context's settings, the batch."""
        meta: dict[str, Any] = self.scenario["meta"]
        return meta


def capture(path: Path, options: CaptureOptions) -> Captured:
    """Capture the graph of a GGUF file, for all parts of a split one its first.

    Raises CaptureError: no library or a release that is not known, no GGUF, a model that the library refuses.
    """
    find(options.library)
    check_gguf(path)
    outcome = _captured(ask(path, options))
    if isinstance(outcome, CaptureError):
        raise outcome
    return outcome


def capture_many(path: Path, asked: Sequence[CaptureOptions]) -> Iterator[Captured | CaptureError]:
    """Capture the graph of a GGUF file with each of these options, in their order, as they come.

    One process loads the model once and makes a context for each of the options; while one graph is worked on, the
    next is made. Options that llama.cpp refuses give a CaptureError in the place of the graph. Raises CaptureError at
    once for what is no GGUF, or if there is no library.
    """
    for library in dict.fromkeys(options.library for options in asked):
        find(library)
    check_gguf(path)
    return _capture_many(path, asked)


def _capture_many(path: Path, asked: Sequence[CaptureOptions]) -> Iterator[Captured | CaptureError]:
    for (_, decodes), group in groupby(asked, lambda o: (o.library, bool(o.tokens or o.prompt))):
        if decodes:
            yield from (_captured(ask(path, options)) for options in group)
        else:
            yield from map(_captured, ask_many(path, list(group)))


def _captured(outcome: Reply | CaptureError) -> Captured | CaptureError:
    return outcome if isinstance(outcome, CaptureError) else Captured(outcome["scenario"], outcome["log"])


def add_weights(scenario: dict[str, Any], path: Path, folder: Path) -> None:
    """Say in a scenario that stands in `folder` that the weights' values are those in the GGUF file.

    Raises CaptureError if the file does not lie at or below the folder, or has only a part of the weights.
    """
    file, base = path.resolve(), folder.resolve()
    if not file.is_relative_to(base):
        raise CaptureError(
            f"--weights: a scenario in {base} cannot refer to {path}, which is not in that folder or below it"
        )
    if _PART.search(path.stem):
        raise CaptureError(f"--weights needs a model in one file; {path} is part of a split model")
    name = file.relative_to(base).as_posix()
    for id, tensor in scenario["contexts"]["weights"]["tensors"].items():
        tensor["data"] = {"gguf": name, "tensor": tensor.get("name", id)}


def model_name(path: Path) -> str:
    """What a model's file is called, without what says that it is the first part."""
    return _PART.sub("", path.stem)


def is_gguf(path: Path) -> bool:
    """Whether this is a file that begins as GGUF does, whatever follows."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except (OSError, ValueError):
        return False


def check_gguf(path: Path) -> None:
    """Raise CaptureError for what is not a GGUF file at all."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise CaptureError(f"{path} is a folder; name a GGUF file in it")
        if not stat.S_ISREG(mode):
            raise CaptureError(f"{path} is not a regular file")
        with path.open("rb") as file:
            head = file.read(24)
    except FileNotFoundError:
        raise CaptureError(f"{path}: there is no such file") from None
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror or error}") from None
    if head[:4] != _MAGIC:
        kind = "is empty" if not head else "is not a GGUF file: it does not begin with GGUF"
        raise CaptureError(f"{path} {kind}")
    if len(head) < 24:
        raise CaptureError(f"{path} is cut off: its header has {len(head)} of 24 bytes")
