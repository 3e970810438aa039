"""Parameters of an op's constructor: from what a scenario says to what the constructor takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.ops.registry import Constructor, Param
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted
from ggmltool.scenario.nodes.short_form import Arg, Call
from ggmltool.scenario.values import as_bool, as_float, as_int, as_list, as_type, kind_of

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
    return _int_list(param, value)


def _int_list(param: Param, value: object) -> tuple[int, ...]:
    items = [value] if isinstance(value, int) else as_list(value, param.name)
    out: list[int] = []
    for i, item in enumerate(items):
        try:
            out.append(as_int(item, f"{param.name}[{i}]", 0 if param.name in ("ne", "nb") else INT64_MIN))
        except Mistake as mistake:
            raise mistake.below(i) from None
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
        try:
            out[name] = convert(param, value)
        except Mistake as mistake:
            raise mistake.below(name) from None
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

    def __init__(self, c: Constructor, call: Call, known: Callable[[str], bool], inplace: bool) -> None:
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
