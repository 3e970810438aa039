"""Nodes in long form: the op's constructor is run, and what the file says explicitly is held against its result."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ggmltool.ggml.dtypes import TYPES, DType
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.op import VIEW_OPS, Op, op_key
from ggmltool.ggml.ops.registry import CONSTRUCTORS, SELF, Constructor, Raw, for_node
from ggmltool.ggml.tensor import MAX_OP_PARAMS, MAX_SRC, Dims, Tensor, contiguous_nb, nbytes_of, op_desc
from ggmltool.scenario.errors import Mistake, quoted
from ggmltool.scenario.nodes.nodes import (
    OPS,
    NodeScope,
    check_function,
    check_required,
    check_sources,
    constructor_of,
    is_inner_nb,
    named_params,
    own_source,
    run,
    signature,
    unknown_param,
    with_shape_params,
)
from ggmltool.scenario.values import (
    INT64_MAX,
    as_bool,
    as_id,
    as_int,
    as_list,
    as_map,
    as_nb,
    as_ne,
    as_text,
    as_type,
    at,
)

KEYS = (
    "type", "ne", "nb", "name", "flags", "data", "op", "src", "op_params", "inplace", "view_src", "view_offs",
    "backend", "at", "in",
)  # fmt: skip
"""The keys of a tensor or node that are no parameters of an op."""

_KEYS = frozenset(KEYS)
_VIEWS_BY_RULE = VIEW_OPS | {Op.CPY, Op.SET_ROWS}

_ELSEWHERE: dict[int, Collection[int]] = {
    Op.CPY: (1,),
    Op.MUL_MAT_ID: range(3, MAX_SRC + 1),
    Op.OPT_STEP_ADAMW: (4,),
    Op.SET_ROWS: (2,),
    Op.SSM_CONV: (4,),
    Op.SSM_SCAN: (6,),
}
"""How many sources nodes of these ops have in other releases, which captured graphs may be of; and the copy of a cast
that ggml_backend_graph_copy makes, which is no source of itself."""


class LongForm:
    """A node in long form on its way to a tensor: what it says explicitly, and the constructor it goes through.

    `slots` tells that `src` has the order of the node's slots, as an op's own name means; the name of a particular
    constructor means the order of its arguments.
    """

    __slots__ = (
        "c", "explicit", "extra", "id", "inplace", "name", "names_type", "nb", "ne", "op", "scope", "slots", "src",
        "type", "value", "words",
    )  # fmt: skip

    def __init__(self, id: str, value: dict[str, Any], scope: NodeScope) -> None:
        self.id = id
        self.value = value
        self.scope = scope
        self.src = self._read_src()
        self.name: str = at("op", as_text, value["op"], "op")
        op = OPS.get(self.name)
        self.c: Constructor | None
        if op is not None:
            self.op = op
            self.c = for_node(op, self.src, id)
            self.slots = True
        else:
            at("op", check_function, self.name, scope.release)
            self.c, inplace = at("op", constructor_of, self.name)
            self.op = self.c.op
            self.slots = id in self.src
            if inplace:
                self.value = {**value, "inplace": True}
        given = self.value.get("inplace")
        self.inplace: bool | None = None if given is None else at("inplace", as_bool, given, "inplace")
        if self.inplace and not (self.c is not None and self.c.inplace):
            raise Mistake(f"{self.name} cannot work in place", "", "inplace", on_key=True)
        given = self.value.get("type")
        found = TYPES.get(given) if isinstance(given, str) else None
        # `type` may be a parameter of the constructor that is no ggml type (`tri`).
        params = self.c.params if self.c is not None and found is None and "type" in value else ()
        self.names_type = any(p.name == "type" and p.kind == "int" for p in params)
        self.type = at("type", as_type, given) if not (found or given is None or self.names_type) else found
        self.ne: Dims | None = at("ne", as_ne, value["ne"]) if value.get("ne") is not None else None
        self.nb: object = value.get("nb")
        self.words = _op_params(value["op_params"]) if "op_params" in value else None
        self.extra: Collection[str] = () if value.keys() <= _KEYS else as_map(value, "a node").keys() - _KEYS
        self.explicit = self.type is not None and self.ne is not None and not self.extra

    def _read_src(self) -> list[str | None]:
        given = self.value.get("src")
        if given is None:
            return []
        src: list[str | None] = [given] if isinstance(given, str) else at("src", as_list, given, "src")
        for i, s in enumerate(src):
            if s is not None and s.__class__ is not str:
                at("src", at, i, as_id, s, f"src[{i}]")
            if s is not None and s not in self.scope and s != self.id:
                raise self.scope.missing(s, "source").below("src", i)
        while len(src) > MAX_SRC and src[-1] is None:
            src = src[:-1]
        if len(src) > MAX_SRC:
            raise Mistake(f"a node has at most {MAX_SRC} sources, not {len(src)}", "", "src")
        return src

    def build(self) -> Tensor:
        """The tensor. Raises Mistake, or GgmlError if ggml asserts."""
        c, params = self._params()
        result: Tensor | None = None
        if c is not None and params is not None:
            try:
                result = self._with_rule(c, params)
            except (GgmlError, Mistake):
                if not self.scope.described:
                    raise
            # A node of a described graph is taken as it is written where its rule would make it a view.
            if self.scope.described and result is not None and self.op not in _VIEWS_BY_RULE:
                result = result if result.view_src is None or self.value.get("view_src") is not None else None
        if result is None:
            self._check_sources()
            result = self._as_written()
        self._compare(result)
        return result

    def _params(self) -> tuple[Constructor | None, dict[str, Any] | None]:
        """The constructor and its parameters, from names or from raw words; None if there is no rule to apply."""
        c = self.c
        if c is None:
            if self.extra:
                name = min(self.extra)
                message = f"{self.name} has no rule here, so no parameter {quoted(name)}"
                raise Mistake(message, "give op_params, type and ne", name, on_key=True)
            return None, None
        if self.explicit and self.op == Op.VIEW and self.value.get("view_src") is not None:
            return None, None
        if self.words is not None or (self.explicit and self.nb is not None):
            return c, self._raw_params(c, self.words or ())
        try:
            return self._named_params(c)
        except Mistake:
            if not self.explicit:
                raise
            return c, self._raw_params(c, ())

    def _raw_params(self, c: Constructor, words: tuple[int, ...]) -> dict[str, Any] | None:
        """The parameters behind the words of a captured node; None if they cannot be told."""
        if self.extra:
            name = min(self.extra)
            if any(p.name == name for p in c.params):
                raise Mistake(f"{name} and op_params are both given", "give one of them", name, on_key=True)
            raise unknown_param(c, name)
        if c.unpack is None and not c.pack:
            return None if c.params else {}
        ne: Any = self.ne
        nb: Any = None
        if self.ne is not None:
            first = next((s for s in self.src if s is not None and s != self.id), None)
            type_ = self.type or (self.scope.specs[first].type if first is not None else None)
            nb = _strides(self.nb, type_, self.ne) if type_ is not None else None
        try:
            params = c.read_params(Raw(words, self.type, ne, nb, 0))
        except TypeError:
            raise Mistake(f"{c.name} needs ne: its parameters cannot be told from op_params alone") from None
        if params is not None:
            check_required(c, params)
        return params

    def _named_params(self, c: Constructor) -> tuple[Constructor, dict[str, Any]]:
        """The parameters given by name, and the constructor that takes them: the op's full one, or the named one."""
        keys = {*self.extra, "type"} if self.names_type else self.extra
        given = {name: self.value[name] for name in self.value if name in keys}
        named = CONSTRUCTORS.get(self.name)
        candidates = [c] if named is None or named is c or named.op != c.op or self.id in self.src else [c, named]
        first: Mistake | None = None
        for candidate in candidates:
            try:
                shape = with_shape_params(candidate, self.type, self.value.get("ne"), self.nb)
                params = named_params(candidate, {**given, **shape})
                parent = self.src[0] if self.src else None
                by_view = self.op == Op.VIEW and "offset" not in params and self.value.get("view_offs") is not None
                if by_view and parent is not None and parent in self.scope:
                    _, offs = self._explicit_view(self.scope.view(parent, 0)[0])
                    params["offset"] = offs - self.scope.specs[parent].view_offs
                return candidate, params
            except Mistake as mistake:
                first = first or mistake
        raise first if first is not None else Mistake(f"{quoted(self.name)} cannot be called")

    def _with_rule(self, c: Constructor, params: dict[str, Any]) -> Tensor:
        order = c.call_order(self.src) if self.slots else _trimmed(self.src)
        if self.id in order:
            raise own_source(c.name).below("src", self.src.index(self.id))
        at("src", check_sources, c, order, self.name)
        sources = [self.scope.tensor(s) if s is not None else None for s in order]
        inplace = self.inplace
        if inplace is None:
            inplace = c.inplace and self.value.get("view_src") is not None
        return run(c, self.scope.ctx, sources, params, inplace)

    def _check_sources(self) -> None:
        """Refuse a node with more or fewer sources than its op has in any release. Raises Mistake."""
        c, given = self.c, _trimmed(self.src)
        if c is None or (len(given) in _ELSEWHERE.get(self.op, ()) and None not in given):
            return
        names = c.slots if self.slots and c.slots else c.sources
        needed = [i for i, name in enumerate(names) if name == SELF or name in c.sources[: c.n_required_sources]]
        least, most = needed[-1] + 1 if needed else 0, len(c.slots) if names is c.slots else c.n_most_sources
        if not least <= len(given) <= most:
            count = f"{least}" if least == most else f"{least} to {most}"
            message = f"{self.name} takes {count} source{'s' * (most != 1)}, not {len(given)}"
            raise Mistake(message, f"it is {signature(c)}", "src")
        for i in needed:
            if given[i] is None:
                raise Mistake(f"source {names[i].rstrip('_')} of {self.name} cannot be null", "", "src", i)

    def _as_written(self) -> Tensor:
        """A node that no rule made.

        Its op has none, or its parameters cannot be told from its words, or it is a captured node that this release's
        constructor would refuse, or a captured view, which leaves nothing to a rule.
        """
        type_, ne = self.type, self.ne
        if type_ is None or ne is None:
            if self.id in self.src:
                raise own_source(self.name).below("src", self.src.index(self.id))
            missing = "type" if type_ is None else "ne"
            raise Mistake(f"{self.name} has no rule for its result here", f"give {missing}")
        scope = self.scope
        if self.value.get("view_src") is None:
            result = Tensor(type_, ne)
        else:
            root, offs = self._explicit_view("")
            result = Tensor(type_, ne, view_src=scope.tensor(root), view_offs=offs)
        src = [result if s == self.id else scope.tensor(s) if s is not None else None for s in self.src]
        first = src[0] if src else None
        if self.nb is not None:
            result.set_layout(ne, _strides(self.nb, type_, ne))
        elif result.view_src is not None and first is not None and first.ne == ne and first.type is type_:
            result.set_layout(ne, first.nb)
        result.set_op(self.op, self.words or (), *src)
        if self.op == Op.VIEW:
            self._check_view(result)
        return result

    def _check_view(self, t: Tensor) -> None:
        """A captured view's root and offset against its source and its op_params."""
        parent = self.src[0] if self.src else None
        if parent is None or parent == self.id or t.view_src is None:
            return
        low, high = ((self.words or ()) + (0, 0))[:2]
        root, offs = self.scope.view(parent, (high & 0xFFFFFFFF) << 32 | low & 0xFFFFFFFF)
        if t.view_src.id != root:
            raise self._differs("view_src", quoted(t.view_src.id), quoted(root))
        if self.value.get("view_offs") is None:
            t.view_offs = offs
        elif self.words is not None and t.view_offs != offs:
            raise self._differs("view_offs", t.view_offs, offs)

    def _explicit_view(self, root: str) -> tuple[str, int]:
        """`view_src` as its root and `view_offs` as bytes into that root; `root` where only the offset is given."""
        given, offs = self.value.get("view_src"), self.value.get("view_offs")
        offset = at("view_offs", as_int, offs, "view_offs") if offs is not None else 0
        if given is None:
            return root, offset
        id = at("view_src", as_id, given, "view_src")
        if id not in self.scope:
            raise self.scope.missing(id, "view_src").below("view_src")
        return self.scope.view(id, offset)

    def _compare(self, t: Tensor) -> None:
        """Hold what is explicit against the rule's result."""
        if self.ne is not None and self.ne != t.ne:
            raise self._differs("ne", list(self.ne), list(t.ne))
        if self.type is not None and self.type is not t.type:
            raise self._differs("type", self.type.name, t.type.name)
        if self.nb is not None and not (self.op == Op.VIEW and is_inner_nb(self.value.get("ne"), self.nb)):
            nb = _strides(self.nb, t.type, t.ne)
            if nb != t.nb:
                raise self._differs("nb", list(nb), list(t.nb))
        if self.words is not None and self.words != t.op_params:
            if op_key(t.op, self.words) != t.key and self.name not in OPS:
                other = op_desc(Tensor(t.type, t.ne, op=t.op, op_params=self.words)).lower()
                raise Mistake(f"op is {self.name}, but op_params say {other}", "", "op_params")
            t.set_op(Op(t.op), self.words, *t.src)
        if self.value.get("view_src") is None and self.value.get("view_offs") is None:
            return
        root, offs = self._explicit_view(t.view_src.id if t.view_src is not None else "")
        if t.view_src is None:
            if not root:
                raise Mistake(f"{self.name} makes no view here, so it has no view_offs", "", "view_offs", on_key=True)
            t.view_src, t.view_offs = self.scope.tensor(root), offs
        elif t.view_src.id != root:
            raise self._differs("view_src", quoted(root), quoted(t.view_src.id))
        elif self.value.get("view_offs") is not None and offs != t.view_offs:
            raise self._differs("view_offs", offs, t.view_offs)

    def _differs(self, key: str, given: object, rule: object) -> Mistake:
        return Mistake(f"{key} is {given}, but {self.name} gives {rule}", "leave it out, or correct it", key)


def _trimmed(src: Sequence[str | None]) -> list[str | None]:
    out = list(src)
    while out and out[-1] is None:
        out.pop()
    return out


def _strides(value: object, type: DType, ne: Dims) -> Dims:
    """Explicit strides, or contiguous ones."""
    if value is None:
        return contiguous_nb(type, ne)
    if isinstance(value, list) and len(value) == 4 and all(x.__class__ is int and 0 <= x <= INT64_MAX for x in value):
        nb = (value[0], value[1], value[2], value[3])
        if nbytes_of(type, ne, nb) <= INT64_MAX:
            return nb
    return at("nb", as_nb, value, type, ne)


def _op_params(value: object) -> tuple[int, ...]:
    """Raw words, without trailing zeros."""
    if value is None:
        return ()
    words = at("op_params", as_list, value, "op_params")
    if len(words) > MAX_OP_PARAMS:
        raise Mistake(f"op_params has {len(words)} words", f"at most {MAX_OP_PARAMS}", "op_params")
    out = []
    for i, given in enumerate(words):
        word = at("op_params", at, i, as_int, given, f"op_params[{i}]", -0x80000000, 0xFFFFFFFF)
        out.append(word - 0x100000000 if word > 0x7FFFFFFF else word)  # the same bits as an int32
    while out and out[-1] == 0:
        out.pop()
    return tuple(out)
