"""Random ops and graphs, the same for the same seed, on which answers of ggml's own source are recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import TYPES, TYPES_BY_ID, DType
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import Op, UnaryOp
from ggmltool.ggml.tensor import Tensor, contiguous_nb
from tests.ggml.graphs import Builder

EXTENTS = (1, 1, 1, 2, 3, 4, 8, 16, 20, 24, 32, 33, 64, 64, 96, 100, 128, 128, 256, 512, 576, 1024, 1025, 4096)
COMMON = ("f32", "f32", "f32", "f32", "f16", "f16", "bf16", "i32", "i64", "q8_0", "q4_0", "q4_K")
WORDS = (0, 0, 0, 1, 1, 2, 3, 256, 512, 513, 514, -(2**31))
N_CASES = 12000

TENSORS = {op.name: 3 for op in (Op.FLASH_ATTN_EXT,)} | {"SOFT_MAX": 1, "GLU": 1}
"""Sources that an op has in any case; of the further ones some are missing."""


class Cases:
    """Ops with seven sources of any types, shapes and layouts, many of them near what some device wants."""

    glu_ops = 6
    """GLU functions of ggml 0.20.2."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.near: Mapping[Op, Near] = NEAR

    def __iter__(self) -> Iterator[Tensor]:
        for i in range(N_CASES):
            yield self.case(list(Op)[i % len(Op)])

    def tensor(self, like: Tensor | None = None) -> Tensor:
        rng = self.rng
        type = TYPES[rng.choice(COMMON)] if rng.random() < 0.75 else rng.choice(list(TYPES_BY_ID.values()))
        if like is not None and rng.random() < 0.7:
            type = like.type
        ne = [rng.choice(EXTENTS) for _ in range(4)]
        if rng.random() < 0.5:
            ne[3] = 1
        if rng.random() < 0.3:
            ne[2] = 1
        if like is not None and rng.random() < 0.6:
            ne = [like.ne[i] if rng.random() < 0.8 else n for i, n in enumerate(ne)]
        block = type.block_size
        ne[0] = max(block, ne[0] // block * block)
        t = Context().new_tensor(type, ne)
        t.set_layout(t.ne, self.strides(type, ne))
        return t

    def strides(self, type: DType, ne: list[int]) -> tuple[int, int, int, int]:
        rng = self.rng
        nb = list(contiguous_nb(type, (ne[0], ne[1], ne[2], ne[3])))
        roll = rng.random()
        if roll < 0.12:
            gap = rng.choice((type.type_size, 16, 256))
            first = rng.randrange(1, 4)
            nb[first:] = [n + gap for n in nb[first:]]
        elif roll < 0.2:
            i, j = rng.sample(range(4), 2)
            nb[i], nb[j] = nb[j], nb[i]
        elif roll < 0.24:
            nb[0] *= 2
        return nb[0], nb[1], nb[2], nb[3]

    def case(self, op: Op) -> Tensor:
        rng = self.rng
        src = [self.tensor()]
        while len(src) < 7:
            src.append(self.tensor(rng.choice(src)))
        node = self.tensor(src[0])
        params = [rng.choice(WORDS) for _ in range(16)]
        if op in (Op.UNARY, Op.GLU):
            params[0] = rng.randrange(len(UnaryOp) if op == Op.UNARY else self.glu_ops)
        near = self.near.get(op)
        if near is not None and rng.random() < 0.7:
            near(self, node, src, params)
        needed = TENSORS.get(op.name, 7)
        given = [s if i < needed or rng.random() < 0.6 else None for i, s in enumerate(src)]
        node.set_op(op, tuple(params), *given)
        return node

    def fit(self, t: Tensor, type: str | None = None, **ne: int) -> None:
        """Give a tensor a type and some extents, plain layout."""
        if type is not None:
            t.type = TYPES[type]
        given = {f"ne{i}": n for i, n in enumerate(t.ne)} | ne
        new = (given["ne0"], given["ne1"], given["ne2"], given["ne3"])
        t.set_layout(new, contiguous_nb(t.type, new))


def _attention(c: Cases, _: Tensor, src: list[Tensor], params: list[int]) -> None:
    q, k, v, mask = src[:4]
    head = c.rng.choice((32, 40, 64, 80, 96, 128, 192, 256, 512, 576))
    groups = c.rng.choice((1, 2, 8))
    kv = c.rng.choice(("f32", "f16", "bf16", "q8_0" if head % 32 == 0 else "f16"))
    c.fit(k, kv, ne0=head, ne1=c.rng.choice((256, 1024)), ne2=2, ne3=1)
    c.fit(v, kv, ne0=512 if head == 576 else head, ne1=k.ne[1], ne2=2, ne3=1)
    c.fit(q, "f32", ne0=head, ne1=c.rng.choice((1, 2, 8, 32, 512)), ne2=2 * groups, ne3=1)
    c.fit(mask, "f16", ne0=k.ne[1], ne1=q.ne[1], ne2=c.rng.choice((1, 1, 2)), ne3=1)
    params[1] = params[2] = 0


def _scan(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> None:
    c.fit(src[0], "f32", ne0=c.rng.choice((16, 128, 256)), ne1=64)
    c.fit(src[3], "f32", ne0=c.rng.choice((1, 16)))
    c.fit(src[6], "i32")
    c.fit(node, "f32")


def _indexer(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> None:
    c.fit(src[0], "f32", ne0=128, ne1=c.rng.choice((32, 64)))
    for t, type in ((src[2], "f32"), (src[3], "f16"), (node, "f32")):
        c.fit(t, type)


def _hyper(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> None:
    c.fit(src[0], "f32", ne0=24, ne1=4)
    c.fit(src[1], "f32", ne0=4, ne1=4)
    c.fit(src[2], "f32", ne0=c.rng.choice((24, 4)))
    c.fit(src[3], "f32", ne0=4, ne1=4)
    c.fit(node, "f32")


def _convolution(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> None:
    c.fit(src[0], c.rng.choice(("f32", "f16")), ne2=8, ne3=8)
    c.fit(src[1], "f32", ne2=8)
    c.fit(node, "f32", ne2=8)


def _count(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> None:
    c.fit(src[0], "i32")
    c.fit(src[1], "i32")
    c.fit(node, "i64")


def _top(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> None:
    c.fit(src[0], "f32")
    c.fit(node, "i32", ne0=c.rng.choice((1, 5, 32, 33, 1023, 1024)))


def _all_f32(c: Cases, node: Tensor, src: list[Tensor], _: list[int]) -> None:
    for t in (node, *src):
        c.fit(t, "f32", ne0=c.rng.choice((32, 64, 64, 128)))


def _no_params(_c: Cases, _n: Tensor, _s: list[Tensor], params: list[int]) -> None:
    params[:9] = [0] * 9


def _rotation(c: Cases, _n: Tensor, _s: list[Tensor], params: list[int]) -> None:
    params[2] = c.rng.choice((0, 2, 8, 24, 40))


def _weights(c: Cases, _: Tensor, src: list[Tensor], _p: list[int]) -> None:
    if c.rng.random() < 0.2:
        c.fit(src[0], c.rng.choice(("nvfp4", "q8_K", "i32")), ne0=256)
    c.fit(src[1], "f32", ne3=src[0].ne[3])
    c.fit(src[2], "i32", ne3=src[1].ne[3])


Near = Callable[[Cases, Tensor, list[Tensor], list[int]], None]
"""Changes the result, the sources and the parameters of a case."""

NEAR: dict[Op, Near] = {
    Op.FLASH_ATTN_EXT: _attention,
    Op.SSM_SCAN: _scan,
    Op.LIGHTNING_INDEXER: _indexer,
    Op.DSV4_HC_COMB: _hyper,
    Op.DSV4_HC_PRE: _hyper,
    Op.DSV4_HC_POST: _hyper,
    Op.CONV_2D: _convolution,
    Op.CONV_TRANSPOSE_2D: _convolution,
    Op.CONV_3D: _convolution,
    Op.COUNT_EQUAL: _count,
    Op.TOP_K: _top,
    Op.GATED_DELTA_NET: _all_f32,
    Op.GATED_LINEAR_ATTN: _all_f32,
    Op.SOLVE_TRI: _all_f32,
    Op.SILU_BACK: _all_f32,
    Op.PAD: _no_params,
    Op.SOFT_MAX_BACK: _no_params,
    Op.ROPE: _rotation,
    Op.MUL_MAT: _weights,
    Op.MUL_MAT_ID: _weights,
}
"""What brings a case near the conditions of its op."""

CHAIN = (
    Op.ADD, Op.ADD, Op.MUL, Op.RMS_NORM, Op.NORM, Op.MUL_MAT, Op.MUL_MAT_ID, Op.ADD_ID, Op.ROPE, Op.UNARY, Op.GLU,
    Op.SSM_CONV, Op.SET_ROWS, Op.CPY, Op.CONT, Op.SCALE, Op.SOFT_MAX, Op.SIN, Op.FLASH_ATTN_EXT,
)  # fmt: skip


def graph(seed: int) -> CGraph:
    """A graph of some dozen nodes of one shape, with views, writes through views, fusible pairs and outputs."""
    rng = Random(seed)
    b = Builder()
    leafs = [b.leaf(f"w{i}", 8, 8, 4) for i in range(4)]
    nodes: list[Tensor] = []
    roots: list[Tensor] = list(leafs)

    def recent() -> Tensor:
        pool = nodes[-rng.choice((1, 1, 2, 4, 12)) :] if nodes and rng.random() < 0.75 else leafs
        return rng.choice(pool)

    for i in range(rng.randint(5, 70)):
        roll = rng.random()
        if roll < 0.2:
            op = rng.choice((Op.VIEW, Op.RESHAPE, Op.VIEW, Op.PERMUTE))
            of = recent()
            root = of if of.view_src is None else of.view_src
            t = b.view(f"n{i}", root, op=op, src=(of,))
        elif roll < 0.3:
            # A pair that only fusing keeps together.
            first, second = rng.choice(
                ((Op.RMS_NORM, Op.MUL), (Op.MUL_MAT, Op.ADD), (Op.MUL_MAT_ID, Op.ADD_ID), (Op.SSM_CONV, Op.ADD))
            )
            before = b.node(f"n{i}a", first, recent(), rng.choice(leafs), ne=(8, 8, 4))
            nodes.append(before)
            t = b.node(f"n{i}", second, before, rng.choice(leafs), ne=(8, 8, 4))
        else:
            op = rng.choice(CHAIN)
            if op in (Op.SET_ROWS, Op.CPY):
                t = b.view(f"n{i}", rng.choice(roots), op=op, src=(recent(), rng.choice(leafs)))
            else:
                # Vulkan trusts that a function has one source, and that positions are no node's.
                further = () if op == Op.UNARY else (rng.choice(leafs) if op == Op.ROPE else recent(),)
                t = b.node(f"n{i}", op, recent(), *further, ne=(8, 8, 4))
        if rng.random() < 0.05:
            t.flags |= 2
        nodes.append(t)
        if t.view_src is None:
            roots.append(t)
    made = b.graph(*nodes)
    made.nodes = nodes
    return made
