"""Random ops near what CUDA and ROCm ask since ggml 0.26."""

from __future__ import annotations

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.registry import float_bits
from ggmltool.ggml.tensor import Tensor
from tests.ggml.devices.cases import NEAR, Cases, Near

_HEADS = (
    (40, 40), (64, 64), (72, 72), (80, 80), (96, 96), (112, 112), (128, 128), (256, 256), (64, 128), (192, 128),
    (192, 192), (320, 256), (512, 512), (576, 512), (32, 32),
)  # fmt: skip
_KV_TYPES = ("f16", "f16", "f16", "f32", "bf16", "q8_0", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "i32")
_FLOATS = ("f32", "f16", "bf16")


class CudaCases(Cases):
    """Cases that reach what is new in these rules."""

    glu_ops = 7

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.near = _NEAR


def _attention(c: Cases, node: Tensor, src: list[Tensor], params: list[int]) -> None:
    rng = c.rng
    q, k, v, mask = src[:4]
    dk, dv = rng.choice(_HEADS)
    types = [rng.choice(_KV_TYPES)] * 2 if rng.random() < 0.6 else [rng.choice(_KV_TYPES) for _ in range(2)]
    types = [t if n % TYPES[t].block_size == 0 else "f16" for t, n in zip(types, (dk, dv), strict=True)]
    keys, heads = rng.choice((256, 256, 100, 4096, 8192, 32768)), rng.choice((1, 2, 4))
    groups, rows = rng.choice((1, 1, 2, 4, 5, 8, 16, 32)), rng.choice((1, 1, 2, 2, 3, 5, 8, 9, 16, 17, 65, 512))
    batch = rng.choice((1, 1, 1, 2))
    c.fit(k, types[0], ne0=dk, ne1=keys, ne2=heads, ne3=batch)
    c.fit(v, types[1], ne0=dv, ne1=keys, ne2=heads, ne3=batch)
    c.fit(q, "f32", ne0=dk, ne1=rows, ne2=heads * groups + (rng.random() < 0.02), ne3=batch)
    c.fit(mask, "f16", ne0=keys, ne1=rows, ne2=rng.choice((1, 1, 1, 1, 2)), ne3=1)
    c.fit(node, "f32", ne0=dv, ne1=heads * groups, ne2=rows, ne3=batch)
    for t in (q, k, v, mask):
        if rng.random() < 0.03:
            t.set_layout(t.ne, (t.nb[0], t.nb[1] + t.type.type_size, *t.nb[2:]))
    if rng.random() < 0.2:
        v.view_src, v.view_offs = rng.choice(((k, 0), (src[4], 0), (src[4], 64)))
        k.view_src = rng.choice((None, src[4])) if v.view_src is not k else None
    params[:5] = [float_bits(0.1), *(rng.choice((0, 0, 0, 0, -(2**31), float_bits(8.0))) for _ in range(2)), 0, 0]
    params[4] = rng.choice((0, 0, 1, 512, 2048, 4096))
    if rng.random() < 0.1:
        src[3] = c.tensor()
        src[3].type = TYPES["f16"]


def _product(c: Cases, node: Tensor, src: list[Tensor], params: list[int]) -> None:
    rng = c.rng
    NEAR[Op.MUL_MAT](c, node, src, params)
    params[1] = rng.choice((0, 0, 1))
    params[3] = rng.choice((0, 0, 0, 10, 15, 20))
    if rng.random() < 0.5:
        c.fit(src[0], "f32" if rng.random() < 0.7 else rng.choice(_FLOATS))
        c.fit(src[1], rng.choice(("f16", "f16", "f32", "bf16")))
        c.fit(node, rng.choice(("f32", "f32", "f16")))
        if rng.random() < 0.8:
            c.fit(node, **{f"ne{d}": n for d, n in enumerate(src[1].ne)})
        if rng.random() < 0.1:
            t = rng.choice((node, src[1]))
            t.set_layout(t.ne, (t.nb[0], *(nb + 16 for nb in t.nb[1:])))


def _floats(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> None:
    for t in (node, *src[:2]):
        c.fit(t, c.rng.choice(_FLOATS))
    if c.rng.random() < 0.3:
        t = src[0]
        t.set_layout(t.ne, (t.nb[0], *(nb + 16 for nb in t.nb[1:])))


def _scan(c: Cases, node: Tensor, src: list[Tensor], params: list[int]) -> None:
    NEAR[Op.SSM_SCAN](c, node, src, params)
    c.fit(src[0], ne0=c.rng.choice((16, 64, 96, 128, 256)), ne1=c.rng.choice((1, 8, 32)), ne2=c.rng.choice((4, 128)))
    c.fit(src[4], ne1=c.rng.choice((1, 1, 2)))
    params[0] = c.rng.choice((0, 1, 2))


def _indexer(c: Cases, node: Tensor, src: list[Tensor], params: list[int]) -> None:
    NEAR[Op.LIGHTNING_INDEXER](c, node, src, params)
    c.fit(src[0], ne1=c.rng.choice((1, 4, 4, 32, 64)))
    c.fit(src[1], c.rng.choice(_KV_TYPES), ne0=128)


def _convolution(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> None:
    c.fit(src[0], c.rng.choice(("f32", "f16", "f16", "bf16")))
    c.fit(src[1], c.rng.choice(("f32", "f32", "f32", "f16")))
    c.fit(node, c.rng.choice(("f32", "f32", "f32", "f16")))


def _sorted(c: Cases, _: Tensor, src: list[Tensor], _p: list[int]) -> None:
    c.fit(src[0], "f32", ne0=c.rng.choice((1, 1024, 1025, 16384, 16385, 2**31 - 1, 2**31)))


_NEAR: dict[Op, Near] = NEAR | {
    Op.FLASH_ATTN_EXT: _attention,
    Op.MUL_MAT: _product,
    Op.MUL_MAT_ID: _product,
    Op.SSM_SCAN: _scan,
    Op.LIGHTNING_INDEXER: _indexer,
    Op.CONV_3D: _convolution,
    Op.CONV_2D_DW: _convolution,
    Op.ARGSORT: _sorted,
    Op.TOP_K: _sorted,
    **dict.fromkeys((Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.SCALE, Op.CLAMP, Op.UNARY, Op.GLU), _floats),
    **dict.fromkeys((Op.SUM_ROWS, Op.MEAN, Op.ROLL, Op.DUP, Op.CPY), _floats),
}
