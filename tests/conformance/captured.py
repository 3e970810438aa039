"""The graphs captured from real llama.cpp models that lie beside the project, where they do, and values for them."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ggmltool.oracle.lib import Lib
from tests.conformance.ops_case import Src, bytes_of

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "graphs"


def names() -> list[str]:
    """All of them; empty where the folder is not there."""
    return sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))


def read(name: str) -> dict[str, Any]:
    """The scenario."""
    with gzip.open(FOLDER / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        scenario: dict[str, Any] = json.load(file)
    return scenario


def expected() -> dict[str, dict[str, Any]]:
    """What llama.cpp reported of each: n_splits, buffer_sizes and mostly the numbers of nodes and leafs."""
    content: dict[str, dict[str, Any]] = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
    return content


def pairs() -> list[tuple[str, str]]:
    """The same model for a long prompt and for a single token."""
    have = set(names())
    return [(n, n.replace("pp512", "tg1-ub1")) for n in sorted(have) if n.replace("pp512", "tg1-ub1") in have - {n}]


def together(prompt: str, token: str) -> dict[str, Any]:
    """Both graphs of a pair in one scenario, as llama.cpp runs them on one scheduler; graphs `pp` and `tg`."""
    one, two = read(prompt), read(token)
    loose = {id for c in two["contexts"].values() if "buft" not in c for id in c["tensors"]}
    new = {id: f"tg {id}" for id in loose}
    contexts = dict(one["contexts"])
    for name, context in two["contexts"].items():
        if "buft" not in context:
            contexts[f"tg {name}"] = {"tensors": {new[i]: {"name": i, **t} for i, t in context["tensors"].items()}}
    graph = _renamed(next(iter(two["graphs"].values())), new)
    return {**one, "contexts": contexts, "graphs": {"pp": next(iter(one["graphs"].values())), "tg": graph}}


def _renamed(graph: Mapping[str, Any], new: Mapping[str, str]) -> dict[str, Any]:
    nodes = {}
    for id, node in graph["nodes"].items():
        node = dict(node)
        node["src"] = [new.get(s, s) for s in node["src"]]
        if "view_src" in node:
            node["view_src"] = new.get(node["view_src"], node["view_src"])
        nodes[id] = node
    out: dict[str, Any] = {"nodes": nodes}
    if "expand" in graph:
        out["expand"] = [new.get(e, e) for e in graph["expand"]]
    return out


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
