"""Scenarios as small as a test needs them."""

from __future__ import annotations

from typing import Any


def scenario_of(
    tensors: dict[str, Any], nodes: dict[str, Any], expand: list[str] | None = None, **more: Any
) -> dict[str, Any]:
    """Tensors without a buffer in the context `c`, and the graph `main`; `more` keys of the scenario."""
    graph = {"nodes": nodes} | ({} if expand is None else {"expand": expand})
    return {"ggmltool": 1, "contexts": {"c": {"tensors": tensors}}, "graphs": {"main": graph}, **more}
