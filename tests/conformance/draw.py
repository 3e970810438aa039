"""Random nodes of every op, drawn from what its constructor declares: sources that fit its rule, parameters, a result.

One source is a tensor that is there already, the others are made, or found, so that the rule of the constructor holds.
The engine's constructor makes the node; that it is the one that ggml makes the tests of ops ask (`test_ops.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from math import prod
from random import Random
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import TYPES as DTYPES
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.op import KEY_NAMES, Op, op_key
from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.registry import CONSTRUCTORS, Constructor, since_of
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.ggml.tensor import FLAG_PARAM, Tensor
from tests.conformance.fuzz_nodes import TYPES, Maker, Ne, Node, T
from tests.conformance.shapes import Source, evaluate, holds

load()

SINCE = RELEASES["0.20.2"].date
"""What is younger is not drawn: every real library has what is."""

FLOATS = ("f32", "f16", "bf16")
STORED = tuple(t for t in TYPES if t not in ("i8", "i16", "i32", "i64", "f64"))
READ = tuple(t for t in STORED if t not in ("q8_1", "q8_K"))
WRITTEN = (*FLOATS, "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_K", "q6_K", "iq4_nl", "mxfp4", "nvfp4", "q1_0", "q2_0")
FLAT = tuple(t for t in TYPES if TYPES[t][0] == 1)

GIVEN = (*FLOATS, "q8_0", "q4_0", "i32", "i64")
"""The types of what is computed with: values can be given in them."""

MOST = 1 << 16
"""Elements of what is made, and of what is taken for anything but ops that look at elements once."""

ANCHORS: dict[str, str] = {
    **dict.fromkeys(("mul_mat", "mul_mat_id", "set_rows", "solve_tri", "conv_2d", "conv_2d_dw", "conv_3d"), "b"),
    **dict.fromkeys(("conv_transpose_1d", "conv_transpose_2d", "im2col", "im2col_3d"), "b"),
    **dict.fromkeys(("ssm_scan", "dsv4_hc_pre"), "x"),
    **dict.fromkeys(("rwkv_wkv6", "rwkv_wkv7", "gated_linear_attn"), "k"),
    **dict.fromkeys(("opt_step_adamw", "opt_step_sgd"), "grad"),
    **dict.fromkeys(("count_equal", "add_rel_pos", "get_rel_pos", "timestep_embedding"), ""),
    **dict.fromkeys(("im2col_back", "win_unpart", "dsv4_hc_comb"), ""),
    "cross_entropy_loss_back": "b",
    "dsv4_hc_post": "residual",
    "gated_delta_net": "v",
}
"""The source that is there already, of ops whose first one it is not ("": all are made)."""

TAKES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("unary", "rope", "rope_back"), ("f32", "f16")),
    **dict.fromkeys(("add", "sub", "mul", "div", "sqr", "sqrt", "log", "sin", "cos", "scale", "cpy"), ("f32", *FLOATS)),
    **dict.fromkeys(("concat", "repeat"), ("f32", "f32", *FLAT)),
    **dict.fromkeys(("cont", "dup"), ("f32", "f32", *FLAT, *STORED)),
    **dict.fromkeys(("view", "reshape", "permute", "transpose", "get_rows"), tuple(TYPES)),
    "custom": ("f32", "f16", "i32"),
    "add_cast": ("f16", "bf16", "q8_0"),
}
"""The types of that source where it need not be f32."""

ROLES: dict[str, tuple[str, tuple[str, ...]]] = {
    **dict.fromkeys(("mul_mat.a", "mul_mat_id.as"), ("weight", ("f32", "f32", "f16", "bf16", "q8_0", "q4_0", *READ))),
    "get_rows.a": ("weight", READ),
    "set_rows.a": ("cache", ("f32", "f16", "q8_0", *WRITTEN)),
    "set_rows.c": ("input", ("i32", "i64")),
    "cpy.b": ("cache", ("f32", "f16", "bf16", "q8_0", *STORED)),
    **dict.fromkeys(("flash_attn_ext.k", "flash_attn_ext.v"), ("cache", ("f16", "f16", "f32", "bf16", "q8_0", "q4_0"))),
    "lightning_indexer.k": ("cache", ("f32", "f16", "q8_0", "q4_0")),
    **dict.fromkeys((f"{op}.{name}" for op in ("soft_max", "flash_attn_ext") for name in ("mask", "sinks")), ("", ())),
    **dict.fromkeys(
        (f"conv_{n}.a" for n in ("2d", "3d", "2d_dw", "transpose_1d", "transpose_2d")), ("", ("f32", "f16"))
    ),
    **dict.fromkeys(("im2col.a", "im2col_3d.a", "get_rel_pos.a"), ("", ("f32", "f16"))),
    **dict.fromkeys(("count_equal.a", "count_equal.b"), ("input", ("i32",))),
    **dict.fromkeys(("opt_step_adamw.a", "opt_step_sgd.a"), ("parameter", ())),
    **dict.fromkeys(("ssm_scan.s", "gated_delta_net.state", "rwkv_wkv6.state", "rwkv_wkv7.state"), ("cache", ())),
}
"""Where a source that is made lies, by op and name, and the types that it may have."""

BELOW = {
    "get_rows": "a.ne[1]",
    "set_rows": "a.ne[1]",
    "get_rows_back": "20",
    "mul_mat_id": "as.ne[2]",
    "add_id": "b.ne[1]",
    "ssm_scan": "s.ne[3]",
}
"""What the integers among an op's sources are below."""

ASKS: dict[str, str] = {
    "gated_delta_net": "q.ne[0] = v.ne[0]; v.ne[1] % q.ne[1] = 0; q.ne[2] = v.ne[2]; q.ne[3] = v.ne[3]; "
    "q and k have one shape; g.ne[0] in (1, v.ne[0]); g and v have one shape but for ne[0]; beta.ne[0] = 1; "
    "beta and v have one shape but for ne[0]; state.ne[0] = v.ne[0]; state.ne[1] = v.ne[0]; "
    "state.ne[2] = v.ne[1]; state.ne[3] = v.ne[3]",
    "im2col_3d": "a.ne[3] % IC = 0",
    "col2im_1d": "a is a matrix",
    "opt_step_adamw": "a and grad have one shape; m and grad have one shape; v and grad have one shape; "
    "adamw_params.ne[0] = 7; adamw_params is a vector",
    "opt_step_sgd": "a and grad have one shape; params.ne[0] = 2; params is a vector",
    **dict.fromkeys(("rope", "rope_back"), "a.ne[0] % 4 = 0"),
    "mul_mat_id": "as.ne[2] = 4",
    "set_rows": "a.ne[1] in (16, 64)",
    "win_unpart": "a.ne[1] = w; a.ne[2] = w",
    "ssm_scan": "s.ne[0] = 8; s.ne[3] = x.ne[3]",
    "timestep_embedding": "timesteps is a vector",
    "cross_entropy_loss": "a is a matrix",
    "rwkv_wkv6": "tf.ne[0] = k.ne[0]; tf.ne[1] = k.ne[1]; state.ne[1] in (1, 2); k.ne[2] % state.ne[1] = 0",
    "gated_linear_attn": "state.ne[1] in (1, 2); k.ne[2] % state.ne[1] = 0",
    "rwkv_wkv7": "state.ne[1] in (1, 2); k.ne[2] % state.ne[1] = 0",
    "flash_attn_ext": "k.ne[1] in (32, 64, 250, 256); v.ne[1] = k.ne[1]; v.ne[2] = k.ne[2]; mask.ne[0] = k.ne[1]; "
    "mask.ne[1] >= q.ne[1]",
}
"""What is drawn so besides what the constructors ask: what kernels take for granted, and sizes that are used."""

SAME = "b and a have one shape"
INSIDE = "; ".join(f"a.ne[{i}] >= b.ne[{i}]" for i in range(4))
ASKS_COMPUTED: dict[str, str] = {
    "rwkv_wkv7": "k.ne[0] % 64 = 0",  # the library's vector code makes something else of others
    **dict.fromkeys(("silu_back", "rms_norm_back", "soft_max_back"), SAME),
    **dict.fromkeys(("acc", "set"), INSIDE),
    "ssm_scan": "x.ne[1] % B.ne[1] = 0",
    "rope": "c.ne[0] >= n_dims",  # vision turns as many pairs
}
"""What kernels ask besides."""

CLOSE = ("ssm_conv",)
"""Ops whose kernel reads the rows of a source as if none had a gap behind it; how many threads there are then shows."""

Sources = dict[str, Source | None]
Params = dict[str, Any]


def divisor(r: Random, n: int, most: int = 64) -> int:
    return r.choice([d for d in range(1, min(n, most) + 1) if n % d == 0] or [1])


def _of_reshape(r: Random, t: T, name: str) -> Params:
    """Other extents for as many elements; as many of them as the constructor takes."""
    n = prod(t.ne)
    options = [(n,), (1, n), (t.ne[0], n // t.ne[0] if n else 0)]
    options += [(n // k, *rest) for k, rest in ((2, (2,)), (8, (2, 4)), (8, (2, 2, 2))) if n and n % k == 0]
    most = int(name[-2]) if name.endswith("d") else 4
    ne = r.choice([ne for ne in options if len(ne) <= most])
    return {"ne": ne} | {f"ne{i}": ne[i] if i < len(ne) else 1 for i in range(4)}


def viewed(r: Random, t: T, odd: bool) -> Params:
    """A window of rows and elements of a tensor, or one with odd strides; as the parameters of view."""
    block, size = TYPES[t.type]
    if block == 1 and t.is_contiguous and t.elements >= 16 and odd and r.random() < 0.3:
        ne = (r.randint(1, 3), r.randint(0 if r.random() < 0.1 else 1, 3), r.randint(1, 2), 1)
        nb = tuple(r.choice((0, 1, size, 3, 7, size * 2)) for _ in range(3))
        return {"ne": ne, "nb": nb, "offset": r.randrange(max(1, size * t.elements - size * 3 - 2 * sum(nb)))}
    first = r.randrange(max(t.ne[1], 1))
    rows = r.randrange(0 if r.random() < 0.05 else 1, max(t.ne[1] - first, 0) + 1) if t.ne[1] > 1 else t.ne[1]
    n, skip = t.ne[0], 0
    if t.ne[0] > 2 * block and r.random() < 0.5:
        skip = r.randrange(t.ne[0] // block // 2)
        n = r.randrange(1, t.ne[0] // block - skip + 1) * block
    offset = first * t.nb[1] + skip * size
    if r.random() < 0.7 and t.nb[1] <= t.nb[2] <= t.nb[3]:
        return {"ne": (n, rows, *t.ne[2:]), "nb": t.nb[1:], "offset": offset}
    return {"ne": (n, rows), "nb": (t.nb[1],), "offset": offset}


def _of_view(r: Random, t: T, odd: bool) -> Params:
    out = viewed(r, t, odd)
    ne, nb = (*out["ne"], 1, 1)[:4], (*out["nb"], *t.nb[2:])[:3]
    return out | {f"ne{i}": n for i, n in enumerate(ne)} | {f"nb{i + 1}": n for i, n in enumerate(nb)}


def _of_conv_3d(r: Random, t: T, names: Any) -> Params:
    c = divisor(r, t.ne[3], 3)
    return {"c": c, "n": t.ne[3] // c, "oc": r.randint(1, 3), "IC": c}


def _of_written(r: Random, t: T, names: Any) -> Params:
    return {f"nb{i}": n for i, n in enumerate(t.nb)} | {"offset": 0}


def _of_extents(r: Random, t: T, names: Any) -> Params:
    return {f"ne{i}": n * r.randint(1, 2) for i, n in enumerate(t.ne)} | {
        "ne": tuple(n * r.randint(1, 2) for n in t.ne)
    }


def _of_rope(r: Random, t: T, name: str) -> Params:
    mode = r.choice((0, 2) if name == "rope_custom" else (0, 0, 2, 8, 24, 40))
    n = t.ne[0] // 2 if mode == 24 else r.choice((t.ne[0], t.ne[0], t.ne[0] // 2))
    sections = (max(n // 4, 1), n // 4, 0, 0) if mode & 8 or "multi" in name else ()
    return {"n_dims": n, "mode": mode, "sections": sections}


JOINT: dict[Op, Callable[[Random, T, str], Params]] = {
    Op.CONT: _of_reshape,
    Op.RESHAPE: _of_reshape,
    Op.PERMUTE: lambda r, t, _: {f"axis{i}": axis for i, axis in enumerate(r.sample(range(4), 4))},
    Op.CONV_3D: _of_conv_3d,
    Op.IM2COL_3D: _of_conv_3d,
    Op.ACC: _of_written,
    Op.SET: _of_written,
    Op.REPEAT: _of_extents,
    Op.UPSCALE: lambda r, t, _: {"ne0": r.randint(1, 40), "ne1": r.randint(1, 40), "ne2": t.ne[2], "ne3": t.ne[3]},
    Op.REPEAT_BACK: lambda r, t, _: {"ne": tuple(divisor(r, n) for n in t.ne)},
    Op.GET_ROWS_BACK: lambda r, t, _: {"ne": (t.ne[0], 20, 1, 1)},
    Op.IM2COL_BACK: lambda r, t, _: {"ne": (r.choice((8, 33)), r.randint(1, 8), r.randint(1, 3), r.randint(1, 2))},
    Op.CUSTOM: lambda r, t, _: {"ne": (r.choice((1, 8)), 3), "ne0": 8, "ne1": r.choice((1, 3)), "ne2": 1, "ne3": 1},
    Op.ROLL: lambda r, t, _: {f"shift{i}": r.randrange(1 - n, n) for i, n in enumerate(t.ne)},
    Op.PAD_REFLECT_1D: lambda r, t, _: {f"p{i}": r.randrange(t.ne[0]) for i in range(2)},
    Op.TOP_K: lambda r, t, _: {"k": r.randint(1, t.ne[0])},
    Op.COL2IM_1D: lambda r, t, _: {"oc": divisor(r, t.ne[0], 4), "p0": 0},
    Op.CONV_TRANSPOSE_1D: lambda r, t, _: {"p0": 0, "d0": 1},
    Op.GATED_DELTA_NET: lambda r, t, _: {"K": r.randint(1, t.ne[2])},
    Op.SSM_SCAN: lambda r, t, _: {"K": r.randint(1, t.ne[2])},
    Op.ROPE: _of_rope,
    Op.ROPE_BACK: _of_rope,
    Op.ARANGE: lambda r, t, _: {"start": 0.0, "stop": float(r.randint(1, 40)), "step": 1.0},
    Op.GET_REL_POS: lambda r, t, _: dict.fromkeys(("qh", "kh"), r.randint(1, 4)),
    Op.DSV4_HC_COMB: lambda r, t, _: {"eps": 1e-6, "n_iter": 4},
    Op.SOLVE_TRI: lambda r, t, _: {"left": True, "lower": True, "uni": False},
}
"""Parameters that hang together, or on the source that is there."""

CHOICES: dict[str, tuple[Any, ...]] = {
    "s": (1, 2, 3), "stride": (1, 2, 3), "p": (0, 1, 2), "pad": (0, 1, 2), "lp": (0, 0, 1, 2), "rp": (0, 1, 2),
    "d": (1, 2), "dilation": (1, 2), "k": (1, 2, 3), "dim": (0, 1, 2, 3), "n_groups": (2,), "n_past": (0, 1, 2, 3),
    "eps": (1e-6,), "scale_factor": (1, 2, 3), "max_period": (10000,), "w": (1, 3, 7), "w0": (1, 2, 3), "h0": (1, 2, 3),
    "scale": (0.125, 1.0), "max_bias": (0.0, 0.0, 8.0), "logit_softcap": (0.0, 30.0), "min": (-1.0,), "max": (1.0,),
    "c": (2.0,), "negative_slope": (0.5,), "freq_base": (10000.0, 1e6), "freq_scale": (1.0, 0.5),
    "n_ctx_orig": (0, 4096),
    "ext_factor": (0.0, 1.0), "attn_factor": (1.0,), "beta_fast": (0.0, 32.0), "beta_slow": (0.0, 1.0),
    "prec": (0, 0, 10), "hint": (0,), "prec_b": (0,), "n_kv_max": (0,), "offset": (0,), "gated": (False,),
    "n_tasks": (-1, 1, 4), "alpha_n": (0.8,), "alpha_p": (0.8,), "beta": (0.5,), "alpha": (1.7,), "limit": (7.0,),
    "dst_type": ("f32", "f16"), "type": ("f32", "f16", "bf16"), "b": (0.0, 3.0),
}  # fmt: skip
"""The values of parameters by name, the number at its end left out."""

LONE: dict[str, tuple[Any, ...]] = {
    "scale.s": (0.5,), "mul_mat_id.prec": (0,), "dsv4_hc_pre.scale": (1.0,), "cpy.type": ("f32", "f16", "bf16", "q8_0"),
    "timestep_embedding.dim": (1, 2, 15, 64), "tri.type": (0, 1, 2, 3), "add.type": ("f32",),
    "custom.type": ("f32", "i32"),
}  # fmt: skip
"""The same for the parameter of one op."""


def drawn_params(r: Random, c: Constructor, t: Any, computed: bool, even: bool) -> Params:
    """Values for all parameters; those that may be left out are, half of the time."""
    joint = _of_view(r, t, even) if c.op == Op.VIEW else JOINT[c.op](r, t, c.name) if c.op in JOINT else {}
    op = Op(c.op).name.lower()
    out: Params = {}
    for p in c.params:
        if p.name in joint:
            out[p.name] = joint[p.name]
            continue
        if not p.required and (r.random() < 0.5 or (computed and p.name == "type")):
            continue
        values = LONE.get(f"{op}.{p.name}") or CHOICES.get(p.name) or CHOICES.get(p.name.rstrip("0123456789"))
        if p.choices is not None and values is None:
            values = tuple(n for word, n in p.choices.items() if since_of(word) <= SINCE and word != "xielu")
        if p.kind == "bool" and values is None:
            values = (False, True)
        if values is not None:
            out[p.name] = r.choice(values)
    return out


def first_ne(r: Random) -> Ne:
    return (
        r.choice((1, 2, 4, 8, 8, 31, 32, 33, 64)),
        r.choice((1, 2, 3, 8, 32)),
        r.choice((1, 1, 1, 2)),
        r.choice((1, 1, 1, 2)),
    )


_DIM = re.compile(r"\b(\w+)\.ne\[(\d)\]")


def mend(r: Random, ask: str, names: dict[str, Any], free: set[str]) -> None:
    """Change what is free so that a line of a rule holds, if that is easily done."""
    text = ask.partition(" where ")[0]
    if found := re.fullmatch(r"(\w+)\.type (?:= (\w+)(\.type)?|in \((.*)\))", text):
        x, one, of, many = found.groups()
        if x in free:
            names[x].type = names[one].type if of else one or r.choice(many.split(", "))
        elif of and one in free:
            names[one].type = names[x].type
    elif found := re.fullmatch(r"(\w+) is a (matrix|vector)", text):
        keep = 2 if found[2] == "matrix" else 1
        if found[1] in free:
            names[found[1]].ne = (*names[found[1]].ne[:keep], 1, 1, 1)[:4]
    elif found := re.fullmatch(r"(\w+) has one element", text):
        if found[1] in free:
            names[found[1]].ne = (1, 1, 1, 1)
    elif found := re.fullmatch(r"(\w+) (repeats into|has (?:as many|no more) elements (?:as|than)|and) (\w+).*", text):
        x, how, y = found.groups()
        but = re.search(r"but for ne\[(\w+)\]", text)
        kept = -1 if but is None else int(names.get(but[1], but[1]))
        one, other = (x, y) if x in free and not (how == "and" and y in free) else (y, x)
        if one in free and isinstance(names.get(other), Source):
            ne = names[other].ne
            if how == "repeats into":
                ne = tuple(divisor(r, n) if one == x and r.random() < 0.4 else n for n in ne)
            names[one].ne = tuple(m if i == kept else n for i, (m, n) in enumerate(zip(names[one].ne, ne, strict=True)))
    else:
        _mend_extents(r, text, names, free)


def _mend_extents(r: Random, text: str, names: dict[str, Any], free: set[str]) -> None:
    sides = [side.strip() for side in re.split(r" (?:=|>=) ", text)]
    for x, i in r.sample(found := _DIM.findall(text), len(found)):
        if x not in free:
            continue
        was = names[x].ne
        wanted = [side for side in sides if len(sides) == 2 and f"{x}.ne[{i}]" not in side]
        values = [int(evaluate(side, names)) for side in wanted]
        more = [
            *range(1, 9),
            16,
            24,
            32,
            64,
            128,
            250,
            256,
            *(n for s in names.values() if isinstance(s, Source) for n in s.ne),
        ]
        for n in (*values, *r.sample(more, len(more))):
            names[x].ne = (*was[: int(i)], n, *was[int(i) + 1 :])
            if n > 0 and holds(text, names):
                return
        names[x].ne = was


def asks_of(c: Constructor, params: Params, computed: bool) -> list[str]:
    """What a constructor asks, or that of its op, and what is asked besides."""
    op = Op(c.op).name.lower()
    asks = c.rule.asks or (CONSTRUCTORS[op].rule.asks if op in CONSTRUCTORS and c.op not in (Op.CPY, Op.UNARY) else ())
    times = " * 4" if params.get("mode", 0) & 8 and c.op in (Op.ROPE, Op.ROPE_BACK) else ""
    more = (ASKS.get(op, ""), ASKS_COMPUTED.get(op, "") if computed else "")
    own = [part for text in more for part in text.split("; ") if part]
    return [ask + times if ask == "b.ne[0] = a.ne[2]" else ask for ask in asks] + own


def fit(r: Random, asks: Sequence[str], names: dict[str, Any], free: set[str]) -> bool:
    """Make the lines of a rule hold."""
    try:
        for _ in range(5):
            broken = [ask for ask in asks if not holds(ask, names)]
            if not broken:
                return True
            for ask in broken:
                if not holds(ask, names):
                    mend(r, ask, names, free)
        return all(holds(ask, names) for ask in asks)
    except (ZeroDivisionError, NameError, KeyError, TypeError, AttributeError):
        return False


def _may_hold(ask: str, names: dict[str, Any]) -> bool:
    """Whether a line holds, as far as what is known of it says."""
    try:
        return holds(ask, names)
    except (NameError, KeyError):
        return True


def types_for(ne0: int, types: tuple[str, ...]) -> list[str]:
    return [t for t in types if ne0 % TYPES[t][0] == 0] or ["f32"]


def draw(m: Maker, c: Constructor) -> Node | None:
    """A node of this constructor; None where nothing was found that it takes."""
    r, op = m.rng, Op(c.op).name.lower()
    plain = [name.rstrip("_") for name in c.sources]
    there = ANCHORS.get(op, plain[0] if plain else "")
    takes = TAKES.get(c.name) or TAKES.get(op, ("f32",))
    if m.values:
        takes = tuple(t for t in takes if t in ("f32", "f16"))
    elif m.even and r.random() < 0.05:
        takes = tuple(TYPES)
    fits = [a for a in asks_of(c, {}, m.values) if set(re.findall(r"\b\w+\b", a)) & set(plain) == {there}]

    def accepts(t: T) -> bool:
        if (
            t.type not in takes
            or t.elements > (MOST if op not in _ONCE else 1 << 36)
            or (not t.elements and op not in _ONCE)
        ):
            return False
        if not t.is_contiguous and f"{there} is contiguous" in fits:
            return False
        if op == "permute" and max(t.nb) >= 1 << 31:  # a C int held them until 0.21
            return False
        return all(_may_hold(ask, {there: Source(type=t.type, ne=t.ne)}) for ask in fits)

    anchor = None
    if there and r.random() < (0.4 if len(takes) > 3 else 0.05):
        type, ne = r.choice(takes), first_ne(r)
        block = TYPES[type][0]
        if ne[0] % block or r.random() < 0.2:
            ne = (r.choice((block, 256, 512)), *ne[1:])
        anchor = r.choice((m.weight, m.cache, m.input))(type, ne)
    elif there:
        anchor = m.pick(accepts)
    if there and anchor is None:
        return None
    params = drawn_params(r, c, anchor, m.values, m.even)
    names: dict[str, Any] = {p.name: p.default for p in c.params if not p.required} | params
    n = c.n_required_sources
    if c.shown_sources and c.shown_sources[-1].endswith("…"):
        n, plain = 0, plain[: r.choice((1, 2, 3, 7))]
    for i, name in enumerate(plain):
        is_there = i < n or r.random() < _OPTIONAL.get(op, 0.5) or n == 0
        names[name] = Source(type="f32", ne=first_ne(r)) if is_there else None
    if anchor is not None:
        names[there] = Source(type=anchor.type, ne=anchor.ne)
    free = {name for name in plain if names[name] is not None and (name != there or anchor is None)}
    for name in (name for name in plain if name in free):
        _, types = ROLES.get(f"{op}.{name}", ("", ()))
        if types:
            names[name].type = r.choice([t for t in types if not m.values or t in GIVEN])
        elif op in ("add", "sub", "mul", "div") and anchor is not None:
            names[name].type = r.choice((anchor.type, "f32"))
    of_op = CONSTRUCTORS.get(op) or c
    names = dict.fromkeys((*of_op.sources, *(p.name for p in of_op.params))) | names
    if not fit(r, asks_of(c, names, m.values), names, free):
        return None
    found: list[T | None] = []
    for name in plain:
        if names[name] is None:
            found.append(None)
        elif name not in free:
            found.append(anchor)
        else:
            t = _source(m, op, name, names)
            if t is None:
                return None
            found.append(t)
    while found and found[-1] is None:
        found.pop()
    if m.values and op in CLOSE and any(t is not None and not t.is_contiguous for t in found):
        return None
    inplace = c.inplace and (op == "clamp" or r.random() < 0.2)
    return made(m, c, found, params, inplace)


_ONCE = ("cont", "dup", "view", "reshape", "permute", "transpose", "scale", "add", "mul", "unary", "rms_norm", "norm")
"""Ops that are drawn for tensors of any size, and without elements."""

_OPTIONAL = {"rope": 0.3, "rope_back": 0.3, "flash_attn_ext": 0.6, "set_rows": 1.0}


def _source(m: Maker, op: str, name: str, names: Mapping[str, Any]) -> T | None:
    """A tensor as the rule wants it: one that is there, or a new one."""
    r, s = m.rng, names[name]
    kind, _ = ROLES.get(f"{op}.{name}", ("", ()))
    if s.ne[0] % TYPES[s.type][0]:
        s.type = r.choice(types_for(s.ne[0], FLOATS))
    if prod(s.ne) > MOST:
        return None
    if kind == "parameter":
        return m.parameter(s.ne)
    if not kind and s.type == "f32" and r.random() < 0.5:
        t = m.pick(lambda t: t.type == s.type and t.ne == s.ne)
        if t is not None:
            return t
    if s.type in ("i32", "i64") or kind == "input":
        return m.input(s.type, s.ne, int(evaluate(BELOW.get(op, "64"), dict(names))))
    make: Callable[[str, Ne], T] = r.choice((m.weight, m.weight, m.cache)) if not kind else getattr(m, kind)
    return m.input(s.type, s.ne) if not kind and r.random() < 0.3 else make(s.type, s.ne)


def tensor_of(ctx: Context, t: T, roots: dict[str, Tensor]) -> Tensor:
    """The engine's tensor of one here."""
    out = Tensor(DTYPES[t.type], t.ne, t.nb, id=t.id, flags=FLAG_PARAM)
    if t.root is not None:
        if t.root not in roots:
            roots[t.root] = Tensor(DTYPES["i8"], (t.room, 1, 1, 1), id=t.root)
        out.view_src, out.view_offs = roots[t.root], t.offset
    return out


def made(m: Maker, c: Constructor, src: list[T | None], params: Params, inplace: bool) -> Node | None:
    """The node that the engine's constructor makes of these sources, in both of the forms it may have."""
    ctx, roots = Context(), dict[str, Tensor]()
    tensors = [None if t is None else tensor_of(ctx, t, roots) for t in src]
    by_id = {t.id: t for t in src if t is not None}
    values = {name: DTYPES[v] if isinstance(v, str) else v for name, v in params.items()}
    try:
        result = c.build(ctx, *tensors, **values, **({"inplace": True} if inplace else {}))
    except (GgmlError, ValueError, OverflowError, ZeroDivisionError):
        return None
    if result.ne[0] % result.type.block_size:
        return None
    if min(result.ne) < 0 or (0 in result.ne and all(t is None or t.elements for t in src) and c.op != Op.VIEW):
        return None
    op, words = KEY_NAMES[result.op], list(result.op_params)
    if result.op in (Op.UNARY, Op.GLU) and m.rng.random() < 0.5:
        op, words = KEY_NAMES[op_key(result.op, result.op_params)], words if result.op == Op.GLU else []
    while words and words[-1] == 0:
        words.pop()
    root = None if result.view_src is None else result.view_src.id
    is_twice = root is not None and sum(root in (t.id, t.root) for t in src if t is not None) > 1
    if m.values and result.op in WRITERS and is_twice:
        return None
    return Node(
        op,
        [None if s is None else by_id[s.id] for s in result.src if s is not result],
        result.type.name,
        result.ne,
        result.nb if root is not None or result.nb != Tensor(result.type, result.ne).nb else None,
        words,
        root,
        result.view_offs,
        short_form(c, src, params, inplace),
        result in result.src,
        next((t.room for t in src if t is not None and root in (t.id, t.root)), 0),
    )


def short_form(c: Constructor, src: list[T | None], params: Params, inplace: bool) -> str | None:
    """The node as a call; None where a source's id cannot stand in one."""
    if any(t is not None and not t.short for t in src):
        return None
    twin = inplace and c.inplace_since <= SINCE
    parts = ["null" if t is None else t.id for t in src]
    parts += [f"{name}={_written(value)}" for name, value in params.items()]
    parts += ["inplace=true"] if inplace and not twin else []
    return f"{c.name}{'_inplace' if twin else ''}({', '.join(parts)})"


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


WEIGHTS: dict[str, float] = {
    "add": 7, "mul": 6, "sub": 2, "div": 2, "mul_mat": 16, "mul_mat_id": 4, "scale": 6, "unary": 6, "view": 7,
    "reshape": 6,
    "rope": 4, "soft_max": 5, "cpy": 8, "get_rows": 4, "set_rows": 4, "cont": 3, "rms_norm": 3, "norm": 2, "permute": 4,
    "transpose": 3, "concat": 3, "flash_attn_ext": 3, "glu": 3, "add_id": 2, "repeat": 2, "acc": 1, "set": 1, "dup": 1,
    "ssm_conv": 2, "ssm_scan": 2, "gated_delta_net": 2, "lightning_indexer": 2, "l2_norm": 1, "clamp": 1,
}  # fmt: skip
"""How often an op is drawn; others half as often as one of 1."""

SMOOTH = ("abs", "neg", "tanh", "relu", "sigmoid", "gelu", "silu", "softplus", "hardswish", "gelu_erf")
"""Functions whose value is never far off where their argument is nearly right."""

COMPUTED = frozenset((
    "sin", "cos", "scale", "cont", "dup", "add", "sub", "mul", "norm", "rms_norm", "l2_norm", "group_norm",
    "soft_max", "diag_mask_inf", "diag_mask_zero", "rope", "rope_back", "mul_mat", "mul_mat_id", "add_id",
    "out_prod", "get_rows", "set_rows", "cpy", "reshape", "view", "permute", "transpose", "concat", "repeat", "sum",
    "sum_rows", "mean", "cumsum", "clamp", "leaky_relu", "fill", "pad", "pool_2d", "arange", "glu",
    "flash_attn_ext", "acc", "set", "add1", "silu_back", "rms_norm_back", "soft_max_back", "ssm_conv", "ssm_scan",
    "rwkv_wkv6", "rwkv_wkv7", "gated_linear_attn", "gated_delta_net", "lightning_indexer", "dsv4_hc_pre",
    "dsv4_hc_post", "dsv4_hc_comb", "unary",
))  # fmt: skip
"""The ops whose results follow smoothly from their sources, so that they can be compared where they are computed."""


WRITERS = (Op.CPY, Op.SET_ROWS, Op.ACC, Op.SET, Op.SOFT_MAX_BACK)
"""Where the order of a kernel's loops shows if sources overlap."""


@cache
def constructors(computed: bool) -> dict[Op, tuple[Constructor, ...]]:
    """What is drawn for each op."""
    out: dict[Op, list[Constructor]] = {}
    for _, c in sorted(CONSTRUCTORS.items()):
        op = Op(c.op)
        name = c.name.rpartition("_")[0] if c.name.endswith(("_split", "_swapped")) else c.name
        smooth = not computed or (
            op.name.lower() in COMPUTED and (op != Op.UNARY or name in SMOOTH) and name != "add_cast"
        )
        if c.since <= SINCE and smooth and op != Op.FLASH_ATTN_BACK:
            out.setdefault(op, []).append(c)
    return {op: tuple(found) for op, found in out.items()}


@cache
def _weighted(computed: bool, even: bool) -> tuple[list[Op], list[float]]:
    ops = list(constructors(computed))
    return ops, list(accumulate(max(WEIGHTS.get(op.name.lower(), 0.5), 4 if even else 0) for op in ops))


def any_node(m: Maker) -> Node | None:
    """A node of any op."""
    ops, weights = _weighted(m.values, m.even)
    (op,) = m.rng.choices(ops, cum_weights=weights)
    return draw(m, m.rng.choice(constructors(m.values)[op]))
