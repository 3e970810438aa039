"""Models of the architectures of `models.py` with random weights, small enough for the values to stay tame."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ggmltool.ggml.dtypes import TYPES_BY_ID
from ggmltool.scenario.encoded import GgufTensor, read_gguf_tensor
from tests.shared import made_once
from tests.sources.gguf_file import write_gguf
from tests.sources.models import MODELS

STD = 0.06
_SCALES = {"q8_0": ((0, 8e-4),), "q4_0": ((0, 0.013),), "q4_K": ((0, 4e-4), (2, 3e-3)), "q6_K": ((208, 6.2e-5),)}
"""Where in a block its half-precision scales are, and what gives weights of about the deviation STD."""


@cache
def random_model(name: str, exact: bool = False) -> Path:
    """The file of the model of that name; with `exact` every weight is f32, so that no product is rounded."""
    return made_once(f"{'exact' if exact else 'random'}/{name}.gguf", lambda path: _write(path, name, exact))


def _write(path: Path, name: str, exact: bool) -> None:
    model = MODELS[name]()
    if exact:
        model = model._replace(tensors={tensor: ("f32", ne) for tensor, (_, ne) in model.tensors.items()})
    write_gguf(path, model)
    random = np.random.default_rng(len(name))
    with path.open("r+b") as file:
        for tensor in model.tensors:
            found = read_gguf_tensor(path, tensor)
            file.seek(found.offset)
            file.write(_values(tensor, found, random))


def _values(name: str, tensor: GgufTensor, random: np.random.Generator) -> bytes:
    type = TYPES_BY_ID[tensor.type_id]
    n = tensor.size // type.type_size
    if not type.quantized:
        values = random.normal(0, STD, n)
        values = 1 + values if "norm" in name and name.endswith(".weight") else values
        values = -np.abs(values) - 0.5 if name.endswith("ssm_a") else values
        return values.astype(np.float32 if type.name == "f32" else np.float16).tobytes()
    blocks: np.ndarray[Any, np.dtype[np.uint8]] = random.integers(0, 256, (n, type.type_size), dtype=np.uint8)
    if type.name == "mxfp4":
        blocks[:, 0] = 121
    for at, scale in _SCALES.get(type.name, ()):
        blocks[:, at : at + 2] = np.array([scale], dtype=np.float16).view(np.uint8)
    return blocks.tobytes()
