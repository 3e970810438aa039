"""Tensors without an op, and what tensors and nodes have in common: name, flags, user assignment, data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import KEY_NAMES, op_key
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.ggml.tensor import FLAG_INPUT, FLAG_OUTPUT, FLAGS, Dims, Tensor, contiguous_nb, cut_name, nbytes_of
from ggmltool.scenario.devices.backends import as_backend
from ggmltool.scenario.errors import Mistake, quoted
from ggmltool.scenario.nodes.long_form import KEYS
from ggmltool.scenario.nodes.nodes import NodeScope
from ggmltool.scenario.nodes.short_form import parse_tensor
from ggmltool.scenario.read_data import parse_data
from ggmltool.scenario.spec import ContextSpec, TensorSpec
from ggmltool.scenario.values import (
    as_id,
    as_int,
    as_list,
    as_map,
    as_nb,
    as_ne,
    as_text,
    as_type,
    as_word,
    at,
    check_blocks,
    check_bytes,
    check_keys,
    kind_of,
)

MAX_NAME_LENGTH = 10_000
"""Characters of a name (of which ggml keeps 63 bytes)."""

_KEYS = frozenset(KEYS)
_LEAF_KEYS = tuple(key for key in KEYS if key not in ("op_params", "inplace"))


def check_printable(text: str, what: str) -> None:
    """Raise for control characters: a name is printed in terminals, tables and files."""
    if not text.isprintable():
        for c in text:
            if ord(c) < 32 or 127 <= ord(c) < 160:
                raise Mistake(f"{what} {quoted(text)} has a control character", "names are printable text")


class TensorReader:
    """Reads tensors of a release; `backends` are the names a user assignment can mean, data files lie in `folder`.

    `sizes` are those of the contexts that have one; those in `packing` are in memory in which a tensor may take fewer
    bytes than it has elsewhere. `context` is the one that is being read.
    """

    def __init__(self, backends: Sequence[str], folder: Path | None, release: Release = DEFAULT) -> None:
        self.marks_root = release.rules.output_marks_root
        self.inputs_are_leafs = release.ops.inputs_are_leafs
        self.backends = backends
        self.folder = folder
        self.sizes: dict[str, int] = {}
        self.packing: set[str] = set()
        self.context: ContextSpec | None = None

    def leaf(self, id: str, value: object, scope: NodeScope) -> TensorSpec:
        """A tensor without an op: `f32[4, 3]`, or a map. Raises Mistake."""
        if isinstance(value, str):
            type_, ne = self._short(value)
            return TensorSpec(id, cut_name(id), type_, ne, contiguous_nb(type_, ne))
        if not isinstance(value, dict):
            raise Mistake(f"a tensor must be text or a map, not {kind_of(value)}", "for example f32[4, 3]")
        if not value.keys() <= _KEYS:
            check_keys(as_map(value, "a tensor"), _LEAF_KEYS, "a tensor")
        for key in ("op_params", "inplace"):
            if value.get(key):
                raise Mistake(f"a tensor without op has no {key}", "give its op", key, on_key=True)
        op = value.get("op")
        if op is not None and op != "none":
            raise Mistake("a tensor of a context has no op", "nodes belong to a graph", "op", on_key=True)
        src = value.get("src")
        if src and any(s is not None for s in at("src", as_list, src, "src")):
            raise Mistake("a tensor without op has no sources", "give its op", "src", on_key=True)
        view = self._view(value, scope)
        of = scope.specs[view[0]] if view is not None else None
        given = value.get("type")
        if given is None and of is None:
            raise Mistake("a tensor needs a type", "for example {type: f32, ne: [4, 3]}")
        type_ = of.type if of is not None and given is None else at("type", as_type, given)
        given = value.get("ne")
        if given is None and of is None:
            raise Mistake("a tensor needs ne", "for example {type: f32, ne: [4, 3]}")
        ne = of.ne if of is not None and given is None else at("ne", as_ne, given)
        given = value.get("nb")
        if given is not None:
            nb = at("nb", as_nb, given, type_, ne)
        else:
            nb = of.nb if of is not None and ne == of.ne and type_ is of.type else contiguous_nb(type_, ne)
            check_bytes(type_, ne, nb)
        if of is None and nb == contiguous_nb(type_, ne):
            at("ne", check_blocks, type_, ne)
        root, offs = scope.view(*view) if view is not None else (None, 0)
        return self.finish(id, value, scope, type_, ne, nb, 0, (), (), root, offs)

    def _short(self, text: str) -> tuple[DType, Dims]:
        short = parse_tensor(text)
        try:
            type_ = as_type(short.type)
        except Mistake as mistake:
            mistake.offset = short.offset
            raise
        try:
            ne = as_ne(list(short.extents))
            check_bytes(type_, ne, contiguous_nb(type_, ne))
            check_blocks(type_, ne)
        except Mistake as mistake:
            i = mistake.path[0] if mistake.path else None
            mistake.offset = short.offsets[i] if isinstance(i, int) else short.bracket
            mistake.path = ()
            raise
        return type_, ne

    def _view(self, value: dict[str, Any], scope: NodeScope) -> tuple[str, int] | None:
        """`view_src` and `view_offs` of a tensor without op, as they are written."""
        given, offs = value.get("view_src"), value.get("view_offs")
        if given is None:
            if offs:
                raise Mistake("view_offs needs a view_src", "", "view_offs", on_key=True)
            return None
        id = at("view_src", as_id, given, "view_src")
        if id not in scope:
            raise scope.missing(id, "view_src").below("view_src")
        return id, at("view_offs", as_int, offs, "view_offs") if offs is not None else 0

    def node(self, id: str, value: dict[str, Any], scope: NodeScope, t: Tensor) -> TensorSpec:
        """The spec of what an op's constructor made."""
        t.id = id
        src = tuple([s.id if s is not None else None for s in t.src])
        root = t.view_src.id if t.view_src is not None else None
        return self.finish(id, value, scope, t.type, t.ne, t.nb, t.op, t.op_params, src, root, t.view_offs)

    def finish(
        self,
        id: str,
        value: dict[str, Any],
        scope: NodeScope,
        type: DType,
        ne: Dims,
        nb: Dims,
        op: int,
        op_params: tuple[int, ...],
        src: tuple[str | None, ...],
        root: str | None,
        offs: int,
    ) -> TensorSpec:
        """The spec of a tensor whose shape is known, with what its map says besides."""
        get = value.get
        given = get("name")
        name = cut_name(id if given is None else at("name", _name, given))
        given = get("flags")
        words = () if given is None else [given] if isinstance(given, str) else at("flags", as_list, given, "flags")
        flags = 0
        for i, word in enumerate(words):
            flags |= FLAGS[at("flags", at, i, as_word, word, "a flag", FLAGS)]
        if flags & FLAG_INPUT and op and self.inputs_are_leafs and not scope.described:
            raise GgmlAssert(
                "ggml_set_input",
                "tensor->op == GGML_OP_NONE",
                f"{id} is a result of {KEY_NAMES[op_key(op, op_params)]}; only a tensor without an op can be an input",
            )
        if flags & FLAG_OUTPUT and root is not None and get("view_src") is None and self.marks_root:
            # `output` on a view that its rule made is ggml_set_output, which marks the root too.
            scope.specs[root].flags |= FLAG_OUTPUT
        backend = get("backend")
        if backend is not None:
            backend = at("backend", as_backend, backend, "backend", self.backends)
        given = get("data")
        if given is not None and op:
            what = "write others with the step {set: ...}"
            raise Mistake("a node's values are what its op computes", what, "data", on_key=True)
        data = None if given is None else at("data", parse_data, given, type, ne, self.folder, nb)
        spec = TensorSpec(id, name, type, ne, nb, op, op_params, flags, src, root, offs, backend, data)
        if "at" in value or "in" in value:
            self._read_place(spec, value)
        return spec

    def _read_place(self, spec: TensorSpec, value: dict[str, Any]) -> None:
        """Where a tensor lies that the program placed itself. Raises Mistake where there is no such place."""
        given, within = value.get("at"), value.get("in")
        if given is None and within is None:
            return
        spec.at = 0 if given is None else at("at", as_int, given, "at")
        if within is not None:
            spec.within = at("in", as_id, within, "in")
            if self.context is not None or spec.within not in self.sizes:
                raise Mistake(f"no node can lie in {quoted(spec.within)}", "name a context that has a size", "in")
        elif self.context is None:
            raise Mistake("at needs a context", "say with `in` which one", "at", on_key=True)
        name = spec.within or (self.context.name if self.context is not None else "")
        size = self.sizes.get(name)
        if spec.view_src is not None:
            raise Mistake(
                f"{quoted(spec.id)} lies where its view_src lies", "leave out its own place", "at", on_key=True
            )
        if size is None:
            raise Mistake("at needs the size of the context", "give its size", "at", on_key=True)
        if spec.at + (0 if name in self.packing else nbytes_of(spec.type, spec.ne, spec.nb)) > size:
            raise Mistake(f"{quoted(spec.id)} does not end within the {size} bytes of its context", "", "at")


def _name(given: object) -> str:
    name = as_text(given, "name", "surrogateescape")
    if len(name) > MAX_NAME_LENGTH:
        raise Mistake(f"name has {len(name)} characters", "ggml keeps 63 bytes of it")
    check_printable(name, "name")
    return name
