"""A graph as ggml_graph_print writes it."""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import FLAG_PARAM, Tensor

_END = "=" * 40


def graph_print(nodes: Sequence[Tensor], leafs: Sequence[Tensor]) -> str:
    """ggml_graph_print of a graph without gradients, byte for byte once encoded as UTF-8 with surrogateescape."""
    lines = ["=== GRAPH ===", f"n_nodes = {len(nodes)}"]
    for i, t in enumerate(nodes):
        ne = ", ".join(f"{n:5d}" for n in t.ne[:3])
        lines.append(f" - {i:3d}: [ {ne}] {Op(t.op).name:>16} {'x' if t.flags & FLAG_PARAM else ' '}")
    lines.append(f"n_leafs = {len(leafs)}")
    for i, t in enumerate(leafs):
        ne = ", ".join(f"{n:5d}" for n in t.ne[:2])
        label = _right(t.name, 16)
        lines.append(f" - {i:3d}: [ {ne}] {Op(t.op).name:>8} {label}")
    return "\n".join([*lines, _END]) + "\n"


def _right(text: str, width: int) -> str:
    """`%16s`, which counts bytes."""
    return " " * (width - len(text.encode("utf-8", "surrogateescape"))) + text
