"""Capturing a model's graph: checks what can be told without llama.cpp, then asks the child process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from ggmltool.sources.llama.asking import ask, ask_many
from ggmltool.sources.llama.errors import CaptureError
from ggmltool.sources.llama.model_file import PART, ModelFile, open_model
from ggmltool.sources.llama.options import CaptureOptions
from ggmltool.sources.llama.packages import find
from ggmltool.sources.llama.replies import Reply


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


def capture(path: Path, options: CaptureOptions, quantization: str = "") -> Captured:
    """Capture the graph of a model, or of what llama-quantize would make of it.

    Raises CaptureError: no library or a release that is not known, no model, one that the library refuses.
    """
    find(options.library)
    model = _opened(path, [options], quantization)
    outcome = _captured(model, ask(model, options))
    if isinstance(outcome, CaptureError):
        raise outcome
    return outcome


def capture_many(
    path: Path, asked: Sequence[CaptureOptions], quantization: str = ""
) -> Iterator[Captured | CaptureError]:
    """Capture the graph of a model with each of these options, in their order, as they come.

    One process loads the model once and makes a context for each of the options; while one graph is worked on, the
    next is made. Options that llama.cpp refuses give a CaptureError in the place of the graph. Raises CaptureError at
    once for what is no model, or if there is no library.
    """
    for library in dict.fromkeys(options.library for options in asked):
        find(library)
    return _capture_many(_opened(path, asked, quantization), asked)


def _opened(path: Path, asked: Sequence[CaptureOptions], quantization: str) -> ModelFile:
    """The model, with its values if tokens are decoded. Raises CaptureError."""
    opened = open_model(path, quantization)
    if not opened.has_values and any(map(_decodes, asked)):
        what = f"as {quantization} there are none" if quantization else "there is only the header"
        raise CaptureError(f"--prompt and --tokens need the weights' values; of {path} {what}")
    return opened


def _decodes(options: CaptureOptions) -> bool:
    return bool(options.tokens or options.prompt)


def _capture_many(model: ModelFile, asked: Sequence[CaptureOptions]) -> Iterator[Captured | CaptureError]:
    for (_, decodes), group in groupby(asked, lambda options: (options.library, _decodes(options))):
        if decodes:
            yield from (_captured(model, ask(model, options)) for options in group)
        else:
            yield from (_captured(model, outcome) for outcome in ask_many(model, list(group)))


def _captured(model: ModelFile, outcome: Reply | CaptureError) -> Captured | CaptureError:
    if isinstance(outcome, CaptureError):
        return outcome
    scenario = outcome["scenario"]
    if model.quantization:
        scenario["name"] += f", as {model.quantization}"
        scenario["meta"]["quantization"] = model.quantization
    return Captured(scenario, outcome["log"])


def add_weights(scenario: dict[str, Any], path: Path, folder: Path) -> None:
    """Say in a scenario that stands in `folder` that the weights' values are those in the GGUF file.

    Raises CaptureError if the file does not lie at or below the folder, or has only a part of the weights.
    """
    file, base = path.resolve(), folder.resolve()
    if not file.is_relative_to(base):
        raise CaptureError(
            f"--weights: a scenario in {base} cannot refer to {path}, which is not in that folder or below it"
        )
    if PART.search(path.stem):
        raise CaptureError(f"--weights needs a model in one file; {path} is part of a split model")
    if not open_model(path).has_values:
        raise CaptureError(f"--weights needs the weights' values; of {path} there is only the header")
    name = file.relative_to(base).as_posix()
    for id, tensor in scenario["contexts"]["weights"]["tensors"].items():
        tensor["data"] = {"gguf": name, "tensor": tensor.get("name", id)}
