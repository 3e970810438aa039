"""The order in which Metal of ggml 0.26 runs a split, and what has to stay in memory meanwhile.

From llama.cpp b11549, ggml/src/ggml-metal: ggml_backend_metal_graph_optimize (ggml-metal.cpp), ggml_graph_optimize
(ggml-metal-common.cpp).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from ggmltool.ggml.buffer import USAGE_WEIGHTS
from ggmltool.ggml.device import Keep, UseCount
from ggmltool.ggml.devices.combinators import FLOATS, types
from ggmltool.ggml.devices.conditions import optional, source, word
from ggmltool.ggml.devices.metal import KernelGroup, memory_of, reorder
from ggmltool.ggml.devices.op_rules import ZERO
from ggmltool.ggml.dtypes import F32, I32
from ggmltool.ggml.op import EMPTY_OPS, Op, UnaryOp
from ggmltool.ggml.releases.ggml_0_26.fusing import can_fuse, keep_until
from ggmltool.ggml.tensor import FLAG_OUTPUT, Tensor, are_same_layout, are_same_shape, is_contiguous, is_contiguous_rows


class PatternMatch(NamedTuple):
    """Nodes of a split at `places` that have the ops of a pattern but for its views, which `raw` has too."""

    raw: tuple[Op, ...]
    nodes: Sequence[Tensor]
    places: Sequence[int]
    use_count: UseCount

    @property
    def members(self) -> list[Tensor]:
        return [self.nodes[i] for i in self.places]

    def in_a_row(self) -> list[Tensor]:
        """The nodes from the first on that have the ops of `raw` one after the other; empty where they have not."""
        first = self.places[0]
        row = list(self.nodes[first : first + len(self.raw)])
        return row if tuple(node.op for node in row) == self.raw else []


def norm(match: PatternMatch) -> bool:
    """A norm and its weight, and maybe its bias: rows as long as those of the norm."""
    members = match.members
    for before, node in pairwise(members):
        other = source(node, 1)
        if node.src[0] is not before or other.ne[0] != members[0].ne[0]:
            return False
        if not is_contiguous_rows(other) or node.type is not F32:
            return False
    return True


def scaled_norm(match: PatternMatch) -> bool:
    """A norm and a factor."""
    before, scale = match.members
    return scale.src[0] is before and optional(scale, 1) is None and scale.type is F32


def sums(match: PatternMatch) -> bool:
    """Additions to one sum, of what is laid out alike."""
    members = match.members
    for before, add in pairwise(members):
        if add.src[0] is not before or not are_same_layout(source(add, 1), source(before, 1)):
            return False
    return True


def silu_of_convolution(match: PatternMatch) -> bool:
    """SSM_CONV and the SILU of it."""
    conv, silu = match.members
    if silu.src[0] is not conv or optional(silu, 1) is not None or word(silu, 0) != UnaryOp.SILU:
        return False
    return conv.type is F32 and silu.type is F32 and is_contiguous_rows(silu)


def snake(match: PatternMatch) -> bool:
    """x + sin(a * x)² * b, with one a and one b for each column of a matrix x."""
    product, sine, square, scaled, add = match.members
    first, second = source(product, 0), source(product, 1)
    x, a = (first, second) if are_same_shape(product, first) else (second, first)
    b = source(scaled, 1 if scaled.src[0] is square else 0)
    added = source(add, 1 if add.src[0] is scaled else 0)
    if x.type not in FLOATS or a.type is not F32 or b.type is not F32:
        return False
    if any(t.type is not x.type for t in (product, sine, square, scaled, add)):
        return False
    if not are_same_shape(a, b) or a.ne[0] != 1 or a.ne[1] != x.ne[1]:
        return False
    operands = (x, add, a, b)
    return added is x and all(t.ne[2:] == (1, 1) and is_contiguous(t) for t in operands)


def kept_states(match: PatternMatch) -> bool:
    """GATED_DELTA_NET, and a copy of the states behind its result into a cache."""
    net, copy = match.members
    if net.type is not F32 or net.flags & FLAG_OUTPUT or copy.flags & FLAG_OUTPUT:
        return False
    states, cache = source(copy, 0), source(copy, 1)
    size, heads, tokens, sequences = source(net, 2).ne
    behind = F32.row_size(size * heads * tokens * sequences)
    if states.op != Op.VIEW or states.view_src is not net or states.view_offs != behind or not is_contiguous(states):
        return False
    state = size * size * heads
    written = (state, sequences, min(tokens, word(net, 0)), 1)
    return cache.type is F32 and cache.ne == written and cache.nb[:2] == (F32.type_size, F32.row_size(state))


_MAX_EXPERTS = 1024
_ONE = 0x3F800000
"""The word of 1.0."""

_WITH_SUM = (10, 11)
_WITH_SCALE = (6, 11)
"""How many nodes a choice of experts has with the sum of the weights, and with a factor."""


def choice_of_experts(match: PatternMatch) -> bool:
    """The softmax of the experts' logits, the best of them, and their weights, which may be normalized and scaled."""
    row = match.in_a_row()
    # The nodes of a match, with a reshape behind a quotient, must be all that compute something in a row.
    if not row or match.places[-1] + (row[-1].op == Op.RESHAPE) - match.places[0] + 1 != len(row):
        return False
    probs, shaped, order, ids, weights = row[:5]
    out, logits = row[-1], source(probs, 0)
    if word(probs, 0) != _ONE or word(probs, 1) not in ZERO or optional(probs, 1) or optional(probs, 2):
        return False
    if logits.type is not F32 or probs.type is not F32 or out.type is not F32 or ids.type is not I32:
        return False
    if not _fits_choice(logits, ids, out) or not is_contiguous(logits) or not is_contiguous(out):
        return False
    if shaped.src[0] is not probs or order.src[0] is not probs or ids.src[0] is not order:
        return False
    if weights.src[0] is not shaped or weights.src[1] is not ids or not _goes_on(row):
        return False
    return can_fuse(row, (ids, out), match.use_count)


def _fits_choice(logits: Tensor, ids: Tensor, out: Tensor) -> bool:
    experts, tokens, used = logits.ne[0], logits.ne[1], ids.ne[0]
    if not 0 < used <= experts <= _MAX_EXPERTS or logits.ne[2:] != (1, 1):
        return False
    if ids.ne[1:] != (tokens, 1, 1) or ids.nb[:2] != (I32.type_size, I32.type_size * experts):
        return False
    return out.ne == (1, used, tokens, 1)


def _goes_on(row: list[Tensor]) -> bool:
    """Whether what follows the weights of a choice is their quotient by their sum, and a factor."""
    last = row[4]
    if len(row) in _WITH_SUM:
        flat, total, clamped, quotient, shaped = row[5:10]
        if flat.src[0] is not last or total.src[0] is not flat or clamped.src[0] is not total:
            return False
        if quotient.src[0] is not flat or quotient.src[1] is not clamped or shaped.src[0] is not quotient:
            return False
        last = shaped
    return len(row) not in _WITH_SCALE or row[-1].src[0] is last


def weighted_sum(match: PatternMatch) -> bool:
    """The products of the experts' results and their weights, a view of each expert's, and their sum."""
    row = match.in_a_row()
    used = len(match.raw) // 2
    if not row or match.places[-1] != match.places[0] + len(row) - 1:
        return False
    product, views, adds = row[0], row[1 : used + 1], row[used + 1 :]
    experts, weights, out = source(product, 0), source(product, 1), row[-1]
    if any(t.type is not F32 for t in (product, experts, weights, out)):
        return False
    width, _, tokens, _ = experts.ne
    if width <= 0 or experts.ne != (width, used, tokens, 1) or weights.ne != (1, used, tokens, 1):
        return False
    if out.ne != (width, tokens, 1, 1) or not all(map(is_contiguous, (experts, weights, out))):
        return False
    for i, view in enumerate(views):
        if view.view_src is not product or view.src[0] is not product or view.view_offs != i * product.nb[1]:
            return False
        if view.ne[:2] != (width, tokens) or view.nb[1] != product.nb[2]:
            return False
    added = zip([views[0], *adds], views[1:], adds, strict=False)
    return all(add.src[:2] == [left, right] for left, right, add in added) and can_fuse(row, (out,), match.use_count)


_FEW_ROWS = types(
    "f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q2_K q3_K q4_K q5_K q6_K q1_0 q2_0 mxfp4 iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s "
    "iq1_s iq1_m iq4_nl iq4_xs tq2_0"
)
"""Weights whose products with a few rows have a kernel that can add to them."""


def residual(match: PatternMatch) -> bool:
    """A product and what is added to it, but for a weight."""
    product, add = match.members
    first, second = (source(add, i) for i in range(2))
    if (first is product) == (second is product):
        return False
    other = second if first is product else first
    memory = (other.view_src or other).buffer
    if other.type is not F32 or add.type is not F32 or (memory is not None and memory.usage == USAGE_WEIGHTS):
        return False
    return source(product, 0).type in _FEW_ROWS and source(product, 1).type is F32


MAX_FUSED = 16
"""GGML_METAL_FUSION_MAX: nodes that stand together at most."""


class Pattern(NamedTuple):
    """Ops in a row that one kernel may compute: `raw` with the views between them, `ops` without.

    In a chain each node reads the one before, has its shape, and only the last is used by others; `fits` is what is
    asked besides. What is no chain `fits` alone decides about.
    """

    raw: tuple[Op, ...]
    ops: tuple[Op, ...]
    fits: Callable[[PatternMatch], bool]
    is_chain: bool


def _chain(fits: Callable[[PatternMatch], bool], *ops: Op) -> Pattern:
    return Pattern(ops, ops, fits, True)


def _with_views(fits: Callable[[PatternMatch], bool], *raw: Op) -> Pattern:
    return Pattern(raw, tuple(op for op in raw if op not in EMPTY_OPS), fits, False)


_NORMS = (Op.NORM, Op.RMS_NORM)
_CHOICE = (Op.SOFT_MAX, Op.RESHAPE, Op.ARGSORT, Op.VIEW, Op.GET_ROWS)
_SCALED = (Op.SCALE,)
_NORMALIZED = (Op.RESHAPE, Op.SUM_ROWS, Op.CLAMP, Op.DIV, Op.RESHAPE)


PATTERNS: tuple[Pattern, ...] = (
    *(_chain(norm, op, Op.MUL) for op in _NORMS),
    *(_chain(norm, op, Op.MUL, Op.ADD) for op in _NORMS),
    *(_chain(scaled_norm, op, Op.SCALE) for op in _NORMS),
    *(_chain(sums, *[Op.ADD] * n) for n in range(2, 8)),
    _chain(snake, Op.MUL, Op.SIN, Op.SQR, Op.MUL, Op.ADD),
    _with_views(kept_states, Op.GATED_DELTA_NET, Op.CPY),
    *(_with_views(choice_of_experts, *_CHOICE, *rest) for rest in ((), _SCALED, _NORMALIZED, _NORMALIZED + _SCALED)),
    *(_with_views(weighted_sum, Op.MUL, *[Op.VIEW] * n, *[Op.ADD] * (n - 1)) for n in range(2, 9)),
    _chain(silu_of_convolution, Op.SSM_CONV, Op.UNARY),
    _chain(residual, Op.MUL_MAT, Op.ADD),
)
"""All that Metal fuses; of two patterns of one length that fit the first counts."""


def _by_first(patterns: Iterable[Pattern], length: Callable[[Pattern], int]) -> dict[int, list[Pattern]]:
    """Patterns by their first op, the longest first."""
    out: dict[int, list[Pattern]] = {}
    for pattern in sorted(patterns, key=length, reverse=True):
        out.setdefault(pattern.raw[0], []).append(pattern)
    return out


_BY_OPS = _by_first(PATTERNS, lambda pattern: len(pattern.ops))
_BY_RAW = _by_first(PATTERNS, lambda pattern: len(pattern.raw))


class Fusing:
    """What may be fused among the nodes of a split."""

    def __init__(self, nodes: list[Tensor], use_count: UseCount) -> None:
        self._nodes = nodes
        self._use_count = use_count
        self._ops = [node.op for node in nodes]
        self._computed = [i for i, op in enumerate(self._ops) if op not in EMPTY_OPS]
        """Where the nodes are that compute something."""

        self._place = {i: place for place, i in enumerate(self._computed)}

    def length(self, first: int) -> int:
        """ggml_metal_fusion_max: how many nodes from `first` on stay together, with the views between them.

        Patterns that follow each other count together.
        """
        begin = self._place.get(first)
        if begin is None:
            return 1
        end = begin
        while end < len(self._computed) and (n := self._longest(begin, end)) and end - begin + n <= MAX_FUSED:
            end += n
        return 1 if end == begin else min(MAX_FUSED, self._computed[end - 1] - first + 1)

    def _longest(self, begin: int, at: int) -> int:
        """How many of the computed nodes from place `at` on the longest pattern has that fits there (0: none).

        Only the next 16 from `begin` on are looked at.
        """
        places = self._computed[at : begin + MAX_FUSED]
        if not places:
            return 0
        for pattern in _BY_OPS.get(self._ops[places[0]], ()):
            n = len(pattern.ops)
            if n <= len(places) and all(self._ops[i] == op for i, op in zip(places, pattern.ops, strict=False)):
                match = PatternMatch(pattern.raw, self._nodes, places[:n], self._use_count)
                if (not pattern.is_chain or _is_chain(match.members, self._use_count)) and pattern.fits(match):
                    return n
        return 0


def _is_chain(members: Sequence[Tensor], use_count: UseCount) -> bool:
    follow = all(before in node.src[:2] and are_same_shape(node, before) for before, node in pairwise(members))
    return follow and can_fuse(members, members[-1:], use_count)


def keep_sources(nodes: list[Tensor], keep: Keep) -> None:
    """ggml_metal_fusion_add_alloc_deps: what is read where the ops of a pattern stand in a row, whether or not they fit
    it, is kept until the last of them.
    """
    ops = [node.op for node in nodes]
    i = 0
    while i < len(nodes):
        n = next((len(p.raw) for p in _BY_RAW.get(ops[i], ()) if tuple(ops[i : i + len(p.raw)]) == p.raw), 0)
        if n:
            keep_until(nodes[i : i + n], nodes[i + n - 1], keep)
        i += max(n, 1)


def graph_optimize(nodes: list[Tensor], use_count: UseCount, keep: Keep) -> list[Tensor]:
    """ggml_backend_metal_graph_optimize: nodes that one kernel may compute stay together, views between them too.

    What stands in a row as in a pattern of the kernels keeps its sources until the end of it, as the nodes stood.
    """
    keep_sources(nodes, keep)
    fusing = Fusing(nodes, use_count)
    groups = []
    i = 0
    while i < len(nodes):
        n = fusing.length(i)
        # A group reads what is not of its own, and writes the results of all its nodes.
        members = nodes[i : i + n]
        own = set(map(id, members))
        reads = [memory_of(s) for node in members for s in node.src if s is not None and id(s) not in own]
        groups.append(KernelGroup(members, reads, [memory_of(node) for node in members]))
        i += n
    return reorder(groups)
