"""Nodes in short form; and for both forms parameters of an op's constructor, and running it on a scratch context."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.op import KEY_NAMES, Op
from ggmltool.ggml.ops.registry import COMPOSITES, CONSTRUCTORS, Constructor, Param, for_node, since_of
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.ggml.tensor import Tensor
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted
from ggmltool.scenario.nodes.short_form import Arg, ShortCall, parse_call
from ggmltool.scenario.spec import TensorSpec
from ggmltool.scenario.values import INT64_MAX, as_bool, as_float, as_int, as_list, as_type, at, kind_of, shape_text
from ggmltool.scenario.versions import days

INT64_MIN = -(1 << 63)


def convert(param: Param, value: object) -> object:
    """The value of a parameter. Raises Mistake."""
    if value is None and "None" in param.kind:
        return None
    if param.choices is not None and isinstance(value, str):
        if value in param.choices:
            return param.choices[value]
        hint = did_you_mean(value, param.choices) or f"expected one of {', '.join(param.choices)}"
        raise Mistake(f"{param.name} cannot be {quoted(value)}", hint)
    kind = param.kind.split(" |", 1)[0]
    if kind == "int":
        if isinstance(value, bool):
            return int(value)
        return as_int(value, param.name, INT64_MIN)
    if kind == "float":
        return as_float(value, param.name)
    if kind == "bool":
        return bool(value) if value in (0, 1) and isinstance(value, int) else as_bool(value, param.name)
    if kind == "DType":
        return as_type(value, param.name)
    items = [value] if isinstance(value, int) else as_list(value, param.name)
    low = 0 if param.name in ("ne", "nb") else INT64_MIN
    out = [at(i, as_int, item, f"{param.name}[{i}]", low) for i, item in enumerate(items)]
    if not out and param.name == "ne":
        raise Mistake("ne is empty", "one to four extents")
    if len(out) > 4:
        raise Mistake(f"{param.name} has {len(out)} numbers", "there are four dimensions")
    return tuple(out)


def signature(c: Constructor, name: str = "") -> str:
    """`soft_max_ext(a, mask, sinks, scale=, max_bias=)`: what an op takes, for messages."""
    parts = [*c.shown_sources, *(f"{p.name}=" for p in c.params)]
    return f"{name or c.name}({', '.join(parts)})"


def named_params(c: Constructor, given: dict[str, Any]) -> dict[str, Any]:
    """Parameters given by name. Raises Mistake for an unknown, a wrong or a missing one."""
    params = {p.name: p for p in c.params}
    out: dict[str, Any] = {}
    for name, value in given.items():
        param = params.get(name)
        if param is None:
            raise unknown_param(c, name)
        out[name] = at(name, convert, param, value)
    check_required(c, out)
    return out


def unknown_param(c: Constructor, name: str) -> Mistake:
    names = [p.name for p in c.params]
    hint = did_you_mean(name, names) or f"it is {signature(c)}"
    return Mistake(f"{c.name} has no parameter {quoted(name)}", hint, name, on_key=True)


def check_required(c: Constructor, given: dict[str, Any]) -> None:
    """Raise Mistake where a parameter that has no default is missing."""
    missing = [p.name for p in c.params if p.required and given.get(p.name) is None]
    if missing:
        raise Mistake(f"{c.name} needs {' and '.join(missing)}", f"it is {signature(c)}")


class Binding:
    """The arguments of a short form, sorted into sources and parameters of a constructor.

    `known` tells whether a word is the id of a tensor that can be a source here.
    """

    def __init__(self, c: Constructor, call: ShortCall, known: Callable[[str], bool], inplace: bool) -> None:
        self.c = c
        self.sources: list[str | None] = []
        self.offsets: list[int] = []
        self.params: dict[str, Any] = {}
        self.inplace = inplace
        self._known = known
        self._source_names = [s.rstrip("_") for s in c.sources]
        self._params = {p.name: p for p in c.params}
        named = False
        for arg in call.args:
            if arg.name is not None:
                named = True
                self._named(arg, arg.name)
            elif named:
                raise Mistake("an argument without a name follows one with a name", offset=arg.offset)
            else:
                self._positional(arg)
        check_required(c, self.params)

    def _positional(self, arg: Arg) -> None:
        if not self.params and len(self.sources) < len(self._source_names) and self._is_source(arg):
            self._add_source(len(self.sources), arg)
            return
        for param in self.c.params:
            if param.name not in self.params:
                self._set(param, arg)
                return
        n = len(self._source_names) + len(self._params)
        raise Mistake(f"{self.c.name} takes at most {n} arguments", f"it is {signature(self.c)}", offset=arg.offset)

    def _is_source(self, arg: Arg) -> bool:
        """Whether an argument stands for a source: known ids do, and words that could not be the next parameter."""
        if isinstance(arg.value, list):
            return False
        if arg.quoted or len(self.sources) < self.c.n_required_sources or arg.value == "null" or self._known(arg.value):
            return True
        if not self.c.params:
            return True
        try:
            convert(self.c.params[0], arg.literal())
        except Mistake:
            return True
        return False

    def _add_source(self, i: int, arg: Arg) -> None:
        if isinstance(arg.value, list):
            raise Mistake(f"{self._source_names[i]} must be a tensor, not a list", offset=arg.offset)
        while len(self.sources) <= i:
            self.sources.append(None)
            self.offsets.append(arg.offset)
        self.sources[i] = None if arg.value == "null" and not arg.quoted else arg.value
        self.offsets[i] = arg.offset

    def _named(self, arg: Arg, name: str) -> None:
        if name in self._params:
            if name in self.params:
                raise Mistake(f"{name} is given twice", offset=arg.offset)
            self._set(self._params[name], arg)
        elif name in self._source_names:
            i = self._source_names.index(name)
            if i < len(self.sources) and self.sources[i] is not None:
                raise Mistake(f"{name} is given twice", offset=arg.offset)
            self._add_source(i, arg)
        elif name == "inplace" and self.c.inplace:
            value = arg.literal()
            if not isinstance(value, bool):
                raise Mistake(f"inplace must be true or false, not {kind_of(value)}", offset=arg.offset)
            self.inplace = value
        else:
            names = [*self._params, *self._source_names, *(["inplace"] if self.c.inplace else [])]
            hint = did_you_mean(name, names) or f"it is {signature(self.c)}"
            raise Mistake(f"{self.c.name} has no parameter {quoted(name)}", hint, offset=arg.offset)

    def _set(self, param: Param, arg: Arg) -> None:
        try:
            self.params[param.name] = convert(param, arg.literal())
        except Mistake as mistake:
            mistake.path = ()
            mistake.offset = arg.offset
            raise


def with_shape_params(c: Constructor, type: DType | None, ne: object, nb: object) -> dict[str, Any]:
    """The keys `type`, `ne` and `nb` of a node that are parameters of its constructor too.

    `nb` of a view is either its strides from nb1 on, one fewer than its extents, or all of them as for any tensor.
    """
    names = {p.name: p.kind for p in c.params}
    out: dict[str, Any] = {}
    if type is not None and names.get("type", "").startswith("DType"):
        out["type"] = type.name
    if ne is not None and "ne" in names:
        out["ne"] = ne
    if nb is not None and "nb" in names and isinstance(nb, list | tuple):
        out["nb"] = list(nb) if is_inner_nb(ne, nb) else list(nb)[1:]
    return out


def is_inner_nb(ne: object, nb: object) -> bool:
    """Whether `nb` of a view leaves out nb0, as ggml_view_2d and its family do."""
    return isinstance(nb, list | tuple) and isinstance(ne, list | tuple) and len(nb) == len(ne) - 1


class NodeScope:
    """The tensors that a node can name, as specs, and as scratch tensors for those that a constructor asks for.

    `later` are the ids of all nodes of the graph, to tell a source that comes too late from an unknown one, and
    `elsewhere` the graphs of nodes that belong to other graphs. `described` says that the graph is told as it lies in
    memory (see `captured.is_described`), `release` whose constructors make its nodes.
    """

    __slots__ = ("_tensors", "ctx", "described", "elsewhere", "later", "release", "specs")

    def __init__(
        self,
        ctx: Context,
        later: Mapping[str, object],
        elsewhere: Mapping[str, str] | None = None,
        described: bool = False,
        outer: NodeScope | None = None,
        release: Release = DEFAULT,
    ) -> None:
        self.ctx = ctx
        self.release = release
        self.later = later
        self.elsewhere: Mapping[str, str] = elsewhere if elsewhere is not None else {}
        self.described = described
        self.specs: dict[str, TensorSpec] = dict(outer.specs) if outer is not None else {}
        self._tensors: dict[str, Tensor] = dict(outer._tensors) if outer is not None else {}

    def __contains__(self, id: object) -> bool:
        return id in self.specs

    def add(self, spec: TensorSpec, tensor: Tensor | None = None) -> None:
        """Make a tensor known; `tensor` is what a constructor made of it, if one did."""
        self.specs[spec.id] = spec
        if tensor is not None:
            tensor.id = spec.id
            tensor.name = spec.name
            tensor.flags = spec.flags
            self._tensors[spec.id] = tensor

    def tensor(self, id: str) -> Tensor:
        """The scratch tensor of a known id."""
        found = self._tensors.get(id)
        if found is None:
            spec = self.specs[id]
            root = self.tensor(spec.view_src) if spec.view_src is not None else None
            words, flags, offs = spec.op_params, spec.flags, spec.view_offs
            found = Tensor(spec.type, spec.ne, spec.nb, spec.op, words, flags, None, root, offs, spec.name, id)
            self._tensors[id] = found
        return found

    def view(self, id: str, offset: int) -> tuple[str, int]:
        """The root of a known tensor, and an offset into the tensor as one into the root."""
        spec = self.specs[id]
        return (id, offset) if spec.view_src is None else (spec.view_src, spec.view_offs + offset)

    def missing(self, id: str, what: str) -> Mistake:
        """What is wrong with an id that is not known here."""
        if id in self.later:
            expected = "a node uses tensors and nodes before it, so there are no cycles"
            return Mistake(f"{what} {quoted(id)} comes after this node", expected)
        if id in self.elsewhere:
            return Mistake(f"{what} {quoted(id)} is a node of graph {quoted(self.elsewhere[id])}, not of this one")
        return Mistake(f"{what} {quoted(id)} does not exist", did_you_mean(id, self.specs))


OPS: dict[str, Op] = {op.name.lower(): op for op in Op}


def build_short(id: str, text: str, scope: NodeScope) -> Tensor:
    """A node in short form, `mul_mat(a, x)`. Raises Mistake, or GgmlError if ggml asserts."""
    call = parse_call(text)
    try:
        check_function(call.name, scope.release)
        c, inplace = constructor_of(call.name)
    except Mistake as mistake:
        mistake.offset = call.offset
        raise
    # The op's full constructor may take more arguments.
    full = for_node(c.op, (), object())
    alone = full is None or full is c or c.makes_self_edge or c.name not in OPS
    try:
        binding = Binding(c, call, lambda word: word in scope or word == id, inplace)
    except Mistake as first:
        if alone or full is None:
            raise
        try:
            binding = Binding(full, call, lambda word: word in scope or word == id, inplace)
        except Mistake:
            raise first from None
    sources: list[Tensor | None] = []
    for name, offset in zip(binding.sources, binding.offsets, strict=True):
        if name is not None and name not in scope:
            missing = own_source(binding.c.name) if name == id else scope.missing(name, "source")
            missing.offset = offset
            raise missing
        sources.append(scope.tensor(name) if name is not None else None)
    check_sources(binding.c, sources, call.name)
    return run(binding.c, scope.ctx, sources, binding.params, binding.inplace)


def constructor_of(name: str) -> tuple[Constructor, bool]:
    """The constructor of this name, and whether the name is that of its `_inplace` twin. Raises Mistake."""
    c = CONSTRUCTORS.get(name) or COMPOSITES.get(name)
    if c is not None:
        return c, False
    base = CONSTRUCTORS.get(name.removesuffix("_inplace"))
    if base is not None:
        if base.inplace:
            return base, True
        raise Mistake(f"{base.name} cannot work in place", "leave out _inplace")
    if name in OPS:
        raise Mistake(f"{name} has no short form", "write it as {op: ..., src: [...], type: ..., ne: [...]}")
    until = days().ops_until.get(name)
    if until is not None:
        raise Mistake(f"{name} was an op of ggml until {until}; no version in ggmltool has it")
    raise Mistake(f"{quoted(name)} is not an op", did_you_mean(name, {**OPS, **CONSTRUCTORS, **COMPOSITES}))


def check_function(name: str, release: Release) -> None:
    """Refuse a function for an older op that the release does not have. Raises Mistake."""
    since = since_of(name)
    if since > release.date and name not in KEY_NAMES and since > since_of(KEY_NAMES[constructor_of(name)[0].op]):
        raise Mistake(f"ggml {release.name} has no {name}; available since {since}")


def own_source(name: str) -> Mistake:
    """What is wrong with a node that names itself."""
    return Mistake(f"a node cannot be a source of itself in {name}", "only the node of a cast is: cast(x, type)")


def check_sources(c: Constructor, sources: Sequence[object], name: str) -> None:
    """Raise Mistake for too few or too many sources, or an empty one where there must be one."""
    n, least, most = len(sources), c.n_required_sources, len(c.sources)
    if n < least or n > most:
        count = f"{least}" if least == most else f"{least} to {most}"
        raise Mistake(f"{name} takes {count} source{'s' * (most != 1)}, not {n}", f"it is {signature(c)}")
    for i in range(least):
        if sources[i] is None:
            raise Mistake(f"source {c.sources[i].rstrip('_')} of {name} cannot be null", f"it is {signature(c)}")


def run(
    c: Constructor, ctx: Context, sources: Sequence[Tensor | None], params: dict[str, Any], inplace: bool
) -> Tensor:
    """The constructor's result. Wrong use that it reports with ValueError is a mistake in the file."""
    try:
        result = c.build(ctx, *sources, **params, inplace=True) if inplace else c.build(ctx, *sources, **params)
    except (ValueError, OverflowError, ZeroDivisionError) as e:
        raise Mistake(str(e)) from None
    if min(result.ne) >= 0 and result.nbytes <= INT64_MAX:
        return result
    raise Mistake(f"the result {shape_text(result.type, result.ne)} is not a tensor that any memory can hold")
