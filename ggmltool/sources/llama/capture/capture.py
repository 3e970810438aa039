"""Capturing a model's graph: checks what can be told without llama.cpp, then asks the child process."""

from __future__ import annotations

import atexit
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.tensor import nbytes_of
from ggmltool.sources.llama.capture.options import CaptureOptions, Reply, opened, raw_reply
from ggmltool.sources.llama.capture.packages import find
from ggmltool.sources.llama.errors import CaptureError
from ggmltool.sources.llama.model_file import PART, ModelFile, open_model

_COMMAND = [sys.executable, "-P", "-m", "ggmltool.sources.llama.capture.child"]
_FOLDERS = re.compile(r"^\S*/(?=[^/\s]+:\d+: )")
_WHAT = re.compile(r"what\(\): +(.*)")

_NO_GPU = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "HIP_VISIBLE_DEVICES": "-1",
    "GGML_VK_VISIBLE_DEVICES": "",
    "GGML_NO_BACKTRACE": "1",
}
"""What the child's environment says: it sees no GPU, and an abort prints no backtrace."""


def ask_many(model: ModelFile, asked: Sequence[CaptureOptions]) -> Iterator[Reply | CaptureError]:
    """The replies for graphs of one model, or why there are none, in the order of the options.

    One process has the model for all of them. After a crash another one goes on with the next options; a model that
    cannot be loaded is an error for each. Raises RuntimeError for a mistake of ours.
    """
    done = 0
    while done < len(asked):
        for outcome in _from_one_process(model, asked[done:]):
            done += 1
            yield outcome


def _from_one_process(model: ModelFile, asked: Sequence[CaptureOptions]) -> Iterator[Reply | CaptureError]:
    """One outcome for each of the options, or as many as there are until the process aborts or crashes."""
    process = _Process(model, asked)
    atexit.register(process.end)  # a caller that fails may never close this generator
    try:
        for n_left in range(len(asked), 0, -1):
            outcome = process.outcome()
            if not process.is_loaded:
                yield from [outcome] * n_left
                return
            yield outcome
            if process.has_ended:
                return
    finally:
        atexit.unregister(process.end)
        process.end()


class _Process:
    """A process that was asked. A thread of ours reads what it writes, so that it need not wait for us."""

    def __init__(self, model: ModelFile, asked: Sequence[CaptureOptions]) -> None:
        self.model = model
        self.is_loaded = False
        self.has_ended = False
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `end`
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(_COMMAND, stdin=pipe, stdout=pipe, stderr=self.said, env=_environment())
        self.raw: SimpleQueue[bytes | None] = SimpleQueue()
        self.thread = Thread(target=self._talk, args=(_request(model, asked),), daemon=True)
        self.thread.start()

    def _talk(self, request: bytes) -> None:
        """Ask, then read reply after reply until the process ends."""
        stdin, stdout = _pipes(self.child)
        try:
            stdin.write(request)
            stdin.close()
            while (raw := raw_reply(stdout)) is not None:
                self.raw.put(raw)
        except OSError:
            pass  # it has ended already
        finally:
            self.raw.put(None)

    def outcome(self) -> Reply | CaptureError:
        """The next reply, or why there is none. Raises RuntimeError for a mistake of ours."""
        while (raw := self.raw.get()) is not None:
            reply = opened(raw)
            if "loaded" not in reply:
                self.has_ended = "abort" in reply
                return _outcome(self.model, reply)
            self.is_loaded = True
        self.has_ended = True
        status = self.child.wait()
        self.said.seek(0)
        return _crash(self.model, status, self.said.read())

    def end(self) -> None:
        """Leave no process behind."""
        self.child.kill()
        self.child.wait()
        self.thread.join()
        for stream in (*_pipes(self.child), self.said):
            stream.close()


def _pipes(child: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    if child.stdin is None or child.stdout is None:
        raise ValueError("the process has no pipes")
    return child.stdin, child.stdout


def _environment() -> dict[str, str]:
    return os.environ | _NO_GPU | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def _request(model: ModelFile, asked: Sequence[CaptureOptions]) -> bytes:
    return json.dumps({"path": str(model.path), "options": [asdict(options) for options in asked]}).encode()


def _outcome(model: ModelFile, reply: Reply) -> Reply | CaptureError:
    """A reply, if it is no complaint."""
    if "abort" in reply:
        return CaptureError(f"{model.title}: llama.cpp aborted: {_FOLDERS.sub('', reply['abort'].strip())}")
    if "error" in reply:
        return CaptureError(f"{model.title}: {reply['error']}")
    return reply


def _crash(model: ModelFile, status: int, stderr: bytes) -> CaptureError:
    """Why a process ended without an answer. Raises RuntimeError if the library is not to blame."""
    said = stderr.decode("utf-8", "replace").strip()
    last = said.splitlines()[-1] if said else ""
    if status >= 0:
        mistake = RuntimeError(f"the capturing process ended with exit status {status}: {last}")
        mistake.add_note(said)
        raise mistake
    name = signal.Signals(-status).name
    what = _WHAT.search(said)
    reason = what[1] if what is not None else last
    return CaptureError(f"{model.title}: llama.cpp crashed with {name}" + (f": {reason}" if reason else ""))


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
    outcome = _captured(model, next(ask_many(model, [options])))
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
    model = _opened(path, asked, quantization)
    return (_captured(model, outcome) for outcome in _asked(model, asked))


def _asked(model: ModelFile, asked: Sequence[CaptureOptions]) -> Iterator[Reply | CaptureError]:
    """The replies, from one process for those that follow each other and decode no tokens."""
    for (_, decodes), group in groupby(asked, lambda options: (options.library, options.decodes)):
        options = list(group)
        for together in [[one] for one in options] if decodes else [options]:
            yield from ask_many(model, together)


def _opened(path: Path, asked: Sequence[CaptureOptions], quantization: str) -> ModelFile:
    """The model, with its values if tokens are decoded. Raises CaptureError."""
    opened = open_model(path, quantization)
    if not opened.has_values and any(options.decodes for options in asked):
        what = f"as {quantization} there are none" if quantization else "there is only the header"
        raise CaptureError(f"--prompt and --tokens need the weights' values; of {path} {what}")
    return opened


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


def scenario_text(scenario: dict[str, Any]) -> str:
    """The scenario as JSON with a line for every tensor and node."""
    lines = []
    for key, value in scenario.items():
        text = _dump(value)
        if key in ("contexts", "graphs"):
            written = _context if key == "contexts" else _graph
            text = _map({name: written(inner) for name, inner in value.items()}, "  ")
        lines.append(f"{_dump(key)}: {text}")
    return "{" + ",\n ".join(lines) + "}\n"


def _context(context: dict[str, Any]) -> str:
    head = "".join(f"{_dump(key)}: {_dump(value)}, " for key, value in context.items() if key != "tensors")
    return f'{{{head}"tensors": {_tensors(context["tensors"])}}}'


def _graph(graph: dict[str, Any]) -> str:
    rest = "".join(f",\n  {_dump(key)}: {_dump(value)}" for key, value in graph.items() if key != "nodes")
    return f'{{"nodes": {_tensors(graph["nodes"])}{rest}}}'


def _tensors(tensors: dict[str, Any]) -> str:
    return _map({id: _dump(tensor) for id, tensor in tensors.items()}, "   ")


def _map(written: dict[str, str], indent: str) -> str:
    """A map whose values are JSON already, one line each."""
    return "{\n" + ",\n".join(f"{indent}{_dump(key)}: {text}" for key, text in written.items()) + "}"


def _dump(value: Any) -> str:
    return json.dumps(value, allow_nan=False).replace("\x7f", "\\u007f")


def context_sizes(scenario: dict[str, Any]) -> dict[str, int]:
    """Bytes of the tensors of each context, views apart."""
    return {
        name: sum(
            nbytes_of(TYPES[t["type"]], tuple(t["ne"]), tuple(t["nb"]))
            for t in context["tensors"].values()
            if "view_src" not in t
        )
        for name, context in scenario["contexts"].items()
    }
