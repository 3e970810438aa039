"""Small changes to a scenario, and what a plan makes of each: what would move a node to another backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from ggmltool.ggml.devices.cases import OwnSupports
from ggmltool.ggml.devices.conditions import SupportRule
from ggmltool.ggml.dtypes import BF16, F16, F32
from ggmltool.ggml.op import KEY_NAMES, Op, op_key
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.tensor import contiguous_nb, nbytes_of
from ggmltool.inspect.opened import Opened
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import BackendSpec, ContextSpec, GraphSpec, ScenarioSpec, TensorSpec, Usage
from ggmltool.scenario.versions import has_no_op_offload
from ggmltool.show.document import Row

MOST = 24
"""Changes that are tried at most."""
_NODES_PLANNED = 40_000
"""Nodes that are planned at most, over all changes: a graph of many gets fewer of them."""


class Change(NamedTuple):
    """A changed scenario, and in words what was changed; `of_node`: the words leave out which node it was. `moved` is
    the tensor that lies elsewhere, None if the change is another one."""

    text: str
    model: ScenarioSpec
    of_node: bool = False
    moved: str | None = None


class OutcomeRow(Row):
    """What a plan comes to: the backend (null: ggml refuses), the splits, the bytes they copy; `text` says what was
    changed for it."""

    text: str
    backend: str | None
    splits: int
    copied: int


def outcome(text: str, plan: Plan, model: ScenarioSpec, node: str) -> OutcomeRow:
    """A plan in numbers."""
    specs = [*model.tensors(), *model.graphs[plan.graph or ""].nodes]
    nbytes = {t.id: nbytes_of(t.type, t.ne, t.nb) for t in specs}
    copied = sum(nbytes.get(i, 0) for split in plan.splits for i in split.inputs)
    return OutcomeRow(text, backend_of(plan, node), len(plan.splits), copied)


def backend_of(plan: Plan, tensor: str) -> str | None:
    """The backend of a node or a leaf."""
    rows = {leaf.id: leaf.backend for leaf in plan.leafs} | {n.id: n.backend for n in plan.nodes}
    return rows.get(tensor)


def changes(opened: Opened, graph: str, node: str, chain: Sequence[str], now: str | None = None) -> Iterator[Change]:
    """What might move a tensor to another backend than `now`, the most natural first.

    `chain` are the tensors that settled its backend, directly or through neighbors. What these changes come to is
    ggml's to decide.
    """
    model = opened.model
    if len(model.backends) == 1:
        return
    run = opened.scenario.start()
    built = run.build(graph)
    t = next(t for t in (*built.nodes, *built.leafs) if t.id == node)
    able = [b.name for b in run.backends if b.device.supports_op(t)]
    specs = {t.id: t for t in (*model.tensors(), *model.graphs[graph].nodes)}
    spec = specs[node]
    near = [s for s in (*spec.src, *chain, spec.view_src, node) if s is not None]
    roots = [specs[i].view_src or i for i in dict.fromkeys(near) if i in specs]
    owned = list(dict.fromkeys(i for i in roots if _context_of(model, i) is not None))
    for backend in model.backends:
        for i in owned:
            yield from _put(model, i, backend)
    for i in owned:
        yield from _mark(model, i)
    for asker in run.backends:
        least, batch = asker.device.offloads_from(t), asker.device.batch_size(t)
        if asker.name in able and least is not None and 0 < batch < least:
            # To the scheduler a larger batch is a backend that is content with this one.
            content = [replace(b, offload_min_batch=batch) if b.name == asker.name else b for b in model.backends]
            text = f"a batch of {least} or more, which {asker.name} offloads"
            yield Change(text, replace(model, backends=content))
    if any(b.type != "cpu" for b in model.backends[:-1]) and not has_no_op_offload(model.release):
        on = model.scheduler.op_offload
        switched = replace(model, scheduler=replace(model.scheduler, op_offload=not on))
        yield Change(f"switch op offload {'off' if on else 'on'}", switched)
    if spec.op:
        for i in dict.fromkeys(s for s in spec.src if s is not None and s != node):
            yield from _copied_before(model, graph, spec, specs[i])
        for backend in model.backends:
            if backend.name not in able:
                yield _given_the_op(model, backend, spec)
    for name in able:
        if name == now:
            continue
        yield Change(f"assign its backend: `backend: {name}`", _assigned(model, graph, node, name), of_node=True)


def _context_of(model: ScenarioSpec, id: str) -> ContextSpec | None:
    return next((c for c in model.contexts if any(t.id == id for t in c.tensors)), None)


def put_all(model: ScenarioSpec, ids: Iterable[str], backend: str) -> ScenarioSpec:
    """The scenario with these tensors of its contexts in the backend's own buffer type."""
    spec = next(b for b in model.backends if b.name == backend)
    for id in ids:
        for change in _put(model, id, spec):
            model = change.model
    return model


def _put(model: ScenarioSpec, id: str, backend: BackendSpec) -> Iterator[Change]:
    """A context's tensor, with its views, in the backend's own buffer type."""
    from ggmltool.scenario.devices.backends import default_buft

    buft = default_buft(backend)
    own = _context_of(model, id)
    if own is None or own.buft == buft:
        return
    taken = {t.id for t in own.tensors if id in (t.id, t.view_src)}
    usage = own.usage if own.buft is not None else "any"
    there = ContextSpec(f"{own.name}, {id}", buft, usage, [t for t in own.tensors if t.id in taken])
    rest = replace(own, tensors=[t for t in own.tensors if t.id not in taken])
    contexts = [c for context in model.contexts for c in ((there, rest) if context is own else (context,))]
    yield Change(f"put {id} into {buft}", replace(model, contexts=contexts), moved=id)


def _mark(model: ScenarioSpec, id: str) -> Iterator[Change]:
    """The other usage for the context of a tensor: only weights decide where an op runs."""
    own = _context_of(model, id)
    if own is None or own.buft is None:
        return
    other: Usage = "any" if own.usage == "weights" else "weights"
    contexts = [replace(c, usage=other) if c is own else c for c in model.contexts]
    yield Change(f"`usage: {other}` for the context {own.name}", replace(model, contexts=contexts))


def _copied_before(model: ScenarioSpec, graph: str, spec: TensorSpec, source: TensorSpec) -> Iterator[Change]:
    """A copy of a source made before the node: without gaps, or of a type that more devices take."""
    nb = contiguous_nb(source.type, source.ne)
    if nb != source.nb:
        made = f"{source.id} (cont)"
        cont = TensorSpec(made, made, source.type, source.ne, nb, int(Op.CONT), src=(source.id,))
        text = f"make {source.id} contiguous first (cont)"
        yield Change(text, _reading(model, graph, spec, source.id, cont))
    if source.type in (F16, BF16):
        made = f"{source.id} (cast)"
        # ggml_cast: the copy is a source of its own, for its type and layout.
        cast = TensorSpec(made, made, F32, source.ne, contiguous_nb(F32, source.ne), int(Op.CPY), src=(source.id, made))
        text = f"cast {source.id} from {source.type.name} to f32 first"
        yield Change(text, _reading(model, graph, spec, source.id, cast))


def _reading(model: ScenarioSpec, graph: str, spec: TensorSpec, source: str, made: TensorSpec) -> ScenarioSpec:
    """The node reads `made`, a new node before it, in place of a source."""
    reading = replace(spec, src=tuple(made.id if s == source else s for s in spec.src))
    nodes = [n for node in model.graphs[graph].nodes for n in ((made, reading) if node is spec else (node,))]
    return _with_nodes(model, graph, nodes)


def _given_the_op(model: ScenarioSpec, backend: BackendSpec, spec: TensorSpec) -> Change:
    """A backend that supports the op besides all that it supports already."""
    key = op_key(spec.op, spec.op_params)
    had = backend.supports or OwnSupports(frozenset(), True, profile=True)
    keys = had.keys - {key} if had.exclude else had.keys
    able = replace(backend, supports=replace(had, keys=keys, rules=(*had.rules, SupportRule(frozenset({key})))))
    backends = [able if b is backend else b for b in model.backends]
    what = ("" if backend.supports == OwnSupports(had.keys, had.exclude) else "this ") + KEY_NAMES[key].upper()
    return Change(f"if {backend.name} supported {what}", replace(model, backends=backends))


def _assigned(model: ScenarioSpec, graph: str, node: str, backend: str) -> ScenarioSpec:
    """The user's choice: ggml_backend_sched_set_tensor_backend."""
    contexts = [
        replace(c, tensors=[replace(t, backend=backend) if t.id == node else t for t in c.tensors])
        for c in model.contexts
    ]
    nodes = [replace(n, backend=backend) if n.id == node else n for n in model.graphs[graph].nodes]
    return _with_nodes(replace(model, contexts=contexts), graph, nodes)


def _with_nodes(model: ScenarioSpec, graph: str, nodes: list[TensorSpec]) -> ScenarioSpec:
    changed: dict[str, GraphSpec] = {**model.graphs, graph: replace(model.graphs[graph], nodes=nodes)}
    return replace(model, graphs=changed)


def outcomes(tried: Iterable[Change], graph: str, node: str, wanted: Callable[[Plan], bool]) -> list[OutcomeRow]:
    """Plan changed scenarios, a bounded number of them; those whose plan is as wanted, each text once."""
    out: dict[str, OutcomeRow] = {}
    planned = 0
    for change in islice(tried, MOST):
        plan = LoadedScenario(change.model).plan(graph)
        if plan.ok and wanted(plan) and change.text not in out:
            out[change.text] = outcome(change.text, plan, change.model, node)
        planned += len(change.model.graphs[graph].nodes)
        if planned > _NODES_PLANNED:
            break
    return list(out.values())
