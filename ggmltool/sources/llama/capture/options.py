"""What is asked of the capturing process, llama.cpp's settings and the batch, and what it answers."""

from __future__ import annotations

import gc
import marshal
import struct
from dataclasses import dataclass, fields
from functools import cache
from typing import IO, Any, Literal, get_type_hints

import msgspec

from ggmltool.sources.llama.errors import CaptureError

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
"""The types llama.cpp allows for the KV cache."""

FLASH_ATTN = {"auto": -1, "off": 0, "on": 1}
"""llama_flash_attn_type."""

Program = Literal["server", "cli", "library"]

PROGRAMS: tuple[Program, ...] = ("server", "cli", "library")
"""Who makes the context: llama-server, llama-cli (it runs llama-server inside), a program on llama.h's defaults."""

AUTO_PARALLEL = 4
"""The sequences that llama-server has if nobody says how many; they share one KV cache then."""

_MOST = 2**31 - 1


@cache
def _kinds() -> dict[str, Any]:
    """The kinds of the options, by name."""
    return get_type_hints(CaptureOptions)


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """The settings, under llama.cpp's names and with its command line's defaults.

    `n_ctx` 0 is what the model was trained with. `n_seqs` and `n_outputs` None: as `program` reserves memory, that is
    all sequences, and the outputs of `n_outputs_max`. `n_tokens` None: a whole ubatch for the phase prompt, one for
    each sequence for the phase token. The phase both is a graph of each, where `n_tokens` and `n_outputs` are the
    prompt's.

    With `tokens`, or the text of a `prompt`, the graphs are those that decode them, and after them `next_tokens`, one
    at a time; then neither `program`, `phase`, `n_tokens` nor `n_seqs` says anything.

    `library` is the package whose llama.cpp builds the graph, NAME or NAME==VERSION; "" is the first installed one.
    """

    n_ctx: int = 0
    n_batch: int = 2048
    n_ubatch: int = 512
    n_parallel: int = 1
    flash_attn: Literal["auto", "off", "on"] = "auto"
    type_k: str = "f16"
    type_v: str = "f16"
    phase: Literal["prompt", "token", "both"] = "prompt"
    n_tokens: int | None = None
    n_seqs: int | None = None
    n_outputs: int | None = None
    swa_full: bool = False
    kv_unified: bool = False
    offload_kqv: bool = True
    embeddings: bool = False
    tokens: tuple[int, ...] = ()
    prompt: str = ""
    next_tokens: tuple[int, ...] = ()
    program: Program = "server"
    library: str = ""

    def __post_init__(self) -> None:
        """Raise CaptureError for values of another kind, and numbers that llama.cpp cannot hold."""
        for field in fields(self):
            value = getattr(self, field.name)
            try:
                msgspec.convert(value, _kinds()[field.name])
            except (msgspec.ValidationError, UnicodeEncodeError):
                raise CaptureError(f"{field.name} must be {field.type}, not {value!r}") from None
            if isinstance(value, int) and value < 0:
                raise CaptureError(f"{field.name} must not be negative, as {value} is")
            if isinstance(value, int) and value > _MOST:
                raise CaptureError(f"{field.name} {value} is more than llama.cpp can hold ({_MOST})")

    @property
    def decodes(self) -> bool:
        """Whether tokens are given, which llama.cpp decodes."""
        return bool(self.tokens or self.prompt)

    @property
    def serves(self) -> bool:
        """Whether the program is a llama-server, inside of llama-cli or not."""
        return self.program != "library"

    @property
    def n_outputs_max(self) -> int:
        """The field of llama_context_params as the program sets it: 0 is one output for each token of a batch.

        server_output_limits: a server asks logits of one token of each sequence, unless it gives embeddings.
        """
        return min(self.n_batch, self.n_parallel) if self.serves and not self.embeddings else 0


Reply = dict[str, Any]
"""What the capturing process writes: values of plain data, in Python's own serialization, each behind its length.

A text that stands in a graph a thousand times, such as a tensor's id, is written once and read as one object, and names
need not be valid Unicode. Both processes run the same Python.
"""

_LENGTH = struct.Struct("<Q")
_MOST_BYTES = 1 << 30
"""Bytes of a reply, at most; graphs are of a few MiB."""


def written(reply: Reply) -> bytes:
    """A reply as it goes over the pipe."""
    content = marshal.dumps(reply)
    return _LENGTH.pack(len(content)) + content


def raw_reply(stream: IO[bytes]) -> bytes | None:
    """The next reply, to be `opened`; None if the process ended before it was whole."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(head)
    content = stream.read(min(size, _MOST_BYTES))
    return content if len(content) == size else None


def opened(raw: bytes) -> Reply:
    """A reply as values: many objects, and no garbage to look for meanwhile."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        reply: Reply = marshal.loads(raw)
    finally:
        if was_enabled:
            gc.enable()
    return reply
