"""The logits that llama.cpp computes for tokens, in a process of its own, and how long it takes.

    logits, times = decode(path, tokens, next_tokens, n_ctx=1024)

`main` is that process: it reads what is asked as JSON from standard input.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ggmltool.sources.llama.capture.decode import Decoder
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.capture.session import Session
from tests.sources.fake_gpus import ask

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
THREADS = 2
"""What the benchmarks give to both; tests have one, as they run beside one another."""


class Decoded(NamedTuple):
    """Logits of every token [tokens, vocabulary], seconds of the prompt and of each token after it."""

    logits: np.ndarray[Any, np.dtype[np.float32]]
    prompt: float
    steps: list[float]


def decode(
    path: Path, tokens: list[int], next_tokens: list[int], n_ctx: int, repack: bool = False, threads: int = 1
) -> Decoded:
    """Have llama.cpp decode a prompt and one token after the other.

    With `repack` weights are laid out anew for the processor where llama.cpp can, as it does by itself; the rows of a
    product are then rounded otherwise.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "logits"
        asked = {"path": str(path), "tokens": tokens, "next": next_tokens, "n_ctx": n_ctx, "file": str(file)}
        asked |= {"repack": repack, "threads": threads}
        answer = ask("tests.sources.reference", asked, **NO_GPU)
        logits = np.fromfile(file, dtype=np.float32).reshape(len(tokens) + len(next_tokens), -1)
    return Decoded(logits, answer["times"][0], answer["times"][1:])


def tokenize(path: Path, text: str) -> list[int]:
    """The tokens of a text."""
    found: list[int] = ask("tests.sources.reference", {"path": str(path), "text": text}, **NO_GPU)["tokens"]
    return found


class Reference(Decoder):
    """llama.cpp with its own settings, which computes."""

    repack, threads = False, 1

    def context_params(self) -> Any:
        params = Session.context_params(self)
        params.n_threads = params.n_threads_batch = self.threads
        return params

    def model_params(self) -> Any:
        params = super().model_params()
        params.use_extra_bufts = self.repack
        return params

    def logits(self, n: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Those of the last batch, of `n` tokens."""
        library = self.lib.library
        library.llama_get_logits.restype = ctypes.POINTER(ctypes.c_float)
        library.llama_get_logits.argtypes = [ctypes.c_void_p]
        library.llama_vocab_n_tokens.argtypes = [ctypes.c_void_p]
        n_vocab = library.llama_vocab_n_tokens(self.lib.llama_model_get_vocab(self.model))
        return np.ctypeslib.as_array(library.llama_get_logits(self.ctx), (n, n_vocab))

    def forget(self) -> None:
        """Empty the KV cache."""
        clear = self.lib.library.llama_memory_clear
        clear.argtypes = [ctypes.c_void_p, ctypes.c_bool]
        clear(self.lib.llama_get_memory(self.ctx), True)


def _reply(answer: dict[str, Any]) -> NoReturn:
    """Answer and end, without the library's threads and destructors."""
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)


def main() -> NoReturn:
    asked = json.load(sys.stdin)
    reference = Reference(CaptureOptions(n_ctx=asked.get("n_ctx", 512), program="library"))
    reference.repack, reference.threads = asked.get("repack", False), asked.get("threads", 1)
    reference.load(asked["path"])
    if "text" in asked:
        _reply({"tokens": reference.tokenize(asked["text"])})
    tokens: list[int] = asked["tokens"]
    reference._decode("prompt", 0, tokens[:1], 0)
    reference.forget()
    times: list[float] = []
    with Path(asked["file"]).open("wb") as file:
        for at, batch in [(0, tokens), *((len(tokens) + i, [token]) for i, token in enumerate(asked["next"]))]:
            start = time.perf_counter()
            reference._decode("prompt", at, batch, 0)
            logits = reference.logits(len(batch))
            times.append(time.perf_counter() - start)
            logits.tofile(file)
    _reply({"times": times})


if __name__ == "__main__":
    main()
