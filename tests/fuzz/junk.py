"""Values that break things: numbers at the edges, texts that steer terminals, what is of the wrong kind."""

from __future__ import annotations

import random
from typing import Any

from ggmltool.ggml.dtypes import TYPES

INTS = [0, 1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 33, 64, 100, 127, 255, 256, 257, 4096, 65535, 1 << 20, (1 << 31) - 1,
        1 << 31, 1 << 32, 1 << 40, 1 << 61, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 70, 10**30,
        10**400]  # fmt: skip
FLOATS = [0.0, -0.0, 0.5, -1.5, 1e-30, 1e30, 3.4e38, 1e300, float("nan"), float("inf"), float("-inf")]
TEXTS = ["", " ", "x", "CPU", "CUDA0", "null", "nan", "-1", "0x10", "y", "a" * 70, "a" * 1001, "\x1b]0;x\x07",
         "\u202eab", "\x00", "\ud800", "é" * 40, "[bold]", "%s%n", "../x", "/etc/passwd", "a:b", "a,b", "#", "{",
         "f32[4]", "sqr(x)", "add(x, x)", "view(x, 0)", "y\n", "-", "--json", "1KiB", "99999999999TiB", "base64",
         "\u2028"]  # fmt: skip
KEYS = ["op", "src", "type", "ne", "nb", "view_src", "view_offs", "op_params", "flags", "data", "inplace", "name",
        "backend", "mode", "eps", "n_dims", "buft", "usage", "tensors", "tallocr", "nodes", "expand", "fill",
        "normal", "uniform", "arange", "base64", "npy", "gguf", "seed", "std", "low", "start", "step", "supports",
        "only", "except", "rules", "profile", "alignment", "max_size", "memory", "events", "host", "row_padding",
        "parallel", "op_offload", "graph_size", "set", "get", "meta", "scheduler", "steps", "buffer_types",
        "cpu_base_misalign", "zzz", ""]  # fmt: skip
FLAGS = ["input", "output", "param", "loss", "compute", "x"]
RELEASES = ["2024-01", "2025-03", "0.20.2"]


def integer(rng: random.Random) -> int:
    """A small number, or one at an edge; below nothing now and then."""
    if rng.random() < 0.5:
        return small(rng)
    value = rng.choice(INTS) + rng.choice((0, 0, 0, -1, 1))
    return -value if rng.random() < 0.15 else value


def small(rng: random.Random) -> int:
    """A number that an extent may have."""
    return rng.choice((0, 1, 1, 2, 3, 4, 8, 16, 31, 32, 33, 64, 128, 256))


def number(rng: random.Random) -> int | float:
    """Any number."""
    return rng.choice(FLOATS) if rng.random() < 0.25 else integer(rng)


def text(rng: random.Random) -> str:
    """Any text."""
    return rng.choice(TEXTS) if rng.random() < 0.8 else rng.choice(list(TYPES))


def extents(rng: random.Random) -> list[Any]:
    """`ne`, or nearly."""
    pick = small if rng.random() < 0.8 else integer
    return [pick(rng) for _ in range(rng.choice((1, 2, 2, 3, 3, 4, 4, 4)))]


def value(rng: random.Random, depth: int = 0) -> Any:
    """Anything that a file may hold."""
    what = rng.random()
    if what < 0.35:
        return number(rng)
    if what < 0.6:
        return text(rng)
    if what < 0.75 or depth > 2:
        return rng.choice((None, True, False))
    if what < 0.9:
        return [value(rng, depth + 1) for _ in range(rng.choice((0, 1, 2, 4, 17)))]
    return {rng.choice(KEYS): value(rng, depth + 1) for _ in range(rng.choice((0, 1, 2)))}


def foreign(rng: random.Random) -> Any:
    """What only a program can give."""
    import numpy as np

    circle: list[Any] = []
    circle.append(circle)
    return rng.choice((circle, b"x", object(), (1, 2), {1: 2}, {3}, np.int64(4), np.zeros((2, 2), "f4"),
                           np.array(["a"]), 1j,
                       lambda: 0, range(4), bytearray(3), type, Ellipsis))  # fmt: skip
