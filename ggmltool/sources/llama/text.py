"""A captured scenario as a file, and how much memory its contexts take."""

from __future__ import annotations

import json
from typing import Any

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.tensor import nbytes_of


def scenario_text(scenario: dict[str, Any]) -> str:
    """The scenario as JSON with a line for every tensor and node."""
    lines = [f"{_dump(key)}: {_value(key, value)}" for key, value in scenario.items()]
    return "{" + ",\n ".join(lines) + "}\n"


def _value(key: str, value: Any) -> str:
    if key == "contexts":
        return _map({name: _context(context) for name, context in value.items()}, "  ")
    if key == "graphs":
        return _map({name: _graph(graph) for name, graph in value.items()}, "  ")
    return _dump(value)


def _context(context: dict[str, Any]) -> str:
    head = "".join(f"{_dump(key)}: {_dump(value)}, " for key, value in context.items() if key != "tensors")
    return f'{{{head}"tensors": {_tensors(context["tensors"])}}}'


def _graph(graph: dict[str, Any]) -> str:
    rest = "".join(f",\n  {_dump(key)}: {_dump(value)}" for key, value in graph.items() if key != "nodes")
    return f'{{"nodes": {_tensors(graph["nodes"])}{rest}}}'


def _tensors(tensors: dict[str, Any]) -> str:
    return _map({id: _dump(tensor) for id, tensor in tensors.items()}, "   ")


def _map(written: dict[str, str], indent: str) -> str:
    """A map whose values are JSON already, one line each."""
    return "{\n" + ",\n".join(f"{indent}{_dump(key)}: {text}" for key, text in written.items()) + "}"


def _dump(value: Any) -> str:
    return json.dumps(value, allow_nan=False).replace("\x7f", "\\u007f")


def context_sizes(scenario: dict[str, Any]) -> dict[str, int]:
    """Bytes of the tensors of each context, views apart."""
    return {
        name: sum(
            nbytes_of(TYPES[t["type"]], tuple(t["ne"]), tuple(t["nb"]))
            for t in context["tensors"].values()
            if "view_src" not in t
        )
        for name, context in scenario["contexts"].items()
    }
