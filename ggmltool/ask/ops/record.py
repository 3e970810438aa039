"""Every op, and every function of UNARY and GLU: how it is written, which devices run it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from msgspec import UNSET, UnsetType

from ggmltool.data import load as load_data
from ggmltool.ggml.device import RULE, YES
from ggmltool.ggml.devices.profile import make_buft, make_device
from ggmltool.ggml.op import FIRST_GLU_KEY, FIRST_UNARY_KEY, IS_VIEW_OP, GluOp, Op, UnaryOp
from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.registry import COMPOSITES, CONSTRUCTORS, KERNELS, SELF, Constructor, Param, since_of
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.ggml.tensor import dims
from ggmltool.scenario.errors import did_you_mean, quoted
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.nodes.nodes import signature
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.text.yaml import compose_yaml
from ggmltool.scenario.versions import lacks
from ggmltool.show.document import ReleaseDocument, Row, document_of
from ggmltool.state.errors import InspectError

Support = Literal["yes", "no", "some"]
"""Whether a device runs an op: always, never, or by a condition on its tensors."""

REFERENCE_PROFILES = ("CPU", "CUDA", "Metal", "Vulkan", "BLAS", "ROCm", "SYCL", "OpenCL", "CANN")

RESULT_OF: dict[Op, str] = {
    Op.CPY: "b",
    Op.SET_ROWS: "a",
    Op.CLAMP: "a",
    Op.OPT_STEP_ADAMW: "a",
    Op.OPT_STEP_SGD: "a",
}
"""The ops that compute into the memory of a source: which one."""

CHECKED = "checked_ops.toml"
"""How many calls of each op the tests compare with ggml's CPU backend, by its name."""

_VARIANTS = ("_swapped", "_split")


@dataclass(frozen=True, slots=True)
class OpFacts:
    """An op (`function_of` None) or a function of UNARY or GLU.

    `number` is ggml's in its own enumeration, `symbol` what ggml_op_symbol gives ("" for a function). `constructors`
    are the ways to build it, grouped with their other names in `other_names`. `result_of` names the source that the
    result is a view of, though it is computed (cpy), `can_inplace` is ggml_op_can_inplace, `computes` whether there is
    a kernel, `cases` how many calls of it the tests compare with ggml's own CPU backend.
    """

    number: int
    name: str
    function_of: Op | None
    symbol: str
    constructors: tuple[Constructor, ...]
    other_names: tuple[tuple[str, ...], ...]
    is_view_op: bool
    result_of: str
    can_inplace: bool
    computes: bool
    cases: int
    supports: tuple[tuple[str, Support], ...]

    @property
    def n_sources(self) -> tuple[int, int]:
        """The fewest and the most slots of a node that hold a tensor."""
        counts = []
        for c in self.constructors:
            required = (*c.sources[: c.n_required_sources], SELF)
            counts.append(
                (sum(s in required for s in c.slots.split()), len(c.slots.split()))
                if c.slots
                else (c.n_required_sources, c.n_most_sources)
            )
        return min((low for low, _ in counts), default=0), max((high for _, high in counts), default=0)


@cache
def op_facts(release: Release = DEFAULT) -> tuple[OpFacts, ...]:
    """All that a release has, by op key: the ops, then the functions of UNARY, then those of GLU."""
    load()
    builders: dict[int, dict[object, list[Constructor]]] = {}
    for c in CONSTRUCTORS.values():
        if not lacks(release, c.since):
            builders.setdefault(_key_of(c), {}).setdefault(c.build, []).append(c)
    tables = []
    for name in REFERENCE_PROFILES:
        profile = profiles_of(release)[name]
        tables.append((name, make_device(profile, name, make_buft(profile, name, name)).table))
    cases = load_data(CHECKED, dict[str, int])
    facts = []
    keys: list[tuple[Op, UnaryOp | GluOp | None]] = [(op, None) for op in Op]
    keys += [*((Op.UNARY, u) for u in UnaryOp), *((Op.GLU, g) for g in GluOp)]
    for key, (op, function) in enumerate(keys):
        member = op if function is None else function
        own_name = member.name.lower()
        if lacks(release, since_of(own_name)):
            continue
        groups = [sorted(group, key=lambda c: c.name != own_name) for group in builders.get(key, {}).values()]
        groups.sort(key=lambda group: group[0].name != own_name)
        facts.append(
            OpFacts(
                int(member),
                member.name,
                None if function is None else op,
                Op(op).symbol if function is None else "",
                tuple(group[0] for group in groups),
                tuple(tuple(c.name for c in group[1:]) for group in groups),
                bool(IS_VIEW_OP[op]),
                result_of(op, release),
                op in release.rules.inplace_ops,
                op in KERNELS,
                cases.get(own_name, 0),
                tuple((name, _support(table, key)) for name, table in tables),
            )
        )
    return tuple(facts)


_SUPPORT: dict[int, Support] = {YES: "yes", RULE: "some"}
_FAMILIES: dict[int, range] = {
    Op.UNARY: range(FIRST_UNARY_KEY, FIRST_UNARY_KEY + len(UnaryOp)),
    Op.GLU: range(FIRST_GLU_KEY, FIRST_GLU_KEY + len(GluOp)),
}
"""The functions of an op that is told apart by them: no node is asked about the op as such."""


def _support(table: Sequence[int], key: int) -> Support:
    answers: set[Support] = {_SUPPORT.get(table[k], "no") for k in _FAMILIES.get(key, (key,))}
    return answers.pop() if len(answers) == 1 else "some"


def _key_of(c: Constructor) -> int:
    """The op key that a constructor belongs to: that of a function where it is named after one."""
    name = c.name.upper()
    for variant in _VARIANTS:
        name = name.removesuffix(variant.upper())
    if c.op == Op.UNARY and name in UnaryOp.__members__:
        return FIRST_UNARY_KEY + UnaryOp[name]
    if c.op == Op.GLU and name in GluOp.__members__:
        return FIRST_GLU_KEY + GluOp[name]
    return int(c.op)


def result_of(op: Op, release: Release) -> str:
    """The source that an op computes into the memory of; "" for others."""
    return "" if op == Op.CLAMP and release.ops.clamp_is_new else RESULT_OF.get(op, "")


RESULT = "y"
"""The id of an example's node."""


class ParamInfo(Row):
    """A parameter: its kind, its default as a scenario writes it ("" where it is left out, null where it is required),
    its words with ggml's numbers, and what it means."""

    name: str
    kind: str
    default: str | None
    choices: dict[str, int]
    meaning: str


class FormInfo(Row):
    """A way to write an op: further names, sources of which the first `required` have to be there, the node's slots
    where they are not the sources, parameters; what it `asks` of shapes and types, what it `gives`, and how it is
    `spelled`: `soft_max(a, [mask], scale=1)`, what may be left out in brackets, or with its default."""

    name: str
    also: tuple[str, ...]
    sources: tuple[str, ...]
    required: int
    slots: tuple[str, ...]
    inplace: bool
    params: tuple[ParamInfo, ...]
    text: str
    asks: tuple[str, ...]
    gives: str
    spelled: str


class SourceRange(Row):
    """The fewest and the most."""

    min: int
    max: int


class OpInfo(Row, kw_only=True):
    """An op, or a function of UNARY or GLU (`function_of`): its sources and forms, what it can and who supports it;
    `result_of` is the source whose memory the result always has, `cases` are the calls that the tests compare with
    ggml's own, `example` is a scenario, `result` what that gives; `note` is what else is to be said."""

    number: int
    name: str
    function_of: str
    symbol: str
    sources: SourceRange
    forms: tuple[FormInfo, ...]
    is_view_op: bool
    can_inplace: bool
    computes: bool
    cases: int
    supports: dict[str, str]
    result_of: str
    example: str
    note: str
    result: str | UnsetType = UNSET


class OpList(ReleaseDocument, kw_only=True):
    """`ops --json`: all ops of ggml, then the functions of UNARY and of GLU."""

    view = "ops"
    kind: Literal["ops"] = "ops"
    ops: tuple[OpInfo, ...]


class OneOp(document_of(OpInfo), kw_only=True):  # type: ignore[misc, call-arg]
    """`ops NAME --json`: an op in full."""

    view = "op"
    main_table = ""
    kind: Literal["op"] = "op"


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
        number=facts.number,
        name=facts.name,
        function_of=facts.function_of.name if facts.function_of is not None else "",
        symbol=facts.symbol,
        sources=SourceRange(*facts.n_sources),
        forms=tuple(_form(c, also) for c, also in zip(facts.constructors, facts.other_names, strict=True)),
        is_view_op=facts.is_view_op,
        can_inplace=facts.can_inplace,
        computes=facts.computes,
        cases=facts.cases,
        supports=dict(facts.supports),
        result_of=facts.result_of,
        example=op_example(op) or "",
        note="a tensor that nothing computes, as those of a context" if op == "none" else CONSTRUCTORS[op].note,
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
    nodes = LoadedScenario(load_spec(document)).plan().nodes
    found = next((n for n in nodes if n.id == RESULT and n.op in (info.name, info.function_of)), None)
    return f"{found.type}{dims(found.ne)}" if found is not None else ""


def _form(c: Constructor, also: tuple[str, ...]) -> FormInfo:
    params = []
    for p in c.params:
        kind = _KINDS.get(p.kind.split(" |", 1)[0], "list of integers")
        default = None if p.required else _written(p)
        params.append(ParamInfo(p.name, kind, default, dict(p.choices or {}), c.meaning(p.name)))
    sources = [s if i < c.n_required_sources else f"[{s}]" for i, s in enumerate(c.shown_sources)]
    given = [f"[{p.name}=]" if p.default == "" else f"{p.name}={p.default or ''}" for p in params]
    return FormInfo(
        c.name,
        also,
        c.shown_sources,
        c.n_required_sources,
        tuple(c.slots.split()),
        c.inplace,
        tuple(params),
        inspect.cleandoc(c.build.__doc__ or ""),
        *c.rule,
        f"{c.name}({', '.join([*sources, *given])})",
    )


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
