"""Values for a captured graph: weights, caches and inputs, made up, as a model has them."""

from __future__ import annotations

import base64
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ggmltool.oracle.lib import Lib
from tests.conformance.ops_case import Src, bytes_of

VOCABULARY = 304
"""Rows of the token embeddings of the captured models."""

BATCH = 512
"""Tokens of the longest prompt; integers for more than these are T5's buckets of relative positions, 32."""


def with_values(scenario: dict[str, Any], lib: Lib) -> dict[str, Any]:
    """The scenario with data in every tensor of its contexts; quantized by the library."""
    contexts = {}
    for name, context in scenario["contexts"].items():
        tensors = {id: {**t, "data": _data(lib, id, t)} for id, t in context["tensors"].items()}
        contexts[name] = {**context, "tensors": tensors}
    return {**scenario, "contexts": contexts}


def _data(lib: Lib, id: str, t: dict[str, Any]) -> dict[str, str]:
    rng = np.random.default_rng(crc32(id.encode()))
    ne = tuple(t["ne"])
    source = Src(t["type"], ne, data=_values(id, t["type"], ne, rng))
    return {"base64": base64.b64encode(bytes_of(lib, source, rng)).decode()}


def _values(id: str, type: str, ne: tuple[int, ...], rng: np.random.Generator) -> NDArray[Any]:
    n = int(np.prod(ne))
    if id == "inp_tokens":
        return rng.integers(0, VOCABULARY, n)
    if type in ("i32", "i64"):
        # Positions, rows of caches, sequences and outputs: each token is the next one.
        return np.arange(n) % (BATCH if n <= BATCH else 32)
    if "mask" in id:
        beyond = np.arange(ne[0]) > np.arange(ne[1])[:, None]
        return np.broadcast_to(np.where(beyond, -np.inf, 0), ne[::-1]).reshape(-1)
    if "norm" in id and id.endswith("weight"):
        return 1 + 0.1 * rng.standard_normal(n)
    if id.endswith("ssm_a"):
        return rng.uniform(-1, -0.5, n)
    scale = ne[0] ** -0.5 if ne[1] > 1 and "conv1d" not in id else 0.3
    values: NDArray[Any] = (scale * rng.standard_normal(n)).astype(np.float32)
    return values
