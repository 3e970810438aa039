"""Nodes in short form, and what both forms share: an op's constructor is run on a scratch context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.op import KEY_NAMES, Op
from ggmltool.ggml.ops.composites import COMPOSITES
from ggmltool.ggml.ops.registry import CONSTRUCTORS, Constructor, for_node, since_of
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.ggml.tensor import Tensor
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted
from ggmltool.scenario.nodes.short_form import Call, parse_call
from ggmltool.scenario.params import Binding, signature
from ggmltool.scenario.since import days
from ggmltool.scenario.spec import TensorSpec
from ggmltool.scenario.values import INT64_MAX, shape_text


class Scope:
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
        outer: Scope | None = None,
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
            found = Tensor(
                spec.type,
                spec.ne,
                spec.nb,
                spec.op,
                spec.op_params,
                spec.flags,
                None,
                root,
                spec.view_offs,
                spec.name,
                id,
            )
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


def build_short(id: str, text: str, scope: Scope) -> Tensor:
    """A node in short form, `mul_mat(a, x)`. Raises Mistake, or GgmlError if ggml asserts."""
    call = parse_call(text)
    c, inplace = _constructor_of_call(call, scope)
    binding = _bind(c, call, id, inplace, scope)
    sources: list[Tensor | None] = []
    for name, offset in zip(binding.sources, binding.offsets, strict=True):
        if name is not None and name not in scope:
            missing = own_source(binding.c.name) if name == id else scope.missing(name, "source")
            missing.offset = offset
            raise missing
        sources.append(scope.tensor(name) if name is not None else None)
    check_sources(binding.c, sources, call.name)
    return run(binding.c, scope.ctx, sources, binding.params, binding.inplace)


def _constructor_of_call(call: Call, scope: Scope) -> tuple[Constructor, bool]:
    """The constructor that a call names, and whether it is its `_inplace` twin."""
    name = call.name
    try:
        check_function(name, scope.release)
        return constructor_of(name)
    except Mistake as mistake:
        mistake.offset = call.offset
        raise


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


def _bind(c: Constructor, call: Call, id: str, inplace: bool, scope: Scope) -> Binding:
    """The call's arguments for its constructor, or for the op's full one, which may take more of them."""
    first: Mistake | None = None
    for candidate in _candidates(c):
        try:
            return Binding(candidate, call, lambda word: word in scope or word == id, inplace)
        except Mistake as mistake:
            first = first or mistake
    raise first if first is not None else Mistake(f"{quoted(call.name)} cannot be called")


def _candidates(c: Constructor) -> list[Constructor]:
    full = for_node(c.op, (), object())
    return [c] if full is None or full is c or c.makes_self_edge or c.name not in OPS else [c, full]


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
