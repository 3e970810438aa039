"""An op in full: how it is written, its parameters, where it runs, an example."""

from __future__ import annotations

import inspect
from typing import NamedTuple

from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.composites import COMPOSITES
from ggmltool.ggml.ops.registry import CONSTRUCTORS, Constructor, Param
from ggmltool.ggml.tensor import dims
from ggmltool.inspect.errors import InspectError
from ggmltool.inspect.op_reference import OpFacts, op_facts
from ggmltool.scenario.errors import did_you_mean, quoted
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.params import signature
from ggmltool.scenario.scenario import Scenario
from ggmltool.scenario.text.yaml import compose_yaml

RESULT = "y"
"""The id of an example's node."""


class ParamInfo(NamedTuple):
    """A parameter: its kind in words, its default as a scenario writes it ("": it is left out, None: it is required),
    its words with ggml's numbers."""

    name: str
    kind: str
    default: str | None
    choices: dict[str, int]
    meaning: str


class FormInfo(NamedTuple):
    """A way to write an op. `also` are further names for it, `slots` what the node's slots hold where that is not
    `sources`; `required` of the sources must be there. `asks` is what it asks of
    shapes and types, `gives` type and extents of the result.
    """

    name: str
    also: tuple[str, ...]
    sources: tuple[str, ...]
    required: int
    slots: tuple[str, ...]
    inplace: bool
    params: tuple[ParamInfo, ...]
    text: str
    asks: tuple[str, ...] = ()
    gives: str = ""

    def spelled(self) -> str:
        """`cont(a, [ne=])`, `soft_max(a, [mask], scale=1)`: what may be left out in brackets, or with its default."""
        sources = [s if i < self.required else f"[{s}]" for i, s in enumerate(self.sources)]
        params = [f"[{p.name}=]" if p.default == "" else f"{p.name}={p.default or ''}" for p in self.params]
        return f"{self.name}({', '.join([*sources, *params])})"


class OpInfo(NamedTuple):
    """An op, or a function of UNARY or GLU (`function_of` says which, else "").

    `sources` is (fewest, most), `cases` how many calls the tests compare with ggml's own, `result_of` the source whose
    memory the result always has, `example` a scenario; `note` what else is to be said. `result` is type and extents of
    the example's node ("" if it was not planned).
    """

    number: int
    name: str
    function_of: str
    symbol: str
    sources: tuple[int, int]
    forms: tuple[FormInfo, ...]
    is_view_op: bool
    can_inplace: bool
    computes: bool
    cases: int
    supports: dict[str, str]
    result_of: str
    example: str
    note: str
    result: str = ""


_KINDS = {"int": "integer", "float": "number", "bool": "true or false", "DType": "a type's name"}


_PREFIXES = ("ggml_op_", "ggml_unary_op_", "ggml_glu_op_", "ggml_")


def find_op(name: str) -> OpFacts:
    """The op, function or constructor of this name. Raises InspectError if there is none."""
    asked = name.lower()
    for prefix in _PREFIXES:
        asked = asked.removeprefix(prefix)
    by_name = {facts.name.lower(): facts for facts in op_facts()}
    names = {c.name: f for f in op_facts() for c in f.constructors}
    names |= {other: f for f in op_facts() for group in f.other_names for other in group}
    for key in (asked, asked.removesuffix("_inplace")):
        found = by_name.get(key) or names.get(key)
        if found is not None:
            return found
    if asked in COMPOSITES:
        c = COMPOSITES[asked]
        raise InspectError(f"{asked} is not an op: {signature(c)} builds several nodes, the last of them {c.op.name}.")
    hint = did_you_mean(asked, [*by_name, *names]) or "`ggmltool ops` lists them."
    raise InspectError(f"no op is called {quoted(name)}; {hint}")


def op_info(facts: OpFacts) -> OpInfo:
    """An op with its forms, its parameters and an example, from what the registry knows of it."""
    op = facts.name.lower()
    return OpInfo(
        facts.number,
        facts.name,
        facts.function_of.name if facts.function_of is not None else "",
        facts.symbol,
        facts.n_sources,
        tuple(_form(c, also) for c, also in zip(facts.constructors, facts.other_names, strict=True)),
        facts.is_view_op,
        facts.can_inplace,
        facts.computes,
        facts.cases,
        dict(facts.supports),
        facts.result_of,
        op_example(op) or "",
        "a tensor that nothing computes, as those of a context" if op == "none" else CONSTRUCTORS[op].note,
    )


def op_example(name: str) -> str | None:
    """A whole scenario, as small as can be, with a node of the op, unary or GLU function `name` (lower case), as YAML.

    Of none, which is no node's op, it shows a tensor.
    None for the one op that ggml itself refuses to build (flash_attn_back).
    """
    load()
    example = CONSTRUCTORS["sqr" if name == "none" else name].example
    if not example:
        return None
    *tensors, node = example.split("; ")
    text = ["ggmltool: 1", "backends: [CPU]"]
    if tensors:
        text += ["contexts:", "  inputs:", "    tensors:", *(f"      {line}" for line in tensors)]
    return "\n".join([*text, "graphs:", "  main:", "    nodes:", f"      {RESULT}: {node}", ""])


def example_result(info: OpInfo) -> str:
    """Type and extents of the node of an op's example, as `f32[64, 8, 4]`; "" without a node of that op."""
    document = compose_yaml(info.example) if info.example else None
    if not isinstance(document, dict):
        return ""
    nodes = Scenario(load_spec(document)).plan().nodes
    found = next((n for n in nodes if n.id == RESULT and n.op in (info.name, info.function_of)), None)
    return f"{found.type}{dims(found.ne)}" if found is not None else ""


def _form(c: Constructor, also: tuple[str, ...]) -> FormInfo:
    return FormInfo(
        c.name,
        also,
        c.shown_sources,
        c.n_required_sources,
        c.slots,
        c.inplace,
        tuple(_param(c, p) for p in c.params),
        inspect.cleandoc(c.build.__doc__ or ""),
        *c.rule,
    )


def _param(c: Constructor, p: Param) -> ParamInfo:
    kind = _KINDS.get(p.kind.split(" |", 1)[0], "list of integers")
    return ParamInfo(p.name, kind, None if p.required else _written(p), dict(p.choices or {}), c.meaning(p.name))


def _written(p: Param) -> str:
    """A default as a scenario writes it; a word where the parameter has words."""
    value = p.default
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and p.choices:
        return next((word for word, number in p.choices.items() if number == value), str(value))
    return str(list(value)) if isinstance(value, tuple) else str(value)
