"""Random nodes: for every op a function that picks sources and works out the result's shape by ggml's rules.

Nothing of the engine is used: shapes, strides and parameter words are this module's own reading of ggml.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

TYPES: dict[str, tuple[int, int]] = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "i32": (1, 4),
    "i64": (1, 8),
    "q4_0": (32, 18),
    "q5_1": (32, 24),
    "q8_0": (32, 34),
    "q4_K": (256, 144),
    "q6_K": (256, 210),
    "iq2_xs": (256, 74),
    "mxfp4": (32, 17),
    "i8": (1, 1),
    "i16": (1, 2),
    "f64": (1, 8),
    "q4_1": (32, 20),
    "q5_0": (32, 22),
    "q8_1": (32, 36),
    "q2_K": (256, 84),
    "q3_K": (256, 110),
    "q5_K": (256, 176),
    "q8_K": (256, 292),
    "iq2_xxs": (256, 66),
    "iq2_s": (256, 82),
    "iq3_xxs": (256, 98),
    "iq3_s": (256, 110),
    "iq1_s": (256, 50),
    "iq1_m": (256, 56),
    "iq4_nl": (32, 18),
    "iq4_xs": (256, 136),
    "tq1_0": (256, 54),
    "tq2_0": (256, 66),
    "nvfp4": (64, 36),
    "q1_0": (128, 18),
    "q2_0": (64, 18),
}
"""Elements and bytes of a block."""

UNARY = (
    "abs", "sgn", "neg", "step", "tanh", "elu", "relu", "sigmoid", "gelu", "gelu_quick", "silu", "hardswish",
    "hardsigmoid", "exp", "expm1", "softplus", "gelu_erf", "xielu", "floor", "ceil", "round", "trunc",
)  # fmt: skip
SMOOTH = ("abs", "neg", "tanh", "relu", "sigmoid", "gelu", "silu", "softplus", "hardswish", "gelu_erf")
"""Functions whose value is never far off where their argument is nearly right."""

GLU = ("reglu", "geglu", "swiglu", "swiglu_oai", "geglu_erf", "geglu_quick")

Ne = tuple[int, ...]


def bits(value: float) -> int:
    """The int32 word of a float."""
    return int(struct.unpack("<i", struct.pack("<f", value))[0])


def words64(value: int) -> list[int]:
    """The two int32 words of a 64-bit number."""
    return list(struct.unpack("<2i", struct.pack("<q", value)))


def contiguous(type: str, ne: Ne) -> Ne:
    block, size = TYPES[type]
    nb1 = size * (ne[0] // block)
    return (size, nb1, nb1 * ne[1], nb1 * ne[1] * ne[2])


@dataclass
class T:
    """A tensor: `root` and `offset` where it is a view, `short` whether its id can stand in a short form."""

    id: str
    type: str
    ne: Ne
    nb: Ne
    root: str | None = None
    offset: int = 0
    short: bool = True

    @property
    def is_contiguous(self) -> bool:
        return self.nb == contiguous(self.type, self.ne)

    @property
    def elements(self) -> int:
        return self.ne[0] * self.ne[1] * self.ne[2] * self.ne[3]

    @property
    def quantized(self) -> bool:
        return TYPES[self.type][0] > 1


@dataclass
class Node:
    """A node to be: `words` are its op_params, `short` its short form or None, `named` its parameters by name."""

    op: str
    src: list[T | None]
    type: str
    ne: Ne
    nb: Ne | None = None
    words: list[int] = field(default_factory=list)
    root: str | None = None
    offset: int = 0
    short: str | None = None
    self_source: bool = False


class Maker(Protocol):
    """What the op functions need of the scenario in the making.

    With `values` it is one to be computed: only ops whose results follow smoothly from their sources. `below` limits
    the integers of an input.
    """

    rng: Random
    values: bool

    def pick(self, accept: Callable[[T], bool]) -> T | None: ...
    def input(self, type: str, ne: Ne, below: int = 64) -> T: ...
    def weight(self, type: str, ne: Ne) -> T: ...
    def cache(self, type: str, ne: Ne) -> T: ...
    def parameter(self, ne: Ne) -> T: ...


def floats(t: T) -> bool:
    return t.type == "f32"


def small(t: T) -> bool:
    return t.type == "f32" and 0 < t.elements <= 1 << 16


def overlap(a: T, b: T) -> bool:
    """Whether two tensors may share memory, so that the order of a kernel's loops shows."""
    return (a.root or a.id) == (b.root or b.id)


def call(op: str, *args: T | str | None) -> str | None:
    """The short form, where every source's id can stand in one."""
    parts = []
    for a in args:
        if isinstance(a, T):
            if not a.short:
                return None
            parts.append(a.id)
        else:
            parts.append("null" if a is None else a)
    return f"{op}({', '.join(parts)})"


def like(m: Maker, op: str, a: T, words: list[int] | None = None, *params: str, src: list[T] | None = None) -> Node:
    """A node of the shape of `a`: a fresh tensor, or in place a view of it."""
    sources: list[T | None] = [a, *(src or [])]
    if m.rng.random() < 0.2 and op not in NOT_INPLACE:
        short = call(f"{op}_inplace", *sources, *params)
        return Node(op, sources, a.type, a.ne, a.nb, words or [], a.root or a.id, a.offset, short)
    return Node(op, sources, a.type, a.ne, None, words or [], short=call(op, *sources, *params))


NOT_INPLACE = frozenset(("cont", "silu_back", "rms_norm_back", "rope_back", "leaky_relu", "hardswish", "hardsigmoid"))
"""Ops without an in-place constructor."""


def unary(m: Maker) -> Node | None:
    a = m.pick(lambda t: t.type in ("f32", "f16") and (t.ne[0] == 1 or t.nb[0] == TYPES[t.type][1]))
    if a is None:
        return None
    name = m.rng.choice(SMOOTH if m.values else [n for n in UNARY if n != "xielu"])
    node = like(m, name, a)
    if m.rng.random() < 0.5:
        node.op, node.words = "unary", [UNARY.index(name)]
    return node


def simple(m: Maker) -> Node | None:
    a = m.pick(floats)
    names = ("sin", "cos") if m.values else ("sqr", "sqrt", "log", "sin", "cos")
    return like(m, m.rng.choice(names), a) if a else None


def scale(m: Maker) -> Node | None:
    a = m.pick(lambda t: t.type == "f32" and t.is_contiguous)
    return like(m, "scale", a, [bits(0.5), 0], "s=0.5") if a else None


def cont(m: Maker) -> Node | None:
    a = m.pick(lambda t: not t.quantized or t.is_contiguous)
    if a is None:
        return None
    op = m.rng.choice(("cont", "dup"))
    return Node(op, [a], a.type, a.ne, short=call(op, a))


def binary(m: Maker) -> Node | None:
    a = m.pick(floats)
    if a is None:
        return None

    def repeats(t: T) -> bool:
        return t.type == "f32" and t.elements > 0 and all(x % y == 0 for x, y in zip(a.ne, t.ne, strict=True))

    b = a if m.rng.random() < 0.06 and a.elements else m.pick(repeats)
    if b is None or m.rng.random() < 0.2:
        b = m.weight("f32", (a.ne[0] or 1, 1, 1, 1))
    if a.elements == 0 and b.elements == 0:
        return None
    names = ("add", "sub", "mul", "add") if m.values else ("add", "sub", "mul", "div", "add", "mul")
    return like(m, m.rng.choice(names), a, src=[b])


def norm(m: Maker) -> Node | None:
    a = m.pick(floats)
    if a is None:
        return None
    op = m.rng.choice(("norm", "rms_norm", "rms_norm", "l2_norm"))
    return like(m, op, a, [bits(1e-6)], "eps=1e-6")


def group_norm(m: Maker) -> Node | None:
    a = m.pick(floats)
    return like(m, "group_norm", a, [2, bits(1e-6)], "n_groups=2", "eps=1e-6") if a else None


def back(m: Maker) -> Node | None:
    a = m.pick(small)
    if a is None or m.values:
        return None
    op, words, params = m.rng.choice(
        (("silu_back", [], ()), ("rms_norm_back", [bits(1e-6)], ("eps=1e-6",)), ("soft_max_back", [bits(1.0)], ()))
    )
    b = m.pick(lambda t: t.type == "f32" and t.ne == a.ne) or a
    node = Node(op, [a, b], "f32", a.ne, None, list(words))
    if op != "soft_max_back":
        node.short = call(op, a, b, *params)
    if op == "soft_max_back" and m.rng.random() < 0.3:
        node.words = [bits(1.0), bits(2.0)]
    return node


def soft_max(m: Maker) -> Node | None:
    a = m.pick(lambda t: t.type == "f32" and t.is_contiguous)
    if a is None:
        return None
    if m.rng.random() < 0.4 or not a.elements:
        return like(m, "soft_max", a, [bits(1.0)])
    mask = m.input(m.rng.choice(("f32", "f16")), (a.ne[0], a.ne[1], 1, 1))
    if not mask.is_contiguous:
        return None
    node = like(m, "soft_max", a, [bits(0.125), 0], src=[mask])
    if node.root is not None:
        node.short = call("soft_max_ext_inplace", a, mask, "scale=0.125", "max_bias=0")
    else:
        node.short = call("soft_max_ext", a, mask, "scale=0.125", "max_bias=0")
    if m.rng.random() < 0.2:
        node.src.append(m.weight("f32", (a.ne[2], 1, 1, 1)))
        node.short = None
    return node


def diag_mask(m: Maker) -> Node | None:
    a = m.pick(floats)
    n = m.rng.randrange(4)
    return like(m, m.rng.choice(("diag_mask_inf", "diag_mask_zero")), a, [n], f"n_past={n}") if a else None


def rope(m: Maker) -> Node | None:
    a = m.pick(lambda t: t.type in ("f32", "f16") and t.ne[0] % 2 == 0 and t.ne[0] < 1 << 31 and t.elements > 0)
    if a is None:
        return None
    pos = m.input("i32", (a.ne[2], 1, 1, 1))
    words = [0, a.ne[0], 0, 0, 0, bits(10000.0), bits(1.0), 0, bits(1.0), 0, 0]
    src = [pos]
    if m.rng.random() < 0.4:
        src.append(m.weight("f32", (a.ne[0] // 2, 1, 1, 1)))
    op = "rope" if m.rng.random() < 0.85 else "rope_back"
    node = like(m, op, a, words, src=src)
    node.short = call("rope", a, pos, f"n_dims={a.ne[0]}", "mode=normal") if op == "rope" and len(src) == 1 else None
    if node.short and node.root is not None:
        node.short = node.short.replace("rope(", "rope_inplace(", 1)
    return node


def mul_mat(m: Maker) -> Node | None:
    x = m.pick(lambda t: t.type in ("f32", "f32" if m.values else "f16") and 0 < t.elements <= 1 << 15)
    if x is None or (m.values and (x.nb[0] != 4 or x.nb[0] > x.nb[1])):
        return None

    def fits(t: T) -> bool:
        return (
            t.ne[0] == x.ne[0]
            and t.elements > 0
            and x.ne[2] % t.ne[2] == 0
            and x.ne[3] % t.ne[3] == 0
            and t.nb[0] <= t.nb[1]
            and t.type not in ("i32", "i64")
        )

    w = m.pick(fits) if m.rng.random() < 0.35 else None
    if w is None:
        types = ["f32", "f32", "f16", "bf16"]
        if x.ne[0] % 32 == 0:
            types += ["q8_0", "q4_0"]
        if x.ne[0] % 256 == 0 and not m.values:
            types += ["q4_K", "q6_K", "iq2_xs"]
        w = m.weight(m.rng.choice(types), (x.ne[0], m.rng.choice((8, 16, 32, 64, 40, x.ne[0])), 1, 1))
    if w.nb[0] > w.nb[1]:
        return None
    words = [10] if m.rng.random() < 0.1 else []
    return Node(
        "mul_mat", [w, x], "f32", (w.ne[1], *x.ne[1:]), None, words, short=None if words else call("mul_mat", w, x)
    )


def mul_mat_id(m: Maker) -> Node | None:
    x = m.pick(lambda t: t.type == "f32" and t.ne[3] == 1 and 0 < t.elements <= 1 << 13 and t.ne[0] % 32 == 0)
    if x is None:
        return None
    used = x.ne[1] * m.rng.choice((1, 2)) if x.ne[1] <= 4 else x.ne[1]
    experts = m.weight(m.rng.choice(("f32", "q8_0", "q4_0")), (x.ne[0], m.rng.choice((16, 32)), 4, 1))
    ids = m.input("i32", (used, x.ne[2], 1, 1), 4)
    return Node(
        "mul_mat_id",
        [experts, x, ids],
        "f32",
        (experts.ne[1], used, x.ne[2], 1),
        short=call("mul_mat_id", experts, x, ids),
    )


def add_id(m: Maker) -> Node | None:
    a = m.pick(lambda t: t.type == "f32" and t.ne[3] == 1 and 0 < t.elements <= 1 << 14)
    if a is None:
        return None
    b = m.weight("f32", (a.ne[0], 4, 1, 1))
    ids = m.input("i32", (a.ne[1], a.ne[2], 1, 1), 4)
    return Node("add_id", [a, b, ids], "f32", a.ne)


def out_prod(m: Maker) -> Node | None:
    a = m.pick(lambda t: small(t) and t.nb[0] <= t.nb[1])
    if a is None:
        return None
    b = m.pick(
        lambda t: small(t) and t.ne[1] == a.ne[1] and t.ne[2] % a.ne[2] == 0 and t.ne[3] % a.ne[3] == 0
    ) or m.input("f32", (5, *a.ne[1:]))
    if a.ne[0] * b.elements > 1 << 17:
        return None
    return Node("out_prod", [a, b], "f32", (a.ne[0], b.ne[0], b.ne[2], b.ne[3]), short=call("out_prod", a, b))


def get_rows(m: Maker) -> Node | None:
    a = m.pick(lambda t: t.ne[1] > 0 and t.ne[2] == 1 and t.ne[3] == 1 and t.type != "i64" and t.elements > 0)
    if a is None or m.rng.random() < 0.3:
        a = m.weight(m.rng.choice(("f32", "q8_0", "f16")), (32, 48, 1, 1))
    ids = m.input("i32", (m.rng.choice((1, 3, 33)), 1, 1, 1), a.ne[1])
    type = "i32" if a.type == "i32" else "f32"
    return Node("get_rows", [a, ids], type, (a.ne[0], ids.ne[0], 1, 1), short=call("get_rows", a, ids))


def set_rows(m: Maker) -> Node | None:
    b = m.pick(
        lambda t: t.type == "f32" and t.ne[2] == 1 and t.ne[3] == 1 and t.nb[0] == 4 and 0 < t.elements <= 1 << 14
    )
    if b is None:
        return None
    types = (
        ["f32", "f16"]
        + (["q8_0"] if b.ne[0] % 32 == 0 else [])
        + (["iq2_xs"] if b.ne[0] % 256 == 0 and not m.values else [])
    )
    a = m.cache(m.rng.choice(types), (b.ne[0], 64, 1, 1))
    if m.values and overlap(a, b):
        return None
    ids = m.input(m.rng.choice(("i64", "i32")), (b.ne[1], 1, 1, 1))
    return Node("set_rows", [b, ids, a], a.type, a.ne, a.nb, [], a.root or a.id, a.offset, call("set_rows", a, b, ids))


def cpy(m: Maker) -> Node | None:
    a = m.pick(lambda t: t.type in ("f32", "f16") and 0 < t.elements <= 1 << 14)
    if a is None:
        return None
    b = m.pick(lambda t: t.elements == a.elements and t.type in ("f32", "f16", "bf16") and t.id != a.id)
    if b is None or m.rng.random() < 0.6:
        types = ["f32", "f16"] + (["q8_0"] if a.ne[0] % 32 == 0 else [])
        b = m.cache(m.rng.choice(types), a.ne)
    if m.values and overlap(a, b):
        return None
    return Node("cpy", [a, b], b.type, b.ne, b.nb, [], b.root or b.id, b.offset, call("cpy", a, b))


def cast(m: Maker) -> Node | None:
    a = m.pick(lambda t: t.type in ("f32", "f16", "bf16"))
    if a is None:
        return None
    type = m.rng.choice(["f32", "f16", "bf16"] + (["q8_0", "q4_0"] if a.ne[0] % 32 == 0 else []))
    return Node("cpy", [a], type, a.ne, short=call("cast", a, f"type={type}"), self_source=True)


def reshape(m: Maker) -> Node | None:
    a = m.pick(lambda t: t.is_contiguous and not t.quantized)
    if a is None:
        return None
    n = a.elements
    options = [(n, 1, 1, 1), (1, n, 1, 1), (a.ne[0], a.ne[1] * a.ne[2] * a.ne[3], 1, 1)]
    if n and n % 2 == 0:
        options += [(n // 2, 2, 1, 1), (2, n // 2, 1, 1)]
    if n and n % 8 == 0:
        options += [(n // 8, 2, 4, 1), (8, 1, n // 8, 1), (n // 8, 2, 2, 2)]
    ne = m.rng.choice(options)
    short = call("reshape", a, f"ne=[{', '.join(map(str, ne))}]")
    return Node("reshape", [a], a.type, ne, None, [], a.root or a.id, a.offset, short)


def view(m: Maker) -> Node | None:
    a = m.pick(lambda t: t.nb[0] == TYPES[t.type][1] and t.nb[1] <= t.nb[2] <= t.nb[3] and t.nb[0] <= t.nb[1])
    if a is None:
        return None
    block, size = TYPES[a.type]
    first, rows = 0, a.ne[1]
    if a.ne[1] > 1:
        first = m.rng.randrange(a.ne[1])
        rows = m.rng.randrange(0 if m.rng.random() < 0.05 else 1, a.ne[1] - first + 1)
    n0, skip = a.ne[0], 0
    if block == 1 and a.ne[0] > 2 and m.rng.random() < 0.5:
        skip = m.rng.randrange(a.ne[0] // 2)
        n0 = m.rng.randrange(1, a.ne[0] - skip + 1)
    ne = (n0, rows, *a.ne[2:]) if m.rng.random() < 0.7 else (n0, rows, 1, 1)
    offset = first * a.nb[1] + skip * size
    nb = (size, *a.nb[1:])
    if ne[2:] == (1, 1):
        nb = (size, a.nb[1], a.nb[1] * rows, a.nb[1] * rows)
    short = None
    if ne[2:] == (1, 1):
        short = call("view", a, f"ne=[{ne[0]}, {ne[1]}]", f"nb=[{nb[1]}]", f"offset={offset}")
    return Node("view", [a], a.type, ne, nb, words64(offset), a.root or a.id, a.offset + offset, short)


def permute(m: Maker) -> Node | None:
    a = m.pick(lambda t: max(t.nb) < 1 << 31)
    if a is None:
        return None
    orders = [(0, 2, 1, 3), (0, 1, 3, 2)]
    if not a.quantized:
        orders += [(1, 0, 2, 3), (2, 1, 0, 3), (1, 2, 0, 3), (3, 2, 1, 0)]
    axes = m.rng.choice(orders)
    ne, nb = [0] * 4, [0] * 4
    for i, axis in enumerate(axes):
        ne[axis], nb[axis] = a.ne[i], a.nb[i]
    short = call("permute", a, *map(str, axes))
    return Node("permute", [a], a.type, tuple(ne), tuple(nb), list(axes), a.root or a.id, a.offset, short)


def transpose(m: Maker) -> Node | None:
    a = m.pick(lambda t: not t.quantized)
    if a is None:
        return None
    ne, nb = (a.ne[1], a.ne[0], *a.ne[2:]), (a.nb[1], a.nb[0], *a.nb[2:])
    return Node("transpose", [a], a.type, ne, nb, [], a.root or a.id, a.offset, call("transpose", a))


def concat(m: Maker) -> Node | None:
    a = m.pick(small)
    if a is None:
        return None
    dim = m.rng.randrange(4)
    b = m.pick(lambda t: small(t) and all(t.ne[i] == a.ne[i] for i in range(4) if i != dim)) or a
    ne = tuple(n + b.ne[i] if i == dim else n for i, n in enumerate(a.ne))
    return Node("concat", [a, b], "f32", ne, None, [dim], short=call("concat", a, b, f"dim={dim}"))


def repeat(m: Maker) -> Node | None:
    a = m.pick(lambda t: small(t) and t.elements <= 1 << 12)
    b = a and m.pick(lambda t: small(t) and all(y % x == 0 for x, y in zip(a.ne, t.ne, strict=True)))
    return Node("repeat", [a], "f32", b.ne, short=call("repeat", a, b)) if a and b else None


def reduce(m: Maker) -> Node | None:
    a = m.pick(lambda t: t.type == "f32")
    if a is None:
        return None
    op = m.rng.choice(("sum", "sum_rows", "mean", "cumsum", "mean" if m.values else "argmax"))
    rows = (1, *a.ne[1:])
    if op == "sum":
        return Node(op, [a], "f32", (1, 1, 1, 1), short=call(op, a))
    if op == "cumsum":
        return Node(op, [a], "f32", a.ne, short=call(op, a))
    if op == "argmax":
        return Node(op, [a], "i32", (a.ne[1], 1, 1, 1), short=call(op, a)) if a.ne[2:] == (1, 1) else None
    return Node(op, [a], "f32", rows, short=call(op, a))


def argsort(m: Maker) -> Node | None:
    a = m.pick(lambda t: small(t))
    if a is None or m.values:
        return None
    if m.rng.random() < 0.5:
        order = m.rng.randrange(2)
        return Node("argsort", [a], "i32", a.ne, None, [order], short=call("argsort", a, f"order={order}"))
    k = m.rng.randrange(1, a.ne[0] + 1)
    return Node("top_k", [a], "i32", (k, *a.ne[1:]), short=call("top_k", a, f"k={k}"))


def misc(m: Maker) -> Node | None:
    a = m.pick(small)
    if a is None:
        return None
    kind = m.rng.randrange(6)
    if kind == 0:
        words = [bits(-1.0), bits(1.0)]
        short = call("clamp", a, "min=-1", "max=1", "inplace=true")
        return Node("clamp", [a], "f32", a.ne, a.nb, words, a.root or a.id, a.offset, short)
    if kind == 1 and a.is_contiguous:
        return Node("leaky_relu", [a], "f32", a.ne, None, [bits(0.5)])
    if kind == 2 and a.is_contiguous:
        return Node("fill", [a], "f32", a.ne, None, [bits(2.0)])
    if kind == 3:
        pads = [m.rng.randrange(3) for _ in range(4)]
        ne = tuple(n + p for n, p in zip(a.ne, pads, strict=True))
        words = [0, pads[0], 0, pads[1], 0, pads[2], 0, pads[3], 0]
        return Node("pad", [a], "f32", ne, None, words, short=call("pad", a, *map(str, pads)))
    if kind == 4 and all(n > 2 for n in a.ne[:2]) and a.is_contiguous:
        ne = ((a.ne[0] - 2) // 2 + 1, (a.ne[1] - 2) // 2 + 1, a.ne[2], a.ne[3])
        return Node("pool_2d", [a], "f32", ne, None, [0, 2, 2, 2, 2, 0, 0])
    n = m.rng.randrange(1, 40)
    return Node("arange", [], "f32", (n, 1, 1, 1), None, [0, bits(float(n)), bits(1.0)], short=f"arange(0, {n}, 1)")


def glu(m: Maker) -> Node | None:
    a = m.pick(lambda t: small(t) and t.is_contiguous and t.ne[0] >= 2)
    if a is None:
        return None
    name = m.rng.choice([g for g in GLU if g != "swiglu_oai"])
    index = GLU.index(name)
    op = m.rng.choice((name, "glu"))
    b = m.pick(lambda t: t.type == a.type and t.ne == a.ne and t.is_contiguous) if m.rng.random() < 0.5 else None
    if b is not None:
        return Node(op, [a, b], "f32", a.ne, None, [index, 0], short=call(f"{name}_split", a, b))
    return Node(op, [a], "f32", (a.ne[0] // 2, *a.ne[1:]), None, [index, 0], short=call(name, a))


def flash_attn(m: Maker) -> Node | None:
    q = m.pick(lambda t: small(t) and t.ne[3] == 1 and t.ne[0] % 32 == 0 and t.elements <= 1 << 13)
    if q is None:
        return None
    type = m.rng.choice(("f16", "f32", "q8_0"))
    k, v = m.cache(type, (q.ne[0], 32, 1, 1)), m.cache(type, (q.ne[0], 32, 1, 1))
    mask = m.input("f16", (32, q.ne[1], 1, 1)) if m.rng.random() < 0.6 else None
    if mask is not None and not mask.is_contiguous:
        return None
    src: list[T | None] = [q, k, v] + ([mask] if mask else [])
    if m.rng.random() < 0.3:
        src = [q, k, v, mask, m.weight("f32", (q.ne[2], 1, 1, 1))]
    ne = (v.ne[0], q.ne[2], q.ne[1], 1)
    short = call("flash_attn_ext", q, k, v, mask, "scale=0.125", "max_bias=0", "logit_softcap=0")
    return Node("flash_attn_ext", src, "f32", ne, None, [bits(0.125), 0, 0], short=short if len(src) < 5 else None)


def acc(m: Maker) -> Node | None:
    a = m.pick(lambda t: small(t) and t.is_contiguous)
    b = a and m.pick(lambda t: t.type == "f32" and 0 < t.elements <= a.elements)
    if not a or not b:
        return None
    words = [*(words64(n)[0] for n in a.nb[1:]), 0]
    op = m.rng.choice(("acc", "set"))
    if m.rng.random() < 0.4:
        return Node(op, [a, b], "f32", a.ne, a.nb, [*words, 1], a.root or a.id, a.offset)
    return Node(op, [a, b], "f32", a.ne, None, [*words, 0])


def add1(m: Maker) -> Node | None:
    a = m.pick(lambda t: t.type == "f32" and t.is_contiguous)
    return like(m, "add1", a, src=[m.weight("f32", (1, 1, 1, 1))]) if a else None


Op = Callable[[Maker], Node | None]

OPS: tuple[tuple[Op, int], ...] = (
    (unary, 6), (simple, 4), (scale, 6), (cont, 4), (binary, 16), (norm, 6), (group_norm, 1), (back, 2), (soft_max, 5),
    (diag_mask, 2), (rope, 5), (mul_mat, 16), (mul_mat_id, 4), (add_id, 2), (out_prod, 1), (get_rows, 4), (set_rows, 4),
    (cpy, 5), (cast, 3), (reshape, 6), (view, 7), (permute, 4), (transpose, 3), (concat, 3), (repeat, 2), (reduce, 3),
    (argsort, 2), (misc, 4), (glu, 3), (flash_attn, 3), (acc, 2), (add1, 1),
)  # fmt: skip
"""Every op function with its weight."""
