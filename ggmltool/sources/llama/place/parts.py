"""A captured model taken apart: weights with their roles, caches with their layers, inputs, graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ggmltool.ggml.op import IS_VIEW_OP, Op
from ggmltool.scenario.spec import ContextSpec, GraphSpec, ScenarioSpec, TensorSpec
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.place.leaf_order import LeafOrder, Sources
from ggmltool.sources.llama.place.weights import (
    FULL_ATTENTION_ONLY,
    LOADED_TWICE,
    OUTPUT_STAYS_WITH_INPUT,
    OUTPUT_WITHOUT_USE,
    PER_LAYER,
    TIED,
    Hparams,
    LayerKind,
    layer_of_cache,
    layer_of_node,
    tested_op,
    weight_of,
)

_ASSIGNED = ("norm", "l_last", "kqv_out")
_DIGITS = 9
_MANY = 1 << 30
_MOST_LAYERS = 10_000
_LEAST_NODES = 1024
_NODES_PER_WEIGHT = (8, 32)


class Role(NamedTuple):
    """A weight as part of one layer (`il` -1: of the input or output layer), with the nodes that use it there."""

    kind: LayerKind
    il: int
    op: Op
    nodes: tuple[str, ...]

    @property
    def layer(self) -> str:
        return str(self.il) if self.il >= 0 else self.kind


class Parts:
    """The parts of a captured model, however it was placed: duplicates of weights are one again, no node is assigned.

    `weights` and `caches` are in their order, caches with their layer; `names` are the weights' in llama.cpp, `ids`
    those of the scenario; `used` is what some node has as a source. Raises PlaceError if there is no graph, or a layer
    beyond all measure.
    """

    def __init__(self, model: ScenarioSpec) -> None:
        # No tensor of a context is assigned there by llama.cpp, or has a place.
        contexts = []
        for c in model.contexts:
            if any(t.backend is not None or t.at is not None for t in c.tensors):
                c = replace(c, tensors=[replace(t, backend=None, at=None) for t in c.tensors], size=None)
            contexts.append(c)
        model = replace(model, contexts=contexts)
        self.meta = model.meta
        self.architecture = str(model.meta.get("architecture", ""))
        alias = {} if self.architecture in LOADED_TWICE else _aliases(model)
        self.graphs = {name: _plain(g, alias) for name, g in model.graphs.items()}
        self._users = _users(self.graphs.values())
        self.used = set(self._users)
        self.weights = self._in_order(model, alias)
        self._nodes_per_weight = _nodes_per_weight(model, len(self.weights) + len(alias))
        if not self.graphs:
            raise PlaceError("it has no graph")
        self.inputs = [ContextSpec(c.name, None, c.usage, list(c.tensors)) for c in model.contexts if c.buft is None]
        self.names = list(dict.fromkeys(w.name for w in self.weights))
        self.ids = {w.id for w in self.weights}
        self.n_layer = n_layer(model)
        if self.n_layer > _MOST_LAYERS:
            raise PlaceError(f"it would have {self.n_layer} layers; the limit is {_MOST_LAYERS}")
        self.roles = {w.id: self._roles(w) for w in self.weights}
        caches = [t for c in model.contexts if c.buft is not None and c.usage != "weights" for t in c.tensors]
        by_id = {t.id: t for t in caches}
        self.caches = [(t, self._cache_layer(by_id.get(t.view_src or "", t))) for t in caches]
        self._taken = {t.id for t in model.tensors()} | {n.id for g in self.graphs.values() for n in g.nodes}
        self._orders: dict[str, LeafOrder] = {}
        self._nodes = {name: {n.id: n for n in g.nodes} for name, g in self.graphs.items()}
        self._of_layers: dict[str, list[tuple[TensorSpec, str, int]]] = {}
        self._n_tokens: dict[str, int] = {}

    def _in_order(self, model: ScenarioSpec, alias: dict[str, str]) -> list[TensorSpec]:
        contexts = [c for c in model.contexts if c.usage == "weights" and c.buft is not None]
        weights = [t for c in contexts for t in c.tensors if t.id not in alias]
        if len(contexts) > 1:
            # Of a model that was placed before, the graph tells the order that the contexts had together.
            met: dict[str, int] = {}
            for g in self.graphs.values():
                for id in g.expand:
                    met.setdefault(id, len(met))
            weights.sort(key=lambda t: met.get(t.id, _MANY))
        return weights

    def _roles(self, spec: TensorSpec) -> list[Role]:
        """What a weight is used as, what it is made for first; another role has a duplicate where it lies elsewhere."""
        weight = weight_of(spec.name, self.architecture)
        users = self._users.get(spec.id, [])
        op = tested_op(weight, users[0].op if users else None)
        if weight.base == TIED and weight.suffix == "weight":
            return self._tied_roles(users)
        if weight.base in PER_LAYER:
            every = () if self.architecture in FULL_ATTENTION_ONLY and users else range(max(self.n_layer, 1))
            layers: dict[int, list[str]] = {il: [] for il in every}
            for node in users:
                layers.setdefault(layer_of_node(node.name) or 0, []).append(node.id)
            return [Role("repeating", il, op, tuple(nodes)) for il, nodes in sorted(layers.items())]
        return [Role(weight.kind, weight.il, op, tuple(n.id for n in users))]

    def _tied_roles(self, users: list[TensorSpec]) -> list[Role]:
        """The embeddings: the input's, and in most models without an output of their own the output's too."""
        if self.architecture in LOADED_TWICE and any(n.op == Op.MUL_MAT for n in users):
            return [Role("output", -1, Op.MUL_MAT, tuple(n.id for n in users))]
        if self.architecture in OUTPUT_STAYS_WITH_INPUT:
            return [Role("input", -1, Op.GET_ROWS, tuple(n.id for n in users))]
        output = tuple(n.id for n in users if n.op == Op.MUL_MAT)
        rows = tuple(n.id for n in users if n.op != Op.MUL_MAT)
        roles = [Role("input", -1, Op.GET_ROWS, rows)]
        if output or self.architecture in OUTPUT_WITHOUT_USE:
            roles.append(Role("output", -1, Op.MUL_MAT, output))
        return roles

    def _cache_layer(self, spec: TensorSpec) -> int | None:
        il = layer_of_cache(spec.name)
        if il is not None:
            return il
        layers = [layer_of_node(node.name) for node in self._users.get(spec.id, [])]
        return next((il for il in layers if il is not None), None)

    def made_before(self, spec: TensorSpec, role: Role) -> str | None:
        """The weight that llama.cpp makes before the duplicate of `spec` for `role`; None if nothing tells.

        Newer captures have the weights in the order in which they were made: the output's before those of the layers.
        """
        made = {w.name: (i, w.id) for i, w in enumerate(self.weights)}
        first = next((i for i, w in enumerate(self.weights) if w.name.startswith("blk.")), 0)
        before_layers = ((w.id, weight_of(w.name, self.architecture)) for w in self.weights[:first])
        norms = [id for id, weight in before_layers if weight.kind == "output" and weight.base.endswith("norm")]
        if not norms:
            return None
        if role.kind == "output":
            return norms[-1]
        at = made[spec.name][0]
        before = self.weights[at - 1].name if at else ""
        neighbor = before.replace(f"blk.{weight_of(before).il}.", f"blk.{role.il}.")
        return made[neighbor][1] if neighbor in made else None

    def graph_size(self, given: int | None, n_weights: int) -> int | None:
        """llama_context::graph_max_nodes: the scheduler's size, which counts weights that lie twice as two."""
        if not self._nodes_per_weight:
            return given
        return max(_LEAST_NODES, self._nodes_per_weight * n_weights)

    def unique(self, id: str) -> str:
        """An id like this one that nothing else has."""
        n, unique = 1, id
        while unique in self._taken:
            unique = f"{id}~{n}"
            n += 1
        return unique

    def leafs(self, graph: str) -> list[str]:
        """The leafs of a graph, in the order in which ggml keeps them."""
        g = self.graphs[graph]
        nodes = {n.id for n in g.nodes}
        met = dict.fromkeys(e for e in g.expand if e not in nodes)
        for node in g.nodes:
            met.update(dict.fromkeys(s for s in node.src if s is not None and s not in nodes))
        return list(met)

    def numbered(self, graph: str) -> list[str]:
        """The inputs of a graph that ggml has named, by their number among the leafs."""
        names = {t.id: t.name for c in self.inputs for t in c.tensors}
        return [id for i, id in enumerate(self.leafs(graph)) if names.get(id) == f"leaf_{i}"]

    def leafs_of(self, graph: str, changed: Sources) -> list[str]:
        """The leafs of a graph in ggml's order where these nodes have other sources. How it was built is found out
        once."""
        if not changed:
            return self.leafs(graph)
        if graph not in self._orders:
            g = self.graphs[graph]
            src = {n.id: n.src for n in g.nodes}
            order = [e for e in g.expand if e in src] or list(src)
            # What build_moe_ffn asks for itself: the results of all experts, before it takes them apart and adds them.
            viewed = {n.src[0] for n in g.nodes if n.op == Op.VIEW and n.name.startswith("ffn_moe_") and n.src}
            experts = {n.id for n in g.nodes if n.id in viewed and n.op in (Op.MUL, Op.MUL_MAT_ID, Op.ADD_ID)}
            self._orders[graph] = LeafOrder(src, order, self.leafs(graph), experts)
        return self._orders[graph].of(changed)

    def nodes(self, graph: str) -> Mapping[str, TensorSpec]:
        """The nodes of a graph by their ids."""
        return self._nodes[graph]

    def of_layers(self, graph: str) -> Sequence[tuple[TensorSpec, str, int]]:
        """The nodes of a graph that llama.cpp may assign, each with its name without the layer, and the layer."""
        if graph not in self._of_layers:
            found = self._of_layers[graph] = []
            for node in self.graphs[graph].nodes:
                base, _, number = node.name.rpartition("-")
                if base in _ASSIGNED and number.isdecimal() and len(number) <= _DIGITS:
                    found.append((node, base, int(number)))
        return self._of_layers[graph]

    def n_tokens(self, graph: GraphSpec) -> int:
        """Tokens of a graph's batch; a great many where nothing tells."""
        if graph.name not in self._n_tokens:
            met = {*graph.expand, *(s for n in graph.nodes for s in n.src if s is not None)}
            inputs = {t.name: t for c in self.inputs for t in c.tensors if t.id in met}
            told = self.meta.get("n_tokens")
            if "inp_tokens" in inputs:
                told = inputs["inp_tokens"].ne[0]
            elif not isinstance(told, int):
                told = inputs["inp_embd"].ne[1] if "inp_embd" in inputs else _MANY
            self._n_tokens[graph.name] = told
        return self._n_tokens[graph.name]

    def hparams(self) -> Hparams:
        """The numbers of the model that the test of a buffer type asks for, told from the graph."""
        tensors = {t.id: t for c in self.inputs for t in c.tensors}
        tensors |= {t.id: t for t in self.weights} | {t.id: t for t, _ in self.caches}
        found: dict[str, int] = {}
        for g in self.graphs.values():
            tensors |= {n.id: n for n in g.nodes}
            for node in g.nodes:
                src = [tensors.get(s or "") for s in node.src]
                for name, value in _numbers(node, src).items():
                    found.setdefault(name, value)
        return Hparams(**found)


def number_of(model: ScenarioSpec, key: str, default: int = 0) -> int:
    """A number that a capture tells in its `meta`."""
    told = model.meta.get(key)
    return told if isinstance(told, int) else default


def n_layer(model: ScenarioSpec) -> int:
    """The layers of a captured model: as the capture says, else by the names of its weights."""
    weights = (t for c in model.contexts if c.usage == "weights" and c.buft is not None for t in c.tensors)
    numbers = [w.il + 1 for w in (weight_of(t.name) for t in weights) if w.il >= 0]
    return max([number_of(model, "n_layer"), *numbers])


def _numbers(node: TensorSpec, src: list[TensorSpec | None]) -> dict[str, int]:
    """What a node tells of the model."""
    if node.op == Op.MUL_MAT_ID and len(src) > 2 and src[2] is not None:
        return {"n_expert_used": src[2].ne[0]}
    if node.op == Op.ROPE:
        return {"n_embd_head": node.ne[0], "n_head": node.ne[1]}
    if node.op == Op.SSM_SCAN and len(src) > 4 and src[0] is not None and src[4] is not None:
        return {"ssm_d_state": src[0].ne[0], "ssm_head_dim": src[0].ne[1], "ssm_n_group": src[4].ne[1]}
    return {}


def _nodes_per_weight(model: ScenarioSpec, n_weights: int) -> int:
    """Nodes that the scheduler's size grants each weight; 0 if it has another reason."""
    size = model.scheduler.graph_size
    return next((n for n in _NODES_PER_WEIGHT if size == max(_LEAST_NODES, n * n_weights)), 0)


def _aliases(model: ScenarioSpec) -> dict[str, str]:
    """For weights that an earlier placement duplicated: the id of the first with the same name."""
    first: dict[str, str] = {}
    alias: dict[str, str] = {}
    weights = (t for c in model.contexts if c.usage == "weights" and c.buft is not None for t in c.tensors)
    for t in weights:
        original = first.setdefault(t.name, t.id)
        if original != t.id and t.id.startswith(f"{t.name}~"):
            alias[t.id] = original
    return alias


def _plain(graph: GraphSpec, alias: dict[str, str]) -> GraphSpec:
    """The graph without duplicates, assignments, and places of its nodes."""
    nodes = []
    for node in graph.nodes:
        if node.backend is not None or node.within is not None or any(s in alias for s in node.src):
            src = tuple(alias.get(s or "", s) for s in node.src)
            view_src = alias.get(node.view_src or "", node.view_src)
            node = replace(node, src=src, view_src=view_src, backend=None, at=None, within=None)
        nodes.append(node)
    return replace(graph, nodes=nodes, expand=[e for e in graph.expand if e not in alias])


def _users(graphs: Iterable[GraphSpec]) -> dict[str, list[TensorSpec]]:
    """The nodes that use each tensor, looked at through views and reshapes of it."""
    users: dict[str, list[TensorSpec]] = {}
    for graph in graphs:
        for node in graph.nodes:
            for s in dict.fromkeys(s for s in node.src if s is not None and s != node.id):
                users.setdefault(s, []).append(node)
    for id, nodes in users.items():
        users[id] = [n for n in nodes if not IS_VIEW_OP[n.op]] or nodes
    return users


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
