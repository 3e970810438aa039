"""What mutations start from: the samples, an example of every op, the logs of real programs, a small GGUF file."""

from __future__ import annotations

import copy
import gzip
import json
import random
import re
import struct
from functools import cache
from pathlib import Path
from typing import Any

from ggmltool.ask.ops.record import op_example
from ggmltool.ggml.op import Op
from ggmltool.scenario.samples import samples
from ggmltool.scenario.text.text import read_document

ROOT = Path(__file__).resolve().parents[2]
LOGS = (ROOT / "tests" / "sources" / "logs", ROOT.parent / "shared" / "logs")
"""Where logs are; the second is not in every checkout."""

_LARGE = re.compile(r"\d{8,}")
"""Bytes of a weight that would take more memory than a case has."""

MOST_NODES = 12
"""Nodes that stay of a graph of hundreds."""


@cache
def texts() -> dict[str, str]:
    """The samples that are YAML, and an example of every op, as text."""
    found = {path.stem: path.read_text("utf-8") for path in samples() if path.suffix == ".yaml"}
    examples = {op.name.lower(): op_example(op.name.lower()) for op in Op}
    return found | {name: text for name, text in examples.items() if text is not None}


@cache
def _parsed(name: str) -> dict[str, Any]:
    return _plain(_read(texts()[name]))


def _read(text: str) -> Any:
    from ggmltool.scenario.text.yaml import compose_yaml

    return compose_yaml(text)


@cache
def captured() -> list[dict[str, Any]]:
    return [_plain(read_document(path).value) for path in samples() if path.suffix == ".gz"]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def scenario(rng: random.Random) -> dict[str, Any]:
    """A valid scenario: a sample, an example of an op, or a few nodes in a row of a captured graph."""
    names = sorted(texts())
    if rng.random() < 0.08:
        found = window(rng.choice(captured()), rng)
        if not _LARGE.search(json.dumps(found)):
            return found
    return copy.deepcopy(_parsed(rng.choice(names)))


def window(whole: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A few nodes in a row of a graph, and the tensors that they name; nodes before them are leafs now."""
    name = rng.choice(list(whole["graphs"]))
    nodes = list(whole["graphs"][name]["nodes"].items())
    start = rng.randrange(len(nodes))
    kept = dict(nodes[start : start + rng.randint(1, MOST_NODES)])
    named = {s for node in kept.values() for s in [*node.get("src", ()), node.get("view_src")] if s} - set(kept)
    contexts: dict[str, Any] = {}
    for title, context in whole["contexts"].items():
        tensors = {id: t for id, t in context["tensors"].items() if id in named}
        named -= set(tensors)
        contexts[title] = context | {"tensors": tensors}
    earlier = {id: node for id, node in nodes[:start] if id in named}
    keys = ("type", "ne", "name")
    contexts["earlier"] = {"tensors": {id: {k: n[k] for k in keys if k in n} for id, n in earlier.items()}}
    return copy.deepcopy({**whole, "contexts": contexts, "graphs": {name: {"nodes": kept}}})


@cache
def logs() -> tuple[bytes, ...]:
    """Logs of real programs, whole."""
    out = []
    for folder in LOGS:
        for path in sorted(folder.glob("*.log*")):
            raw = path.read_bytes()
            out.append(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    return tuple(out)


def packed(kind: str, value: int) -> bytes:
    """A number as GGUF has it; what is too large or too small for it wraps around."""
    size = struct.calcsize(f"<{kind}")
    return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
