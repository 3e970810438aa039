"""The vocabulary of a model's file: what text a token is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ggmltool.scenario.encoded import gguf_texts
from ggmltool.scenario.errors import Mistake

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
