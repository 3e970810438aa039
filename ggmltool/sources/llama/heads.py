"""The attention of each layer of a captured model, as the graph tells it."""

from __future__ import annotations

from typing import NamedTuple

from ggmltool.ggml.op import Op
from ggmltool.scenario.spec import GraphSpec
from ggmltool.sources.llama.parts import Parts
from ggmltool.sources.llama.weights import layer_of_cache, layer_of_node


class Heads(NamedTuple):
    """The attention of a layer: heads of queries and of keys, their sizes, and the mask, which tells windows apart."""

    queries: int
    keys: int
    key_size: int
    value_size: int
    mask: str


def heads_of(parts: Parts) -> dict[int, Heads]:
    """The attention of every layer that has one, as its node tells."""
    found: dict[int, Heads] = {}
    tensors = {t.id: t for c in parts.inputs for t in c.tensors} | {t.id: t for t, _ in parts.caches}
    for graph in parts.graphs.values():
        known = {**tensors, **parts.nodes(graph.name)}
        for id, il in attention_layers(graph).items():
            q, k, v, mask = (parts.nodes(graph.name)[id].src + (None,) * 4)[:4]
            query, key, value = known[q or ""], known[k or ""], known[v or ""]
            found.setdefault(il, Heads(query.ne[2], key.ne[2], key.ne[0], value.ne[0], mask or ""))
    return found


def attention_layers(graph: GraphSpec) -> dict[str, int]:
    """The layer of every node of flash attention, which has no name of its own: that of what it reads or gives."""
    found: dict[str, int] = {}
    attention = {n.id: n for n in graph.nodes if n.op == Op.FLASH_ATTN_EXT}
    for node in graph.nodes:
        own = node.id in attention
        id = node.id if own else next((s for s in node.src if s in attention), None)
        names = [s or "" for s in node.src] if own else [node.name]
        layers = [il for name in names for il in (layer_of_node(name), layer_of_cache(name)) if il is not None]
        if id is not None and layers:
            found.setdefault(id, layers[0])
    return found
