"""Random ops near Vulkan's conditions, besides those that come near other devices' too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import GluOp, Op
from ggmltool.ggml.tensor import Tensor
from tests.ggml.devices.cases import NEAR, Cases

Near = Callable[[Cases, Tensor, list[Tensor], list[int]], None]

_ALL = list(TYPES)
_PREC_F32 = 10


class VulkanCases(Cases):
    """All ops in turn, without end."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.near = NEAR | _NEAR
        self.glu_ops = len(GluOp)

    def __iter__(self) -> Iterator[Tensor]:
        ops = list(Op)
        return (self.case(ops[i % len(ops)]) for i in count())


def _fit_all(c: Cases, tensors: list[Tensor], type: str = "f32") -> None:
    for t in tensors:
        c.fit(t, type)


def _indexer(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> None:
    k = TYPES[c.rng.choice(("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q4_K"))]
    c.fit(src[0], "f32", ne0=c.rng.choice((128, 128, 128, 64)), ne1=64)
    c.fit(src[1], k.name, ne0=256)
    _fit_all(c, [src[2], node])
    c.fit(src[3], "f16")
    for t in (*src[:4], node):
        if c.rng.random() < 0.15:
            size = t.type.type_size
            step = c.rng.choice((size, size, 2 if size > 2 else 1))
            t.set_layout(t.ne, (t.nb[0], *(n + step for n in t.nb[1:])))
        if c.rng.random() < 0.15:
            root = Context().new_tensor(t.type, t.ne)
            t.view_src, t.view_offs = root, c.rng.choice((16, 32, 64, 8, 4))


def _loss(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> None:
    ne = src[0].ne
    _fit_all(c, [src[0], node])
    c.fit(node, "f32", ne0=1, ne1=1, ne2=1, ne3=c.rng.choice((1, 1, 1, 2)))
    c.fit(src[1], "f32", ne0=src[0].ne[0], ne1=ne[1], ne2=ne[2], ne3=c.rng.choice((ne[3], ne[3], 7)))


def _loss_back(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> None:
    c.fit(src[0], "f32", ne0=c.rng.choice((1, 1, 1, 2)), ne1=1, ne2=1, ne3=1)
    c.fit(src[1], "f32")
    one, two, three, four = src[1].ne
    for t in (src[2], node):
        c.fit(t, "f32", ne0=one, ne1=two, ne2=three, ne3=c.rng.choice((four, four, four, 7)))


def _hyper(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> None:
    _fit_all(c, [*src, node])
    if c.rng.random() < 0.2:
        c.fit(c.rng.choice([*src, node]), "f16")
    four = c.rng.choice((4, 4, 4, 3))
    c.fit(src[0], ne1=four)
    c.fit(src[1], ne1=four)


def _product(c: Cases, _: Tensor, src: list[Tensor], params: list[int]) -> None:
    params[3] = c.rng.choice((0, 0, 15, 20, _PREC_F32))
    c.fit(src[0], c.rng.choice(_ALL), ne0=256)
    c.fit(src[1], c.rng.choice(("f32", "f32", "f16", "bf16", "q8_0")), ne0=256, ne3=src[0].ne[3])
    c.fit(src[2], "i32", ne3=src[1].ne[3])
    if c.rng.random() < 0.3:
        t = c.rng.choice(src[:2])
        t.set_layout(t.ne, (t.nb[0], t.nb[1] + t.type.type_size, *t.nb[2:]))


def _rows(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> None:
    c.fit(src[0], c.rng.choice(("f32", "f16", c.rng.choice(_ALL))), ne0=256)
    c.fit(node, c.rng.choice(_ALL), ne0=256)
    c.fit(src[1], c.rng.choice(("i32", "i64", "f32")))


def _copy(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> None:
    c.fit(src[0], c.rng.choice(("f32", "f32", "f16", "i32", c.rng.choice(_ALL))), ne0=256)
    for t in (src[1], node):
        c.fit(t, src[0].type.name if c.rng.random() < 0.3 else c.rng.choice(_ALL), ne0=256)
    if c.rng.random() < 0.3:
        t = c.rng.choice((src[0], node))
        t.set_layout(t.ne, (t.nb[0], t.nb[1] + t.type.type_size, *t.nb[2:]))


def _sorted(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> None:
    c.fit(src[0], "f32")
    c.fit(node, "i32", ne0=c.rng.choice((1, 5, 32, 1023, 1024, 1025, 2048, 65536)), ne3=1)


def _add_id(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> None:
    _fit_all(c, [*src[:2], node])
    c.fit(src[2], "i32")


def _large(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> None:
    """Around the largest tensors that drivers take."""
    c.fit(src[1], "f32")
    c.fit(node, c.rng.choice(("f32", "f16")))
    t = c.rng.choice((node, *src[:2]))
    c.fit(t, ne0=1 << c.rng.randint(10, 20), ne1=1 << c.rng.randint(5, 14), ne2=1, ne3=1)


_NEAR: dict[Op, Near] = {
    Op.LIGHTNING_INDEXER: _indexer,
    Op.CROSS_ENTROPY_LOSS: _loss,
    Op.CROSS_ENTROPY_LOSS_BACK: _loss_back,
    Op.DSV4_HC_COMB: _hyper,
    Op.DSV4_HC_PRE: _hyper,
    Op.DSV4_HC_POST: _hyper,
    Op.MUL_MAT: _product,
    Op.MUL_MAT_ID: _product,
    Op.GET_ROWS: _rows,
    Op.SET_ROWS: _rows,
    Op.CPY: _copy,
    Op.DUP: _copy,
    Op.CONT: _copy,
    Op.ARGSORT: _sorted,
    Op.TOP_K: _sorted,
    Op.ADD_ID: _add_id,
    Op.IM2COL: _large,
    Op.IM2COL_3D: _large,
    Op.UPSCALE: _large,
    Op.SCALE: _large,
}
"""What brings a case near the conditions of its op."""
