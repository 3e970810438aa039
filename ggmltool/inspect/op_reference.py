"""What is known of every op and of every function of UNARY and GLU, from the registry and the device profiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from ggmltool.data import load as load_data
from ggmltool.ggml.device import RULE, YES
from ggmltool.ggml.devices.profile import make_buft, make_device
from ggmltool.ggml.op import FIRST_GLU_KEY, FIRST_UNARY_KEY, IS_VIEW_OP, SYMBOLS, GluOp, Op, UnaryOp
from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.registry import CONSTRUCTORS, KERNELS, SELF, Constructor, since_of
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.scenario.versions import lacks

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
        """The fewest and the most sources a node has."""
        counts = [_source_counts(c) for c in self.constructors] or [(0, 0)]
        return min(low for low, _ in counts), max(high for _, high in counts)


def _source_counts(c: Constructor) -> tuple[int, int]:
    """The fewest and the most slots of a node of this constructor that hold a tensor."""
    if not c.slots:
        return c.n_required_sources, c.n_most_sources
    required = c.sources[: c.n_required_sources]
    return sum(s in required or s == SELF for s in c.slots), len(c.slots)


@cache
def op_facts(release: Release = DEFAULT) -> tuple[OpFacts, ...]:
    """All that a release has, by op key: the ops, then the functions of UNARY, then those of GLU."""
    load()
    builders: dict[int, dict[object, list[Constructor]]] = {}
    for c in CONSTRUCTORS.values():
        if not lacks(release, c.since):
            builders.setdefault(_key_of(c), {}).setdefault(c.build, []).append(c)
    tables = _op_tables(release)
    cases = load_data(CHECKED, dict[str, int])
    facts = []
    for key, (op, function) in enumerate(_keys()):
        member = op if function is None else function
        if lacks(release, since_of(member.name.lower())):
            continue
        groups = [_main_name_first(group, member.name) for group in builders.get(key, {}).values()]
        groups.sort(key=lambda group: group[0].name != member.name.lower())
        facts.append(
            OpFacts(
                int(member),
                member.name,
                None if function is None else op,
                SYMBOLS[op] if function is None else "",
                tuple(group[0] for group in groups),
                tuple(tuple(c.name for c in group[1:]) for group in groups),
                bool(IS_VIEW_OP[op]),
                result_of(op, release),
                op in release.rules.inplace_ops,
                op in KERNELS,
                cases.get(member.name.lower(), 0),
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


def _keys() -> list[tuple[Op, UnaryOp | GluOp | None]]:
    plain: list[tuple[Op, UnaryOp | GluOp | None]] = [(op, None) for op in Op]
    return [*plain, *((Op.UNARY, u) for u in UnaryOp), *((Op.GLU, g) for g in GluOp)]


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


def _main_name_first(group: list[Constructor], op: str) -> list[Constructor]:
    """Names of one constructor, the one that is the op's own first."""
    return sorted(group, key=lambda c: c.name != op.lower())


def result_of(op: Op, release: Release) -> str:
    """The source that an op computes into the memory of; "" for others."""
    return "" if op == Op.CLAMP and release.ops.clamp_is_new else RESULT_OF.get(op, "")


def _op_tables(release: Release) -> list[tuple[str, bytearray]]:
    out = []
    profiles = profiles_of(release)
    for name in REFERENCE_PROFILES:
        profile = profiles[name]
        out.append((name, make_device(profile, name, make_buft(profile, name, name)).table))
    return out
