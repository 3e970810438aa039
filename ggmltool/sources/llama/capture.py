"""Capturing a model's graph: checks what can be told without llama.cpp, then asks the child process."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ggmltool.sources.llama.errors import CaptureError
from ggmltool.sources.llama.options import CaptureOptions
from ggmltool.sources.llama.packages import find

_MAGIC = b"GGUF"
_PART = re.compile(r"-\d{5}-of-\d{5}$")
_FOLDERS = re.compile(r"^\S*/(?=[^/\s]+:\d+: )")
_WHAT = re.compile(r"what\(\): +(.*)")

_NO_GPU = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "HIP_VISIBLE_DEVICES": "-1",
    "GGML_VK_VISIBLE_DEVICES": "",
    "GGML_NO_BACKTRACE": "1",
}
"""What the child's environment says: it sees no GPU, and an abort prints no backtrace."""


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
    reply = _ask({"path": str(path), "options": asdict(options)})
    if "abort" in reply:
        raise CaptureError(f"{path}: llama.cpp aborted: {_FOLDERS.sub('', reply['abort'].strip())}")
    if "error" in reply:
        raise CaptureError(f"{path}: {reply['error']}")
    return Captured(reply["scenario"], reply["log"])


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


def _ask(request: dict[str, Any]) -> dict[str, Any]:
    """The child's answer. Raises CaptureError if the library crashed, RuntimeError for a mistake of ours."""
    environment = os.environ | _NO_GPU | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    child = subprocess.run(
        [sys.executable, "-P", "-m", "ggmltool.sources.llama.child"],
        input=json.dumps(request).encode(),
        capture_output=True,
        env=environment,
        check=False,
    )
    try:
        reply: dict[str, Any] = json.loads(child.stdout)
    except ValueError:
        raise _crash(request["path"], child) from None
    return reply


def _crash(path: str, child: subprocess.CompletedProcess[bytes]) -> Exception:
    """What to raise for a child that ended without an answer."""
    said = child.stderr.decode("utf-8", "replace").strip()
    last = said.splitlines()[-1] if said else ""
    if child.returncode >= 0:
        mistake = RuntimeError(f"the capturing process ended with exit status {child.returncode}: {last}")
        mistake.add_note(said)
        return mistake
    name = signal.Signals(-child.returncode).name
    what = _WHAT.search(said)
    reason = what[1] if what is not None else last
    return CaptureError(f"{path}: llama.cpp crashed with {name}" + (f": {reason}" if reason else ""))
