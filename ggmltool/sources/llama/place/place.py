"""What-if placement of a captured graph: where llama.cpp would put its weights and caches, without llama.cpp."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ggmltool.ggml.tensor import nbytes_of
from ggmltool.scenario.spec import ContextSpec, GraphSpec, ScenarioSpec, SchedulerSpec, TensorSpec
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.place.choices import SMALL_BATCH, Choices, Prepared
from ggmltool.sources.llama.place.options import LayerDevices, PlaceOptions


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where a weight or a cache went, and the rule that put it there.

    `name` is llama.cpp's, `id` the scenario's; `layer` is a number, `input` or `output`; `used` says whether the graph
    looks at it.
    """

    id: str
    name: str
    kind: str
    layer: str
    type: str
    nbytes: int
    buft: str
    rule: str
    used: bool


@dataclass(frozen=True, slots=True)
class Placement:
    """A placed model with what was decided: the device of every layer, each tensor's place, why there are no pipeline
    copies ("": there are), and the buffer type of the context's outputs.
    """

    model: ScenarioSpec
    layers: LayerDevices
    tensors: tuple[TensorPlace, ...]
    pipeline: str
    n_gpu_layers: int
    output_buft: str


class Probe(NamedTuple):
    """What to plan to know where flash attention runs."""

    placement: Placement
    graph: str


class Placer(Prepared):
    """A captured model, prepared to be placed many times on the same devices."""

    def place(self, options: PlaceOptions) -> Placement:
        """Place everything as llama.cpp does with these options. Raises PlaceError."""
        return _Placing(self, options).placement()

    def probe(self, options: PlaceOptions) -> Probe:
        """The placement and the graph that llama.cpp's check of flash attention is about: that of one token.

        Where there is none, the smallest graph with what llama.cpp does for one token; no op is worth an offload then.
        """
        graph = min(self.parts.graphs.values(), key=self.parts.n_tokens)
        many = self.parts.n_tokens(graph) >= SMALL_BATCH
        placed = replace(options, op_offload=options.op_offload and not many)
        return Probe(_Placing(self, placed, one_token=many).placement(), graph.name)


class _Placing:
    """One placement."""

    def __init__(self, placer: Placer, options: PlaceOptions, one_token: bool = False) -> None:
        self.placer = placer
        self.parts = placer.parts
        self.choices = Choices(placer, options, one_token)
        self.tensors: list[TensorPlace] = []
        self._orders: dict[str, list[str]] = {}

    def placement(self) -> Placement:
        placer, choices = self.placer, self.choices
        options = choices.options
        weights, moved = self._weights()
        caches = self._caches()
        pipeline = choices.why_no_pipeline()
        parallel = not pipeline if options.parallel is None else options.parallel
        backends = choices.backends()
        size = self.parts.graph_size(placer.model.scheduler.graph_size, sum(map(len, weights.values())))
        copies = placer.model.scheduler.copy_callback
        names = {b.name for b in backends}
        # A context for each buffer type; llama.cpp keeps them by the names of those.
        contexts = [ContextSpec(f"kv_{buft}", buft, "any", caches[buft]) for buft in sorted(caches)]
        contexts += [ContextSpec(f"w_{buft}", buft, "weights", weights[buft]) for buft in sorted(weights)]
        contexts += self._inputs(moved)
        seen: set[str] = set()
        for t in (t for context in contexts for t in context.tensors):
            if t.view_src is not None and t.view_src not in seen:
                raise PlaceError(
                    f"{t.id} is a view of {t.view_src}, which lies in another buffer; no model has such views"
                )
            seen.add(t.id)
        model = replace(
            placer.model,
            backends=backends,
            buffer_types=[b for b in placer.model.buffer_types if b.device in names],
            contexts=contexts,
            graphs={name: self._graph(g, moved) for name, g in self.parts.graphs.items()},
            scheduler=SchedulerSpec(size, parallel, options.op_offload, copies),
        )
        return Placement(model, choices.layers, tuple(self.tensors), pipeline, choices.n_gpu, choices.output_buft())

    def _weights(self) -> tuple[dict[str, list[TensorSpec]], dict[str, dict[str, str]]]:
        """The weights of each buffer type, and for the nodes that use a duplicate: which source is which."""
        placed: dict[str, list[TensorSpec]] = {}
        moved: dict[str, dict[str, str]] = {}
        where: dict[str, str] = {}
        after: dict[str, str] = {}
        for spec in self.parts.weights:
            if spec.view_src in where:
                placed[where[spec.view_src]].append(spec)
                continue
            made: dict[str, str] = {}
            for role in self.parts.roles[spec.id]:
                buft, rule = self.choices.weight(spec, role)
                if buft not in made:
                    id = spec.id if not made else self.parts.unique(f"{spec.id}~{buft}")
                    made[buft] = id
                    copy = spec if id == spec.id else replace(spec, id=id, name=spec.name)
                    placed.setdefault(buft, []).append(copy)
                    self._note(copy, "weight", role.layer, buft, rule, bool(role.nodes))
                where.setdefault(spec.id, buft)
                if made[buft] != spec.id:
                    before = self.parts.made_before(spec, role)
                    if before is not None:
                        after.setdefault(made[buft], before)
                    for node in role.nodes:
                        moved.setdefault(node, {})[spec.id] = made[buft]
        if moved or after:
            order = {id: i for g in self.parts.graphs for i, id in enumerate(self._leafs(g, moved))}
            _sort_duplicates(placed, order, {w.id: i for i, w in enumerate(self.parts.weights)}, after)
        return placed, moved

    def _caches(self) -> dict[str, list[TensorSpec]]:
        """The KV cache and the recurrent state."""
        placed: dict[str, list[TensorSpec]] = {}
        for spec, il in self.parts.caches:
            buft, rule = self.choices.cache(il)
            placed.setdefault(buft, []).append(spec)
            if spec.view_src is None:
                self._note(spec, "cache", "" if il is None else str(il), buft, rule, spec.id in self.parts.used)
        return placed

    def _note(self, spec: TensorSpec, kind: str, layer: str, buft: str, rule: str, used: bool) -> None:
        nbytes = nbytes_of(spec.type, spec.ne, spec.nb)
        self.tensors.append(TensorPlace(spec.id, spec.name, kind, layer, spec.type.name, nbytes, buft, rule, used))

    def _inputs(self, moved: dict[str, dict[str, str]]) -> list[ContextSpec]:
        """The inputs. ggml calls a leaf without a name by its number, which a duplicate before it changes."""
        if not moved:
            return self.parts.inputs
        renamed: dict[str, str] = {}
        for graph in self.parts.graphs:
            now = {id: i for i, id in enumerate(self._leafs(graph, moved))}
            renamed |= {id: f"leaf_{now[id]}" for id in self.parts.numbered(graph)}
        return [
            replace(c, tensors=[replace(t, name=renamed[t.id]) if t.id in renamed else t for t in c.tensors])
            for c in self.parts.inputs
        ]

    def _leafs(self, graph: str, moved: dict[str, dict[str, str]]) -> list[str]:
        """The leafs of a graph in ggml's order, with duplicates in the place of what they duplicate."""
        if graph not in self._orders:
            nodes = self.parts.nodes(graph)
            changed = {id: [by.get(s or "", s) for s in nodes[id].src] for id, by in moved.items() if id in nodes}
            self._orders[graph] = self.parts.leafs_of(graph, changed)
        return self._orders[graph]

    def _graph(self, graph: GraphSpec, moved: dict[str, dict[str, str]]) -> GraphSpec:
        """The graph with duplicates as sources and with llama.cpp's own assignments."""
        assigned = self.choices.assigned(graph)
        nodes = []
        for node in graph.nodes:
            backend, by = assigned.get(node.id), moved.get(node.id)
            if by is not None:
                view = node.view_src if node.view_src is None else by.get(node.view_src, node.view_src)
                node = replace(node, src=tuple(by.get(s or "", s) for s in node.src), view_src=view)
            nodes.append(node if backend is None else replace(node, backend=backend))
        expand = graph.expand
        if moved:
            ids = self.parts.nodes(graph.name)
            expand = [*self._leafs(graph.name, moved), *(e for e in expand if e in ids)]
        return replace(graph, nodes=nodes, expand=list(expand))


def _sort_duplicates(
    placed: dict[str, list[TensorSpec]], order: dict[str, int], made: dict[str, int], after: dict[str, str]
) -> None:
    """Put duplicates behind what was made before them, or where that is not known, where the graph meets them.

    All others keep their order. `order` is that of the leafs, `made` that of the weights that are no duplicates.
    """
    last = len(order)
    for buft, specs in placed.items():
        mine = [s for s in specs if s.id in made]
        for copy in (s for s in specs if s.id not in made):
            if copy.id in after:
                at = next((i for i, s in enumerate(mine) if made.get(s.id, -1) > made[after[copy.id]]), len(mine))
            else:
                met = order.get(copy.id, last)
                at = next((i for i, s in enumerate(mine) if order.get(s.id, last) > met), len(mine))
            mine.insert(at, copy)
        placed[buft] = mine
