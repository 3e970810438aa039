"""What a graph is captured with: llama.cpp's settings of a context, and the batch the graph is built for."""

from __future__ import annotations

from ast import literal_eval
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

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


def _is_of(annotated: Any, value: object) -> bool:
    """Whether a value is of the kind that a field is annotated as."""
    match annotated:
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case "int | None":
            return value is None or _is_of("int", value)
        case "bool":
            return isinstance(value, bool)
        case "str":
            return isinstance(value, str)
        case "tuple[int, ...]":
            return isinstance(value, tuple | list) and all(_is_of("int", one) for one in value)
        case "Program":
            return value in get_args(Program)
    return value in literal_eval(f"({annotated.removeprefix('Literal[').removesuffix(']')},)")


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
            if not _is_of(field.type, value):
                raise CaptureError(f"{field.name} must be {field.type}, not {value!r}")
            if isinstance(value, int) and value < 0:
                raise CaptureError(f"{field.name} must not be negative, as {value} is")
            if isinstance(value, int) and value > _MOST:
                raise CaptureError(f"{field.name} {value} is more than llama.cpp can hold ({_MOST})")

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
