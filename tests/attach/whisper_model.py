"""A model for whisper.cpp with random weights, in its own file format: small, but with every tensor of a real one.

python -m tests.attach.whisper_model ggml-small.bin
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

MAGIC = 0x67676D6C
F32, F16 = 0, 1
VOCABULARY = 51864
"""The tokens of the English models; those that the file has no word for whisper.cpp names itself."""
WORDS = (" ", *(f" w{i}" for i in range(300)))
"""Silence is a word that it asks for."""
MELS, N_FFT = 80, 201


class Size(NamedTuple):
    """What the model has of everything."""

    state: int = 64
    heads: int = 2
    layers: int = 4
    audio: int = 64
    text: int = 64


SMALL = Size()


def write_model(path: Path, size: Size = SMALL, seed: int = 0) -> Path:
    """Write a model; its path."""
    random = np.random.default_rng(seed)
    with path.open("wb") as file:
        audio = (size.audio, size.state, size.heads, size.layers)
        text = (size.text, size.state, size.heads, size.layers)
        file.write(struct.pack("<12i", MAGIC, VOCABULARY, *audio, *text, MELS, F16))
        filters = np.abs(random.normal(0, 0.05, (MELS, N_FFT))).astype(np.float32)
        file.write(struct.pack("<2i", MELS, N_FFT) + filters.tobytes())
        file.write(struct.pack("<i", len(WORDS)))
        for word in WORDS:
            file.write(struct.pack("<i", len(word)) + word.encode())
        for name, type, ne in _tensors(size):
            _write(file, name, type, ne, random)
    return path


def _write(file: IO[bytes], name: str, type: int, ne: tuple[int, ...], random: np.random.Generator) -> None:
    values = random.normal(0, 0.1, ne[::-1]) + (1 if "ln" in name and name.endswith("weight") else 0)
    if name == "decoder.token_embedding.weight":
        values[len(WORDS) :] /= 10  # so that it says words
    file.write(struct.pack(f"<3i{len(ne)}i", len(ne), len(name), type, *ne) + name.encode())
    file.write(values.astype(np.float16 if type == F16 else np.float32).tobytes())


def _tensors(size: Size) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    n = size.state
    yield "encoder.positional_embedding", F32, (n, size.audio)
    yield "encoder.conv1.weight", F16, (3, MELS, n)
    yield "encoder.conv1.bias", F32, (1, n)
    yield "encoder.conv2.weight", F16, (3, n, n)
    yield "encoder.conv2.bias", F32, (1, n)
    yield from _norm("encoder.ln_post", n)
    for i in range(size.layers):
        yield from _block(f"encoder.blocks.{i}", n)
    yield "decoder.positional_embedding", F32, (n, size.text)
    yield "decoder.token_embedding.weight", F16, (n, VOCABULARY)
    yield from _norm("decoder.ln", n)
    for i in range(size.layers):
        yield from _block(f"decoder.blocks.{i}", n)
        yield from _attention(f"decoder.blocks.{i}.cross_attn", n)


def _block(name: str, n: int) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    yield from _norm(f"{name}.mlp_ln", n)
    yield f"{name}.mlp.0.weight", F16, (n, 4 * n)
    yield f"{name}.mlp.0.bias", F32, (4 * n,)
    yield f"{name}.mlp.2.weight", F16, (4 * n, n)
    yield f"{name}.mlp.2.bias", F32, (n,)
    yield from _attention(f"{name}.attn", n)


def _attention(name: str, n: int) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    yield from _norm(f"{name}_ln", n)
    for part in ("query", "key", "value", "out"):
        yield f"{name}.{part}.weight", F16, (n, n)
        if part != "key":
            yield f"{name}.{part}.bias", F32, (n,)


def _norm(name: str, n: int) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    yield f"{name}.weight", F32, (n,)
    yield f"{name}.bias", F32, (n,)


if __name__ == "__main__":
    write_model(Path(sys.argv[1]))
