"""What many placements of one model need: all that a search or a table asks for, without the plan's rows and texts.

The model's tensors and graphs are made once. For a placement the buffers of what moves are exchanged, layer by layer,
and the engine plans the graphs anew; bytes of weights and caches are sums that each layer has for each device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from ggmltool.estimate.records import PlacedSplit, SplitCopy
from ggmltool.ggml.buffer import USAGE_WEIGHTS, Buffer
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.plan import PlanError
from ggmltool.ggml.sched.scheduler import Scheduler
from ggmltool.ggml.tensor import FLAG_PARAM, Tensor, nbytes_of
from ggmltool.ggml.version import DEFAULT_GRAPH_SIZE, SIZE_MAX
from ggmltool.scenario.run.compiled import collector_paused
from ggmltool.scenario.run.kept import Exchange, KeptModel, Variant, bind
from ggmltool.scenario.spec import ContextSpec, SchedulerSpec, TensorSpec
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.place.bundles import Bundle, Group, Groups, Overridden, Setup
from ggmltool.sources.llama.place.choices import Choices
from ggmltool.sources.llama.place.needs import (
    Arrangement,
    Needs,
    Reserved,
    added_up,
    buffer_error,
    chunk_error,
    margins_of,
    output_bytes,
    place_and_measure,
    uses_of,
    warnings_of,
)
from ggmltool.sources.llama.place.options import Override, PlaceOptions
from ggmltool.sources.llama.place.parts import Parts
from ggmltool.sources.llama.place.place import Placer

_PLANS_KEPT = 64
"""Variants of a graph that are kept; a search goes through as many as layers."""

Lies = tuple[tuple[str, ...], ...]
"""For every weight of several roles, the buffer type that it has in each."""


class Duplicated(NamedTuple):
    """The weights of several roles where they lie, and how many tensors they are."""

    bindings: list[tuple[Tensor, Buffer]]
    sizes: dict[str, int]
    n_tensors: int


class Duplicates:
    """The weights of a captured model that have several roles, with every duplicate that was ever made of them."""

    def __init__(self, parts: Parts, kept: KeptModel) -> None:
        self.parts = parts
        self.kept = kept
        self.specs: list[TensorSpec] = [w for w in parts.weights if w.view_src is None and len(parts.roles[w.id]) > 1]
        self._unnamed = {t.id for c in parts.inputs for t in c.tensors if not t.name}
        self._made: dict[tuple[str, str], Tensor] = {}
        self._variants: dict[Lies, dict[str, Variant]] = {}

    def lie(self, choices: Choices) -> Lies:
        """Where they lie by these options. Raises PlaceError."""
        roles = self.parts.roles
        return tuple(tuple(choices.weight(spec, role)[0] for role in roles[spec.id]) for spec in self.specs)

    def placed(self, setup: Setup, lies: Lies) -> Duplicated:
        """The tensors that they are there."""
        bindings: list[tuple[Tensor, Buffer]] = []
        sizes: dict[str, int] = {}
        n = 0
        for spec, bufts in zip(self.specs, lies, strict=True):
            for buft in dict.fromkeys(bufts):
                setup.put(bindings, sizes, self._tensor(spec, bufts, buft), buft, USAGE_WEIGHTS)
                n += 1
        return Duplicated(bindings, sizes, n)

    def _tensor(self, spec: TensorSpec, bufts: tuple[str, ...], buft: str) -> Tensor:
        """The weight itself where it lies in its first role, else its duplicate for a buffer type."""
        if buft == bufts[0]:
            return self.kept.placed[spec.id]
        key = (spec.id, buft)
        if key not in self._made:
            self._made[key] = self.kept.duplicate(spec.id, self.parts.unique(f"{spec.id}~{buft}"))
        return self._made[key]

    def variants(self, lies: Lies) -> Mapping[str, Variant]:
        """Every graph as it is then."""
        found = self._variants.get(lies)
        if found is None:
            if len(self._variants) >= _PLANS_KEPT:
                self._variants.clear()
            found = self._variants[lies] = self._new_variants(lies)
        return found

    def _new_variants(self, lies: Lies) -> dict[str, Variant]:
        # For the nodes that use a duplicate: which source is which.
        moved: dict[str, dict[str, Tensor]] = {}
        for spec, bufts in zip(self.specs, lies, strict=True):
            for role, buft in zip(self.parts.roles[spec.id], bufts, strict=True):
                for node in role.nodes if buft != bufts[0] else ():
                    moved.setdefault(node, {})[spec.id] = self._tensor(spec, bufts, buft)
        graphs = self.kept.graphs
        if not moved:
            return {name: graph.base for name, graph in graphs.items()}
        out: dict[str, Variant] = {}
        orders = {}
        for name in graphs:
            nodes = self.parts.nodes(name)
            changed = {
                node: [by[s].id if s is not None and s in by else s for s in nodes[node].src]
                for node, by in moved.items()
                if node in nodes
            }
            orders[name] = self.parts.leafs_of(name, changed)
        named: dict[str, str] = {}
        for name, ids in orders.items():
            at = {id: i for i, id in enumerate(ids)}
            named |= {id: f"leaf_{at[id]}" for id in self.parts.numbered(name)}
        for name, graph in graphs.items():
            duplicates = {t.id: t for by in moved.values() for t in by.values()}
            leafs = [duplicates.get(id) or graph.table[id] for id in orders[name]]
            told = named | {id: f"leaf_{i}" for i, id in enumerate(orders[name]) if id in self._unnamed}
            names = {graph.table[id].index: text for id, text in told.items() if id in graph.table}
            exchanges = [
                Exchange(graph.table[node], graph.table[id], t)
                for node, by in moved.items()
                if node in self.parts.nodes(name)
                for id, t in by.items()
            ]
            out[name] = graph.exchanged(exchanges, leafs, names)
        return out


_KEPT = 512
"""Lists of overrides whose weights are kept by layer."""


class Measurer:
    """A captured model on its devices, measured in one placement after the other.

    What it says is what `place_and_measure` says, without `plan`. It is for one thread at a time.
    """

    def __init__(self, placer: Placer) -> None:
        self.placer = placer
        self._standing: _Standing | None = None
        self._is_new = True

    def needs(self, options: PlaceOptions, margins: Sequence[int] = (0,)) -> Needs:
        """What the placement by these options needs, and the splits of its graphs; without pipeline copies, if those
        do not fit. Raises PlaceError.
        """
        if self._is_new:
            self._is_new = False
            with suppress(GgmlError):  # what no capture of llama.cpp has is placed as a whole
                self._standing = _Standing(self.placer) if _is_plain(self.placer) else None
        if self._standing is not None:
            try:
                with collector_paused():
                    return self._standing.needs(options, margins)
            except (GgmlError, PlaceError):
                pass  # what is refused before a graph is reserved has the words of the whole placement
        return place_and_measure(self.placer, options, margins)[1]


def _is_plain(placer: Placer) -> bool:
    """Whether all tensors of contexts are leafs, those of graphs have some bytes, and views lie with what they are
    views of."""
    parts = placer.parts
    contexts: tuple[Sequence[TensorSpec], ...] = (
        parts.weights,
        [spec for spec, _ in parts.caches],
        [t for c in parts.inputs for t in c.tensors],
    )
    if not placer.model.release.reserves or any(not n.op for g in parts.graphs.values() for n in g.nodes):
        return False
    if any(t.op or t.src or t.flags & FLAG_PARAM for tensors in contexts for t in tensors):
        return False
    layers: dict[str, int | None] = {w.id: None for w in parts.weights if w.view_src is None}
    if any(not parts.roles[id] for id in layers) or any(w.view_src not in layers for w in parts.weights if w.view_src):
        return False
    own = {spec.id: il for spec, il in parts.caches if spec.view_src is None}
    if any(spec.view_src is not None and own.get(spec.view_src, -1) != il for spec, il in parts.caches):
        return False
    if not all(nbytes_of(w.type, w.ne, w.nb) for w in parts.weights):
        return False
    empty = {spec.id for spec, _ in parts.caches if not nbytes_of(spec.type, spec.ne, spec.nb)}
    used = {id for g in parts.graphs.values() for n in g.nodes for id in (n.view_src, *n.src)}
    for tensors in contexts[:2]:
        seen: set[str] = set()
        for t in tensors:
            if t.view_src is not None and t.view_src not in seen:
                return False
            seen.add(t.id)
    return empty.isdisjoint(used)


class _Standing:
    """A model with everything that its placements share."""

    def __init__(self, placer: Placer) -> None:
        self.placer = placer
        parts = placer.parts
        cpu = placer.devices[placer.cpu.name].buft.name
        on_cpu = [
            ContextSpec("kv", cpu, "any", [spec for spec, _ in parts.caches]),
            ContextSpec("w", cpu, "weights", list(parts.weights)),
        ]
        model = replace(placer.model, contexts=[*on_cpu, *parts.inputs], graphs=parts.graphs, scheduler=SchedulerSpec())
        self.kept = KeptModel(model)
        self.groups = Groups(parts, self.kept)
        self.duplicates = Duplicates(parts, self.kept)
        self.n_weights = len(parts.weights) - len(self.duplicates.specs)
        self.output_bytes = output_bytes(placer.model)
        self.warnings = warnings_of(placer.model)
        self._setups: dict[tuple[object, ...], Setup] = {}
        self._overridden: dict[tuple[Override, ...], Mapping[Group, Overridden]] = {}
        self._bound: dict[Group, Bundle] = {}

    def needs(self, options: PlaceOptions, margins: Sequence[int]) -> Needs:
        """As `Measurer.needs`. Raises GgmlError, too, for what ggml refuses before a graph is reserved."""
        placer = self.placer
        kept = margins_of([gpu.name for gpu in placer.gpus], placer.cpu.name, margins)
        placement = _Placement(self, Choices(placer, options))
        needs = placement.needs(kept)
        if not needs.parallel or options.parallel is not None or not needs.compute_is_short:
            return needs
        with_copies = {device: needs.of(device) for device in needs.memory}
        placement.parallel = False
        return replace(placement.needs(kept), with_copies=with_copies)

    def setup(self, choices: Choices) -> Setup:
        """The devices of these options, with all that was found out there."""
        options = choices.options
        key = (tuple(gpu.name for gpu in choices.gpus), options.extra_bufts, options.lazy_mode)
        if key not in self._setups:
            self._setups[key] = Setup(choices, self.kept, self.groups)
        return self._setups[key]

    def overridden(self, choices: Choices) -> Mapping[Group, Overridden]:
        """What these options override, by group."""
        overrides = choices.options.overrides
        found = self._overridden.get(overrides)
        if found is None:
            if len(self._overridden) >= _KEPT:
                self._overridden.clear()
            found = self._overridden[overrides] = self.groups.overridden(choices.overrides)
        return found

    def bind(self, group: Group, bundle: Bundle) -> None:
        """Put a group's tensors where they are to lie, if they do not lie there."""
        if self._bound.get(group) is not bundle:
            bind(bundle.bindings)
            self._bound[group] = bundle


class _Placement:
    """One placement; `parallel` says whether there are pipeline copies."""

    def __init__(self, standing: _Standing, choices: Choices) -> None:
        self.standing = standing
        self.choices = choices
        self.setup = standing.setup(choices)
        options = choices.options
        self.parallel = not choices.why_no_pipeline() if options.parallel is None else options.parallel
        overridden = standing.overridden(choices)
        self.bundles = [
            (group, self.setup.bundle(choices, group, overridden.get(group, ()))) for group in standing.groups.all
        ]
        self.lies = standing.duplicates.lie(choices)
        self.duplicated = standing.duplicates.placed(self.setup, self.lies)
        for group, bundle in self.bundles:
            standing.bind(group, bundle)
        bind(self.duplicated.bindings)

    def needs(self, margins: Mapping[str, int]) -> Needs:
        choices, standing, setup = self.choices, self.standing, self.setup
        weights: dict[str, int] = dict(self.duplicated.sizes)
        caches: dict[str, int] = {}
        for _, bundle in self.bundles:
            for buft, size in bundle.weights.items():
                weights[buft] = weights.get(buft, 0) + size
            for buft, size in bundle.caches.items():
                caches[buft] = caches.get(buft, 0) + size
        if not all(caches.values()):
            raise PlaceError("caches of no bytes")  # refused by some releases, which the whole placement tells
        buffers = [(setup.bufts[buft], False, caches[buft]) for buft in sorted(caches)]
        buffers += [(setup.bufts[buft], True, weights[buft]) for buft in sorted(weights)]
        variants = standing.duplicates.variants(self.lies)
        parts, given = standing.placer.parts, standing.placer.model.scheduler.graph_size
        graph_size = parts.graph_size(given, standing.n_weights + self.duplicated.n_tensors)
        if graph_size is None:
            nodes = (v.graph.n_nodes + v.graph.n_leafs for v in variants.values())
            graph_size = max([DEFAULT_GRAPH_SIZE, *nodes])
        needs = added_up(
            Arrangement(choices.layers, choices.n_gpu, self.parallel, setup.specs),
            uses_of(setup.backends, buffers),
            {name: self._reserve(name, variant, graph_size) for name, variant in variants.items()},
            (choices.output_buft(), standing.output_bytes),
            standing.warnings,
            margins,
        )
        return replace(needs, error=self._too_large() or needs.error)

    def _too_large(self) -> PlanError | None:
        """The error of a tensor that is larger than the largest buffer of its device."""
        setup = self.setup
        if all(buft.largest >= SIZE_MAX for buft in setup.bufts.values()):
            return None
        bindings = chain(self.duplicated.bindings, *(bundle.bindings for _, bundle in self.bundles))
        return buffer_error(
            (buffer.buft, setup.size(t, buffer.buft.name))
            for t, buffer in bindings
            if t.view_src is None and buffer.buft.largest < SIZE_MAX
        )

    def _reserve(self, name: str, variant: Variant, size: int) -> Reserved:
        """A graph, reserved by a scheduler of its own."""
        graph = self.standing.kept.graphs[name]
        sched = self.setup.scheduler(size, self.parallel, self.choices.options.op_offload)
        graph.show(variant)
        self.setup.tell(sched, name, self.bundles)
        assigned = self.choices.assigned(self.standing.placer.parts.graphs[name])
        for id, backend in assigned.items():
            sched.set_tensor_backend(graph.table[id], self.setup.names[backend])
        try:
            graph.reserve(sched)
        except GgmlError as error:
            return Reserved((), (), tuple(error.as_dict().items()))
        sizes = [(b.name, b.device.buft.name, sched.get_buffer_size(i)) for i, b in enumerate(self.setup.backends)]
        return Reserved(_splits(sched), sizes, chunk_error(sched))


def _splits(sched: Scheduler) -> tuple[PlacedSplit, ...]:
    names, ids = sched.names, sched.assigned
    return tuple(
        [
            PlacedSplit(
                names[split.backend_id],
                split.i_start,
                split.i_end,
                tuple([SplitCopy(t.label, names[ids[t.index]], t.nbytes) for t in split.inputs])
                if split.inputs
                else (),
            )
            for split in sched.splits[: sched.n_splits]
        ]
    )
