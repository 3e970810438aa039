"""Random ops near what devices of ggml 0.21 and 0.26 ask otherwise than those of 0.20.2."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ggmltool.ggml.op import GluOp, Op
from ggmltool.ggml.tensor import Tensor
from tests.ggml.devices.cases import Cases

HEADS = (
    (32, 32), (64, 64), (96, 64), (96, 96), (128, 96), (128, 128), (192, 128), (256, 256), (256, 128), (320, 256),
    (512, 512), (576, 512), (576, 576), (72, 72), (64, 96), (48, 48), (48, 48), (32, 32),
)  # fmt: skip
KV_TYPES = ("f32", "f16", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")
WEIGHTS = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q6_K", "q4_K", "mxfp4", "tq1_0", "tq2_0", "nvfp4")
N_CASES = 6000


class NewerCases(Cases):
    """All cases, and then some of the ops of `NEAR`, in turn."""

    def __iter__(self) -> Iterator[Tensor]:
        yield from super().__iter__()
        self.glu_ops = len(GluOp)
        ops = list(NEAR)
        for i in range(N_CASES):
            op = ops[i % len(ops)]
            node = self.case(op)
            if self.rng.random() < 0.85:
                params = list(node.op_params)
                src = NEAR[op](self, node, [self.tensor() for _ in range(4)], params)
                node.set_op(op, tuple(params), *src)
            yield node


def _attention(c: Cases, node: Tensor, src: list[Tensor], params: list[int]) -> list[Tensor]:
    rng = c.rng
    dk, dv = rng.choice(HEADS)
    kv = rng.choice(KV_TYPES) if dk % 32 == 0 and dv % 32 == 0 else "f16"
    q, k, v, mask, sinks = (c.tensor() for _ in range(5))
    groups, keys = rng.choice((1, 2, 4, 20)), rng.choice((256, 1000, 1024, 4096))
    c.fit(k, kv, ne0=dk, ne1=keys, ne2=2, ne3=1)
    c.fit(v, kv if rng.random() < 0.85 else "f16", ne0=dv, ne1=keys, ne2=2, ne3=1)
    c.fit(
        q,
        rng.choice(("f32", "f32", "f16")),
        ne0=dk,
        ne1=rng.choice((1, 2, 8, 19, 20, 31, 32, 512)),
        ne2=2 * groups,
        ne3=1,
    )
    c.fit(mask, "f16", ne0=keys, ne1=q.ne[1], ne2=rng.choice((1, 1, 2)), ne3=rng.choice((1, 1, 2)))
    c.fit(sinks, "f32", ne0=2 * groups, ne1=1, ne2=1, ne3=1)
    c.fit(node, q.type.name, ne0=dv, ne1=2 * groups, ne2=q.ne[1], ne3=1)
    if rng.random() < 0.3:
        v.view_src = k if rng.random() < 0.5 else src[0]
        k.view_src = None if v.view_src is k else rng.choice((src[0], src[0], None))
        v.view_offs = rng.choice((0, 0, 64))
    params[:5] = [0, 0, 0, 0, rng.choice((0, 0, 1, 33, 500, 4096, 4097, -5))]
    if rng.random() < 0.1:
        params[1 + rng.randrange(2)] = 1
    return [q, k, v, *([mask] if rng.random() < 0.9 else []), *([sinks] if rng.random() < 0.2 else [])]


def _product(c: Cases, node: Tensor, src: list[Tensor], params: list[int]) -> list[Tensor]:
    rng = c.rng
    w, x = src[:2]
    rows = rng.choice((32, 64, 128, 256, 512, 1024, 8192))
    batch = rng.choice((1, 1, 2))
    c.fit(w, rng.choice([t for t in WEIGHTS if t[:2] not in ("q6", "q4", "tq") or rows >= 256]), ne0=rows, ne2=1, ne3=1)
    columns = rng.choice((1, 8, 9, 31, 32, 511, 512, 600))
    c.fit(x, rng.choice(("f32", "f16", "f16", "bf16")), ne0=rows, ne1=columns, ne2=batch, ne3=1)
    params[:4] = [0, rng.choice((0, 0, 1)), 0, 0]
    c.fit(node, "f32", ne0=w.ne[1], ne1=columns, ne2=batch, ne3=1)
    if rng.random() < 0.3:
        params[1] = 1
        c.fit(w, "f32", ne0=rows, ne1=rows)
        c.fit(x, "f16")
        c.fit(node, "f32", ne0=x.ne[0] if rng.random() < 0.9 else 8)
    if rng.random() < 0.15:
        t = rng.choice((w, x))
        t.set_layout(t.ne, (t.nb[1], t.nb[0], *t.nb[2:]))
    return [w, x]


def _product_by_expert(c: Cases, node: Tensor, src: list[Tensor], params: list[int]) -> list[Tensor]:
    w, x = _product(c, node, src, params)
    ids = c.tensor()
    c.fit(w, w.type.name, ne2=c.rng.choice((4, 8)))
    c.fit(ids, "i32", ne0=2, ne1=c.rng.choice((1, 31, 32, 512)), ne2=1, ne3=1)
    params[3] = c.rng.choice((0, 0, 10, 15, 20))
    return [w, x, ids]


def _joined(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> list[Tensor]:
    type = c.rng.choice(("f32", "f16", "i8", "i64", *KV_TYPES))
    for t in (node, *src[:2]):
        c.fit(t, type, ne0=64)
    return src[:2]


def _padded(c: Cases, node: Tensor, src: list[Tensor], params: list[int]) -> list[Tensor]:
    params[:9] = [c.rng.choice((0, 0, 0, 2)) for _ in range(9)]
    c.fit(src[0], c.rng.choice(("f32", "f32", "f16")))
    c.fit(node, src[0].type.name)
    return src[:1]


def _indexed(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> list[Tensor]:
    made = [c.tensor() for _ in range(4)]
    for t, type in zip((node, *made), ("f32", "f32", c.rng.choice(KV_TYPES), "f32", "f16"), strict=True):
        c.fit(t, type, ne0=128, ne1=c.rng.choice((1, 32, 64)))
    return made


def _connected(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> list[Tensor]:
    made = [c.tensor() for _ in range(4)]
    for t in (node, *made):
        c.fit(t, "f32", ne0=c.rng.choice((4, 4, 24)), ne1=c.rng.choice((4, 4, 4, 2)))
    return made


def _solved(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> list[Tensor]:
    for t in (node, *src[:2]):
        c.fit(t, c.rng.choice(("f32", "f32", "f32", "f16")), ne0=64)
    return src[:2]


def _taken(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> list[Tensor]:
    c.fit(src[0], c.rng.choice((*WEIGHTS, "i32")), ne0=256)
    c.fit(src[1], "i32", ne0=8)
    c.fit(node, c.rng.choice(("f32", "f32", "f16")), ne0=256)
    if node.op == Op.GET_ROWS_BACK:
        c.fit(src[0], c.rng.choice(("f32", "f16", "bf16")))
        c.fit(node, ne2=c.rng.choice((1, 1, 2)), ne3=1)
    return src[:2]


def _copied(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> list[Tensor]:
    types = (*WEIGHTS, "i32", "iq4_nl", "tq1_0", "tq2_0")
    for t in (node, *src[:2]):
        c.fit(t, c.rng.choice(types), ne0=256)
    return src[:2]


def _written(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> list[Tensor]:
    c.fit(src[0], "f32", ne0=256)
    c.fit(src[1], c.rng.choice(("i32", "i64")), ne0=8)
    c.fit(node, c.rng.choice((*WEIGHTS, "iq4_nl")), ne0=256)
    return src[:2]


def _scanned(c: Cases, node: Tensor, src: list[Tensor], params: list[int]) -> list[Tensor]:
    made = [c.tensor() for _ in range(7)]
    for t in (node, *made):
        c.fit(t, "f32" if c.rng.random() < 0.97 else "f16", ne0=64)
    c.fit(made[0], ne0=c.rng.choice((16, 48, 64, 96, 128, 256, 512)), ne1=64)
    c.fit(made[3], ne0=c.rng.choice((1, 1, 16)))
    c.fit(made[6], "i32" if c.rng.random() < 0.9 else "f32")
    params[0] = c.rng.choice((0, 1, 1, 2))
    return made


def _plain(c: Cases, node: Tensor, src: list[Tensor], params: list[int]) -> list[Tensor]:
    for t in (node, *src[:1]):
        c.fit(t, c.rng.choice(("f32", "f32", "f16")))
    if node.op == Op.TOP_K:
        c.fit(node, "i32", ne0=c.rng.choice((1, 32, 33, 512)))
        c.fit(src[0], ne0=c.rng.choice((32, 512, 1024)))
    params[15] = c.rng.choice((0, 0, 8))
    return src[:1] if node.op != Op.ROPE else src[:2]


NEAR: dict[Op, Callable[[Cases, Tensor, list[Tensor], list[int]], list[Tensor]]] = {
    Op.FLASH_ATTN_EXT: _attention,
    Op.MUL_MAT: _product,
    Op.MUL_MAT_ID: _product_by_expert,
    Op.CONCAT: _joined,
    Op.PAD: _padded,
    Op.LIGHTNING_INDEXER: _indexed,
    Op.DSV4_HC_PRE: _connected,
    Op.DSV4_HC_POST: _connected,
    Op.DSV4_HC_COMB: _connected,
    Op.SOLVE_TRI: _solved,
    Op.GET_ROWS: _taken,
    Op.GET_ROWS_BACK: _taken,
    Op.CPY: _copied,
    Op.SET_ROWS: _written,
    Op.SSM_SCAN: _scanned,
    Op.UNARY: _plain,
    Op.GLU: _plain,
    Op.TOP_K: _plain,
    Op.ROPE: _plain,
}
"""What brings a case near the conditions of its op; the sources that it has then."""
