"""Random graphs of what Metal's kernels fuse, most of it as a model writes it, some with something amiss in it."""

from __future__ import annotations

from random import Random

from ggmltool.ggml.buffer import USAGE_ANY, USAGE_WEIGHTS, AddressSpace, Buffer, BufferType
from ggmltool.ggml.device import SplitNodes
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import Op, UnaryOp
from ggmltool.ggml.ops.registry import float_bits
from ggmltool.ggml.tensor import FLAG_COMPUTE, FLAG_OUTPUT, Tensor, contiguous_nb
from tests.ggml.graphs import Builder

_BUFT = BufferType("D", "D")
WEIGHTS = Buffer(_BUFT, 64, AddressSpace(), USAGE_WEIGHTS)
RESULTS = Buffer(_BUFT, 64, AddressSpace(), USAGE_ANY)
_WIDTH = 32
_QUANTS = ("f32", "f16", "q4_0", "q8_0", "q5_1", "nvfp4", "iq4_nl")


class MetalGraph:
    """A graph of one seed: `split` are those of its nodes that a device is asked about."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.b = Builder()
        self.nodes: list[Tensor] = []
        self.tokens = self.rng.choice((1, 2, 5))
        self.x = self._leaf("x", _WIDTH, self.tokens)
        for _ in range(self.rng.randint(2, 9)):
            self.rng.choice(_BLOCKS)(self)
        for _ in range(self.rng.choice((0, 0, 1, 2, 4))):
            self._spoil()
        self.graph: CGraph = self.b.graph(*self.nodes)
        self.graph.nodes = self.nodes
        if self.rng.random() < 0.1:
            self.rng.choice(self.nodes).flags &= ~FLAG_COMPUTE
        n = len(self.nodes)
        first = self.rng.choice((0, 0, 0, self.rng.randrange(n)))
        end = self.rng.choice((n, n, self.rng.randrange(first, n) + 1))
        self.split = SplitNodes(self.nodes[first:end], self.nodes[end : end + 1])

    def norm(self) -> None:
        """A norm, a weight, a bias, or a factor."""
        self.x = self._node(self.rng.choice((Op.NORM, Op.RMS_NORM)), self.x)
        if self.rng.random() < 0.25:
            self.x = self._node(Op.SCALE, self.x)
            return
        for op in (Op.MUL, Op.ADD)[: self.rng.choice((1, 1, 2))]:
            self.x = self._node(op, *self._either(self.x, self._weight("f32", self._length())), ne=self.x.ne)

    def sums(self) -> None:
        """Additions to one sum."""
        like = self._other()
        for _ in range(self.rng.randint(2, 9)):
            self.x = self._node(
                Op.ADD, *self._either(self.x, like if self.rng.random() < 0.8 else self._other()), ne=self.x.ne
            )

    def products(self) -> None:
        """Products side by side, with what is added to them."""
        x = self.x
        for _ in range(self.rng.randint(1, 4)):
            type = self.rng.choice(_QUANTS) if self.rng.random() < 0.5 else "q4_0"
            weights = self._weight(type, 64 if type == "nvfp4" else _WIDTH, _WIDTH)
            self.x = self._node(Op.MUL_MAT, weights, x, ne=x.ne, type="f32")
            if self.rng.random() < 0.5:
                self._maybe_view(self.x)
                other = self._weight("f32", _WIDTH) if self.rng.random() < 0.3 else self._other()
                self.x = self._node(Op.ADD, *self._either(self.x, other), ne=x.ne, type="f32")

    def snake(self) -> None:
        """A snake activation of a matrix."""
        type = self.rng.choice(("f32", "f32", "f16", "bf16"))
        x = self._leaf("s", 16, 8, 1 if self.rng.random() < 0.9 else 2, type=type)
        a, b = (self._leaf(name, 1, 8, type="f32" if self.rng.random() < 0.95 else "f16") for name in "ab")
        product = self._node(Op.MUL, *self._either(x, a), ne=x.ne, type=type)
        square = self._node(Op.SQR, self._node(Op.SIN, product))
        scaled = self._node(Op.MUL, *self._either(square, b), ne=x.ne, type=type)
        added = x if self.rng.random() < 0.9 else self._leaf("y", *x.ne, type=type)
        self._node(Op.ADD, *self._either(added, scaled), ne=x.ne, type=type)

    def convolution(self) -> None:
        """A convolution and its activation."""
        conv = self._node(Op.SSM_CONV, self.x, self._weight("f32", 4, _WIDTH), ne=self.x.ne)
        function = UnaryOp.SILU if self.rng.random() < 0.8 else UnaryOp.GELU
        self.x = self._node(Op.UNARY, conv, params=(int(function),))

    def net(self) -> None:
        """A delta net whose last states are copied into a cache."""
        rng, size, heads = self.rng, 4, 2
        sequences = rng.choice((1, 2))
        tokens, kept = rng.choice((1, 2, 4)), rng.choice((1, 2, 3))
        q, k, v = (self._leaf(name, size, heads, tokens, sequences) for name in "qkv")
        n_out, state = size * heads * tokens * sequences, size * size * heads
        written = min(tokens, kept)
        net = self._node(
            Op.GATED_DELTA_NET, q, k, v, ne=(n_out + state * sequences * kept + 1,), params=(kept,), type="f32"
        )
        cache = self._leaf("cache", state * sequences * 4)
        self._view(net, (size * heads, tokens * sequences, 1, 1))
        shape = (state, sequences, written if rng.random() < 0.9 else kept, 1)
        last = self._view(net, shape, 4 * n_out + (4 if rng.random() < 0.1 else 0))
        into = self._view(cache, shape)
        if rng.random() < 0.1:
            self._node(Op.SCALE, self.x)
        copy = self.b.view(f"n{len(self.nodes)}", cache, *shape, op=Op.CPY, src=(last, into))
        self.nodes.append(copy)

    def experts(self) -> None:
        """A choice of experts, what they compute, and the weighted sum of it."""
        rng = self.rng
        n_experts, used = rng.choice((8, 8, 64, 2048)), rng.choice((1, 2, 2, 3, 4, 8, 9))
        shape = (n_experts, self.tokens)
        logits = self._node(Op.MUL_MAT, self._weight("q4_0", _WIDTH, n_experts), self.x, ne=shape, type="f32")
        used = min(used, n_experts)
        ids, weights = self._choice(logits, n_experts, used)
        up = self._weight("q4_0", _WIDTH, _WIDTH, n_experts)
        up_x = self._reshape(self.x, _WIDTH, 1, self.tokens)
        results = self._node(Op.MUL_MAT_ID, up, up_x, ids, ne=(_WIDTH, used, self.tokens), type="f32")
        product = self._node(Op.MUL, *self._either(results, weights, 0.03), ne=results.ne)
        whole = (_WIDTH, self.tokens, 1, 1)
        strides = (product.nb[0], product.nb[2], product.nb[3], product.nb[3])
        views = [self._view(product, whole, i * product.nb[1], strides) for i in range(used)]
        if rng.random() < 0.05:
            rng.shuffle(views)
        total = views[0]
        for view in views[1:]:
            total = self._node(Op.ADD, *self._either(total, view, 0.03))
        if rng.random() < 0.5:
            self.x = total

    def _choice(self, logits: Tensor, n_experts: int, used: int) -> tuple[Tensor, Tensor]:
        rng, tokens = self.rng, self.tokens
        scale = float_bits(1.0 if rng.random() < 0.93 else 0.5)
        probs = self._node(Op.SOFT_MAX, logits, params=(scale, rng.choice((0, 0, -(2**31)))))
        shaped = self._reshape(probs, 1, n_experts, tokens)
        order = self._node(Op.ARGSORT, probs, type="i32")
        ids = self._view(order, (used, tokens, 1, 1), 0, order.nb)
        weights = self._node(Op.GET_ROWS, shaped, ids, ne=(1, used, tokens), type="f32")
        if rng.random() < 0.6:
            flat = self._reshape(weights, used, tokens)
            total = self._node(Op.SUM_ROWS, flat, ne=(1, tokens))
            total = self._node(Op.CLAMP, total)
            weights = self._reshape(self._node(Op.DIV, flat, total), 1, used, tokens)
        if rng.random() < 0.4:
            weights = self._node(Op.SCALE, weights)
        return ids, weights

    def plain(self) -> None:
        """What no kernel fuses, and what nothing may pass."""
        op = self.rng.choice((Op.SCALE, Op.CONT, Op.SOFT_MAX, Op.ROPE, Op.UNARY, Op.SCALE, Op.MUL_MAT_ID, Op.CPY))
        if op == Op.CPY:
            root = self.rng.choice(self.nodes) if self.nodes else self.x
            root = root if root.view_src is None else root.view_src
            self.nodes.append(self.b.view(f"n{len(self.nodes)}", root, op=Op.CPY, src=(self.x, root)))
        else:
            self.x = self._node(op, self.x, *([] if op in (Op.UNARY, Op.SCALE) else [self._other()]))

    def store(self) -> None:
        """Rows written into a cache, and read through a view of it."""
        cache = self._leaf("cache", _WIDTH, 8)
        rows = self._leaf("rows", self.tokens, type="i64")
        made = self.b.view(f"n{len(self.nodes)}", cache, op=Op.SET_ROWS, src=(self.x, rows))
        self.nodes.append(made)
        self._node(Op.CONT, self._view(cache, self.x.ne))

    def _spoil(self) -> None:
        """Something that is otherwise than a model writes it."""
        rng = self.rng
        i = rng.randrange(len(self.nodes))
        node = self.nodes[i]
        match rng.randrange(6):
            case 0:
                node.flags |= FLAG_OUTPUT
            case 1:
                self.nodes.append(self.b.node(f"n{len(self.nodes)}", Op.CONT, node))
            case 2:
                view = self.b.view(f"v{i}", node if node.view_src is None else node.view_src, 1)
                self.nodes.insert(rng.randint(i + 1, len(self.nodes)), view)
            case 3:
                free = self.b.node(f"f{i}", Op.SCALE, self._leaf("free", _WIDTH))
                self.nodes.insert(i, free)
            case 4 if node.view_src is None and not node.is_view_op:
                node.type = TYPES[rng.choice(("f16", "f32"))]
                node.set_layout(node.ne, contiguous_nb(node.type, node.ne))
            case _:
                node.buffer, node.data = rng.choice((WEIGHTS, RESULTS)), 64 * rng.randint(1, 99)

    def _length(self) -> int:
        return _WIDTH if self.rng.random() < 0.93 else 1

    def _other(self) -> Tensor:
        """Something of the width of x."""
        made = [n for n in self.nodes[-12:] if n.ne == self.x.ne and n is not self.x]
        if made and self.rng.random() < 0.5:
            return self.rng.choice(made)
        return self._leaf("o", *self.x.ne) if self.rng.random() < 0.8 else self._weight("f32", _WIDTH)

    def _either(self, first: Tensor, second: Tensor, turned: float = 0.15) -> tuple[Tensor, Tensor]:
        return (second, first) if self.rng.random() < turned else (first, second)

    def _maybe_view(self, t: Tensor) -> None:
        if self.rng.random() < 0.2:
            self._view(t if t.view_src is None else t.view_src, t.ne)

    def _leaf(self, name: str, *ne: int, type: str = "f32") -> Tensor:
        t = self.b.leaf(f"{name}{self.b.n_tensors}", *ne, type=type)
        if self.rng.random() < 0.3:
            t.buffer, t.data = RESULTS, 4096 * self.rng.randint(1, 50)
        return t

    def _weight(self, type: str, *ne: int) -> Tensor:
        t = self.b.leaf(f"w{self.b.n_tensors}", *ne, type=type)
        if self.rng.random() < 0.95:
            t.buffer, t.data = WEIGHTS, 4096 * self.b.n_tensors
        return t

    def _node(
        self,
        op: Op,
        *src: Tensor,
        ne: tuple[int, ...] | None = None,
        type: str | None = None,
        params: tuple[int, ...] = (),
    ) -> Tensor:
        n = self.b.node(f"n{len(self.nodes)}", op, *src, ne=ne, type=type, params=params)
        self.nodes.append(n)
        return n

    def _reshape(self, of: Tensor, *ne: int) -> Tensor:
        root = of if of.view_src is None else of.view_src
        n = self.b.view(f"n{len(self.nodes)}", root, *ne, offset=of.view_offs, op=Op.RESHAPE, src=(of,))
        self.nodes.append(n)
        return n

    def _view(
        self, of: Tensor, ne: tuple[int, ...], offset: int = 0, nb: tuple[int, int, int, int] | None = None
    ) -> Tensor:
        n = self.b.view(f"n{len(self.nodes)}", of, *ne, offset=offset)
        if nb is not None:
            n.set_layout(n.ne, nb)
        self.nodes.append(n)
        return n


_BLOCKS = (
    MetalGraph.norm, MetalGraph.norm, MetalGraph.sums, MetalGraph.products, MetalGraph.products, MetalGraph.snake,
    MetalGraph.convolution, MetalGraph.net, MetalGraph.experts, MetalGraph.experts, MetalGraph.plain, MetalGraph.store,
)  # fmt: skip
