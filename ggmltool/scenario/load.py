"""Loading a scenario: from a file, standard input or a dict to a ScenarioSpec, every name and shape resolved."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from msgspec import Meta

from ggmltool.ggml.bounds import BOUNDS, Bounds
from ggmltool.ggml.context import Context
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import DEFAULT, NEWEST
from ggmltool.ggml.tensor import Tensor
from ggmltool.scenario.devices.backends import ScenarioDevices, as_backend, as_buft, devices_of, read_scheduler
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted
from ggmltool.scenario.nodes.captured import Seen, is_described
from ggmltool.scenario.nodes.long_form import LongForm
from ggmltool.scenario.nodes.nodes import NodeScope, build_short
from ggmltool.scenario.nodes.short_form import is_tensor
from ggmltool.scenario.nodes.tensors import MAX_NAME_LENGTH, TensorReader, check_printable
from ggmltool.scenario.run.compiled import collector_paused
from ggmltool.scenario.spec import (
    FORMAT,
    BackendKeys,
    BufferTypeKeys,
    ContextSpec,
    GraphSpec,
    ScenarioSpec,
    SchedulerKeys,
    Step,
    TensorSpec,
    Usage,
)
from ggmltool.scenario.steps import ALL_GRAPH_STEPS, MAX_STEPS, StepKeys, StepReader, default_steps, translated
from ggmltool.scenario.text.text import Readable, ScenarioText, read_document
from ggmltool.scenario.values import (
    INT64_MAX,
    MAX_ID,
    NO_CONTROLS,
    Count,
    Id,
    Keys,
    PrintableId,
    Schema,
    as_id,
    as_int,
    as_list,
    as_map,
    as_text,
    at,
    check_keys,
    defined,
    key_names,
    kind_of,
    read_keys,
    said,
)
from ggmltool.scenario.versions import (
    check_flags,
    check_keys_known,
    check_known,
    read_ggml,
    release_names,
    without_flags,
    without_unknown,
)

Fact = str | int | float | bool

MAX_FACTS = 1000


def read_meta(value: object) -> dict[str, Fact]:
    """A map of names to text, numbers and truth values. Raises Mistake."""
    given = as_map({} if value is None else value, "meta")
    if len(given) > MAX_FACTS:
        raise Mistake(f"meta has {len(given)} entries", f"at most {MAX_FACTS}")
    return {key: at(key, _fact, key, fact) for key, fact in given.items()}


def _fact(key: str, value: object) -> Fact:
    _check_text(key)
    match value:
        case str():
            _check_text(value)
            return value
        case bool():
            return value
        case int() if -INT64_MAX <= value <= INT64_MAX:
            return value
        case float() if math.isfinite(value):
            return value
    raise Mistake(f"a fact must be text, a number or a truth value, not {kind_of(value)}")


def _check_text(text: str) -> None:
    if len(text) > MAX_NAME_LENGTH:
        raise Mistake(f"{quoted(text)} has {len(text)} characters", f"at most {MAX_NAME_LENGTH}")
    check_printable(text, "the text")


T = TypeVar("T")

MAX_MISALIGN = 4095
MAX_TENSORS = 1_000_000
"""Tensors and nodes of a scenario, at most."""

Title = Annotated[str, Meta(max_length=MAX_NAME_LENGTH, pattern=NO_CONTROLS)]
_Fact = Annotated[str | float | bool, said(maxLength=MAX_NAME_LENGTH, pattern=NO_CONTROLS)]
_TEXT = {"type": "string"}


class ContextKeys(Keys):
    """What is allocated together."""

    together: ClassVar[Schema] = {
        "not": {"required": ["buft", "tallocr"], "properties": {"buft": _TEXT, "tallocr": _TEXT}},
        "if": {"required": ["size"], "properties": {"size": {"type": "integer"}}},
        "then": {"required": ["buft"], "properties": {"buft": _TEXT}},
    }
    buft: str | None = None
    usage: Usage | None = None
    tensors: dict[PrintableId, Annotated[Any, defined("tensor")]] | None = None
    tallocr: str | None = None
    size: Count | None = None


class GraphKeys(Keys):
    """Nodes, and what the graph is made of."""

    nodes: dict[PrintableId, Annotated[Any, defined("node")]] | None = None
    expand: Id | list[Id] | None = None
    uncomputed: Id | list[Id] | None = None


class TopKeys(Keys):
    """Devices, tensors, graphs, and what is done with them: `ggmltool help scenario`."""

    ggmltool: Annotated[int, Meta(ge=FORMAT, le=FORMAT)]
    ggml: Annotated[Any, said(enum=[*release_names(), None])] = None
    name: Title | None = None
    meta: Annotated[dict[Title, _Fact], Meta(max_length=MAX_FACTS)] | None = None
    backends: Annotated[list[Id | BackendKeys], Meta(min_length=1)] | None = None  # type: ignore[valid-type]
    buffer_types: dict[Id, BufferTypeKeys] | None = None  # type: ignore[valid-type]
    contexts: dict[PrintableId, ContextKeys] | None = None
    graphs: dict[PrintableId, GraphKeys] | None = None
    steps: Annotated[list[str | StepKeys], Meta(max_length=MAX_STEPS)] | None = None  # type: ignore[valid-type]
    scheduler: SchedulerKeys | None = None  # type: ignore[valid-type]
    cpu_base_misalign: Annotated[int, Meta(ge=0, le=MAX_MISALIGN)] | None = None


def load_spec(
    source: str | Path | dict[str, Any],
    folder: Path | None = None,
    stream: Readable | None = None,
    ggml: str | Release | None = None,
    bounds: Bounds = BOUNDS,
) -> ScenarioSpec:
    """Load a scenario.

    `source` is a path (`.yaml`, `.yml`, `.json`, each also `.gz`), `-` for standard input, or the scenario itself as a
    dict. `folder` is where the files it names lie: by default its own folder, for a dict and standard input the
    current one. `stream` is the content of the path or of standard input where that has been opened already. `ggml`
    is the release to plan it as, whatever it says itself; keys that this one has no meaning for are left out then.
    `bounds` are what computing it may take.

    Raises ScenarioError for a mistake in the scenario or an unknown release, and GgmlError (with `where` set) where
    one of ggml's constructors would refuse a node.
    """
    with collector_paused():
        document = read_document(source, stream)
        if folder is not None:
            document.folder = folder
        spec = load_document(document, ggml)
    spec.bounds = bounds
    return spec


def load_document(document: ScenarioText, ggml: str | Release | None = None) -> ScenarioSpec:
    """The spec of a scenario that was read. Raises as `load_spec` does."""
    try:
        asked = read_ggml(ggml) if isinstance(ggml, str) else ggml
        return _Loader(document, asked).spec()
    except Mistake as mistake:
        raise document.error(mistake) from None


class _Loader:
    """Reads the parts of a scenario in the order in which they depend on each other."""

    def __init__(self, document: ScenarioText, ggml: Release | None = None) -> None:
        self.document = document
        self.asked = ggml
        self.release = DEFAULT
        self.is_own = True
        self.left_out: list[str] = []
        self.has_places = document.format == "yaml"
        self.top = as_map(document.value, "a scenario")
        self.ctx = Context()
        self.seen = Seen()
        self.outer = NodeScope(self.ctx, {})
        self.layouts: dict[str, int] = {}
        self.elsewhere: dict[str, str] = {}
        self.devices = ScenarioDevices([], [], [], [])
        self.reader = TensorReader((), None)
        self.inner: list[TensorSpec] = []

    def spec(self) -> ScenarioSpec:
        if "ggmltool" not in self.top:
            hint = did_you_mean("ggmltool", self.top) or "it starts with `ggmltool: 1`"
            raise Mistake("this is not a scenario: it has no format version", hint)
        check_keys(self.top, key_names(TopKeys), "a scenario")
        version = self._part("ggmltool", lambda v: as_int(v, "ggmltool (the format version)"))
        if version != FORMAT:
            raise Mistake(f"this scenario has format {version}", f"this ggmltool reads format {FORMAT}", "ggmltool")
        _check_count(self.top)
        self._choose_release()
        name = self._part("name", _title)
        meta = self._part("meta", read_meta)
        self.devices = devices_of(self.top, self.document.folder, self.release)
        backends = self.devices.backends
        self.reader = TensorReader([b.name for b in backends], self.document.folder, self.release)
        scheduler = self._part("scheduler", lambda v: read_scheduler(v, backends))
        contexts = self._part("contexts", lambda v: self._named(v, "contexts", self._context))
        graphs = self._part("graphs", lambda v: self._named(v, "graphs", self._graph))
        by_name = {graph.name: graph for graph in graphs}
        if self.release is not NEWEST:
            self._check_known(contexts, graphs)
        steps = self._part("steps", lambda v: self._steps(v, by_name))
        misalign = read_keys({"cpu_base_misalign": self.top.get("cpu_base_misalign")}, TopKeys)
        document = self.document
        return ScenarioSpec(
            name,
            backends,
            self.devices.buffer_types,
            contexts,
            by_name,
            steps,
            scheduler,
            meta,
            document.folder,
            document.source,
            self.release,
            tuple(self.left_out),
            **misalign,
        )

    def _choose_release(self) -> None:
        """The release that was asked for, else the scenario's own; what it has no meaning for is left out, or wrong."""
        own = self._part("ggml", read_ggml)
        self.release = self.asked or own
        self.is_own = self.release.name == own.name and ("ggml" in self.top or self.asked is None)
        if self.is_own:
            check_keys_known(self.top, self.release)
        else:
            self.top, self.left_out = without_unknown(self.top, self.release)
        self.ctx.rules = self.release.ops

    def _check_known(self, contexts: list[ContextSpec], graphs: list[GraphSpec]) -> None:
        """Raise for a type or an op that the release does not have."""
        of_contexts = [("contexts", c.name, "tensors", t) for c in contexts for t in c.tensors]
        of_graphs = [("graphs", g.name, "nodes", t) for g in graphs for t in g.nodes]
        for part, name, below, t in (*of_contexts, *of_graphs):
            try:
                check_known(t, self.release)
                if self.is_own:
                    check_flags(t, self.release)
            except Mistake as mistake:
                # A node that another one is made of is not written itself.
                written = self.top[part][name][below]
                raise mistake.below(part, name, below, t.id if t.id in written else t.id.rpartition(".")[0]) from None
        if any(without_flags(t, self.release) for *_, t in (*of_contexts, *of_graphs)):
            self.left_out.append("flags")

    def _part(self, key: str, read: Callable[[object], T]) -> T:
        """Read what stands at a key of the scenario."""
        return at(key, read, self.top.get(key))

    def _named(self, value: object, what: str, read: Callable[[str, dict[str, Any]], T]) -> list[T]:
        """Read each entry of a map of contexts or graphs."""
        out: list[T] = []
        for name, item in as_map({} if value is None else value, what).items():
            try:
                check_printable(as_id(name, f"a name in {what}"), "the name")
            except Mistake as mistake:
                mistake.on_key = True
                raise mistake.below(name) from None
            out.append(at(name, lambda: read(name, as_map(item, f"an entry of {what}"))))  # noqa: B023 - called at once
        return out

    def _context(self, name: str, given: dict[str, Any]) -> ContextSpec:
        check_keys(given, key_names(ContextKeys), "a context")
        said = read_keys(
            {**given, "tensors": None},
            ContextKeys,
            buft=lambda v: as_buft(v, self.devices),
            tallocr=lambda v: as_backend(v, "tallocr", self.reader.backends),
        )
        buft, size = said.get("buft"), said.get("size")
        if "tallocr" in said and buft is not None:
            raise Mistake("tallocr and buft are both given", "give one of them", "tallocr", on_key=True)
        if size is not None:
            if buft is None:
                raise Mistake("a context with a size needs a buft", "say what memory it is in", "size", on_key=True)
            self.reader.sizes[name] = size
        if buft is not None and buft not in self.reader.backends:
            self.reader.packing.add(name)
        spec = ContextSpec(name, buft, said.get("usage", "any"), [], said.get("tallocr"), size)
        self.reader.context = spec
        tensors = given.get("tensors")
        entries = at("tensors", as_map, {} if tensors is None else tensors, "tensors")
        scope = self.outer
        scope.later = entries
        for id, value in entries.items():
            try:
                self._check_id(id, scope)
                leaf = self.reader.leaf(id, value, scope)
            except Mistake as mistake:
                raise mistake.below("tensors", id) from None
            if size is not None and leaf.at is None and leaf.view_src is None:
                raise Mistake("this tensor does not say where it lies", "give its at").below("tensors", id)
            if self.has_places:
                leaf.place = self.document.place("contexts", name, "tensors", id)
            scope.add(leaf)
            self.layouts[id] = self.seen.layout(leaf)
            spec.tensors.append(leaf)
        self.reader.context = None
        return spec

    def _check_id(self, id: object, scope: NodeScope) -> None:
        """Raise for an id that is no text, too long, not printable or taken."""
        if not isinstance(id, str) or not id or len(id) > MAX_ID or id in scope or not id.isprintable():
            try:
                text = as_id(id, "id")
                if text in scope:
                    raise Mistake(f"there is a tensor {quoted(text)} already", "ids are unique in a scenario")
                check_printable(text, "id")
            except Mistake as mistake:
                mistake.on_key = True
                raise

    def _graph(self, name: str, given: dict[str, Any]) -> GraphSpec:
        check_keys(given, key_names(GraphKeys), "a graph")
        nodes = given.get("nodes")
        nodes = at("nodes", as_map, {} if nodes is None else nodes, "nodes")
        scope = NodeScope(self.ctx, nodes, self.elsewhere, is_described(nodes), self.outer, self.release)
        layouts = dict(self.layouts)
        spec = GraphSpec(name, [], [])
        for id, value in nodes.items():
            try:
                self._check_id(id, scope)
                node = self._node(id, value, scope, layouts)
            except Mistake as mistake:
                raise mistake.below("nodes", id) from None
            except GgmlError as e:
                place = self.document.place("graphs", name, "nodes", id)
                where = f":{place.line}:{place.column}" if place is not None else ""
                e.where = f"{self.document.source}{where}: node {quoted(id)}"
                raise e from None
            for made in (*self.inner, node):
                if self.has_places:
                    made.place = self.document.place("graphs", name, "nodes", id)
                spec.nodes.append(made)
            self.inner.clear()
        spec.expand = at("expand", self._expand, given.get("expand"), nodes, scope)
        spec.uncomputed = frozenset(at("uncomputed", self._uncomputed, given.get("uncomputed"), spec.expand))
        self.elsewhere.update(dict.fromkeys(nodes, name))
        return spec

    def _node(self, id: str, value: object, scope: NodeScope, layouts: dict[str, int]) -> TensorSpec:
        """One node, made known to the scope."""
        tensor: Tensor | None = None
        if isinstance(value, dict):
            op = value.get("op")
            if op is not None and not (isinstance(op, str) and op == "none"):
                return self._long(id, value, scope, layouts)
        elif not isinstance(value, str):
            raise Mistake(f"a node must be text or a map, not {kind_of(value)}", "for example mul_mat(a, x)")
        elif not is_tensor(value):
            tensor = build_short(id, value, scope)
            self._add_inner(id, tensor, scope, layouts)
        spec = self.reader.leaf(id, value, scope) if tensor is None else self.reader.node(id, {}, scope, tensor)
        scope.add(spec, tensor)
        layouts[id] = self.seen.layout(spec)
        return spec

    def _long(self, id: str, value: dict[str, Any], scope: NodeScope, layouts: dict[str, int]) -> TensorSpec:
        found = self.seen.find(id, value, scope, layouts)
        if found is not None:
            known, src, root, offs = found
            spec = self.reader.finish(
                id, value, scope, known.type, known.ne, known.nb, known.op, known.op_params, src, root, offs
            )
            scope.specs[id] = spec
            layouts[id] = known.layout
            return spec
        tensor = LongForm(id, value, scope).build()
        composite = self._add_inner(id, tensor, scope, layouts)
        spec = self.reader.node(id, value, scope, tensor)
        if not composite:
            self.seen.remember(value, spec, scope, layouts)
        scope.add(spec, tensor)
        layouts[id] = self.seen.layout(spec)
        return spec

    def _add_inner(self, id: str, last: Tensor, scope: NodeScope, layouts: dict[str, int]) -> bool:
        """Make the nodes known that a function of ggml's builds besides the last one; whether there are any.

        Their ids are those of the last one and a number.
        """
        inner = _inner_nodes(last)
        if not inner:
            return False
        names = (name for name in (f"{id}.{n}" for n in count(1)) if name not in scope and name not in scope.later)
        for tensor in inner:
            name = next(names)
            self._check_id(name, scope)
            spec = self.reader.node(name, {}, scope, tensor)
            scope.add(spec, tensor)
            layouts[name] = self.seen.layout(spec)
            self.inner.append(spec)
        return True

    def _expand(self, value: object, nodes: dict[str, Any], scope: NodeScope) -> list[str]:
        if value is None:
            return list(nodes)
        items = [value] if isinstance(value, str) else as_list(value, "expand")
        for i, id in enumerate(items):
            if id.__class__ is not str or id not in scope:
                raise scope.missing(at(i, as_id, id, "an id in expand"), "tensor").below(i)
        return list(items)

    def _uncomputed(self, value: object, expand: list[str]) -> list[str]:
        items = [] if value is None else [value] if isinstance(value, str) else as_list(value, "uncomputed")
        known = set(expand)
        for i, id in enumerate(items):
            if at(i, as_id, id, "an id in uncomputed") not in known:
                raise Mistake(f"{quoted(id)} is not in expand", "only what expand names can be left uncomputed", i)
        return list(items)

    def _steps(self, value: object, graphs: dict[str, GraphSpec]) -> list[Step]:
        kinds = self.release.steps
        if value is None:
            return default_steps(graphs, kinds)
        own = read_ggml(self.top.get("ggml")).steps == kinds
        reader = StepReader(graphs, self.outer.specs, self.document.folder, kinds if own else ALL_GRAPH_STEPS)
        return reader.read(value) if own else translated(reader.read(value), kinds)


def _check_count(top: dict[str, Any]) -> None:
    """Refuse too many tensors and nodes before reading any of them."""
    count = 0
    for part, below in (("contexts", "tensors"), ("graphs", "nodes")):
        within = top.get(part)
        for name, one in within.items() if isinstance(within, dict) else ():
            entries = one.get(below) if isinstance(one, dict) else None
            count += len(entries) if isinstance(entries, dict) else 0
            if count > MAX_TENSORS:
                message = f"there are more than {MAX_TENSORS} tensors"
                raise Mistake(message, "", part, name, below, on_key=True)


def _title(value: object) -> str:
    title = "" if value is None else as_text(value, "name")
    if len(title) > MAX_NAME_LENGTH:
        raise Mistake(f"name has {len(title)} characters", f"at most {MAX_NAME_LENGTH}")
    check_printable(title, "name")
    return title


def _inner_nodes(last: Tensor) -> list[Tensor]:
    """The nodes without an id that `last` hangs on, sources before those that use them."""
    found: list[Tensor] = []
    for t in last.src:
        if t is not None and t is not last and not t.id:
            found += [inner for inner in (*_inner_nodes(t), t) if inner not in found]
    return found
