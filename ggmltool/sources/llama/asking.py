"""Asking the capturing process: for one graph, or for many, which come while the next ones are made."""

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
from dataclasses import asdict
from io import BytesIO
from queue import SimpleQueue
from threading import Thread
from typing import IO

from ggmltool.sources.llama.errors import CaptureError
from ggmltool.sources.llama.model_file import ModelFile
from ggmltool.sources.llama.options import CaptureOptions
from ggmltool.sources.llama.replies import Reply, opened, raw_reply

_COMMAND = [sys.executable, "-P", "-m", "ggmltool.sources.llama.child"]
_FOLDERS = re.compile(r"^\S*/(?=[^/\s]+:\d+: )")
_WHAT = re.compile(r"what\(\): +(.*)")

_NO_GPU = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "HIP_VISIBLE_DEVICES": "-1",
    "GGML_VK_VISIBLE_DEVICES": "",
    "GGML_NO_BACKTRACE": "1",
}
"""What the child's environment says: it sees no GPU, and an abort prints no backtrace."""


def ask(model: ModelFile, options: CaptureOptions) -> Reply | CaptureError:
    """The reply for one graph, or why there is none. Raises RuntimeError for a mistake of ours."""
    child = subprocess.run(
        _COMMAND, input=_request(model, [options]), capture_output=True, env=_environment(), check=False
    )
    stream = BytesIO(child.stdout)
    while (raw := raw_reply(stream)) is not None:
        reply = opened(raw)
        if "loaded" not in reply:
            return _outcome(model, reply)
    return _crash(model, child.returncode, child.stderr)


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
