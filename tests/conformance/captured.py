"""The graphs captured from real llama.cpp models that lie beside the project, where they do."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
