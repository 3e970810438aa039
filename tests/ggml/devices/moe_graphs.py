"""Random graphs of mixtures of experts, most of them as a model writes them, some with something amiss in them."""

from __future__ import annotations

from random import Random

from ggmltool.ggml.buffer import USAGE_ANY, USAGE_WEIGHTS, AddressSpace, Buffer, BufferType
from ggmltool.ggml.device import SEEN_BEHIND, SplitNodes
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import GluOp, Op, UnaryOp
from ggmltool.ggml.ops.registry import float_bits
from ggmltool.ggml.tensor import FLAG_COMPUTE, FLAG_OUTPUT, Tensor
from tests.ggml.graphs import Builder

_BUFT = BufferType("D", "D")
WEIGHTS = Buffer(_BUFT, 64, AddressSpace(), USAGE_WEIGHTS)
RESULTS = Buffer(_BUFT, 64, AddressSpace(), USAGE_ANY)
_GLUS = (GluOp.SWIGLU, GluOp.SWIGLU, GluOp.GEGLU, GluOp.SWIGLU_OAI, GluOp.REGLU)
_QUANTS = ("q4_0", "q8_0", "q4_0", "q8_0", "f16")


class MoeGraph:
    """A graph of one seed: `split` are those of its nodes that a device is asked about."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.b = Builder()
        self.nodes: list[Tensor] = []
        self.x = self._leaf("x", 32, self.rng.choice((1, 1, 4)))
        for _ in range(self.rng.randint(1, 3)):
            self._layer()
        for _ in range(self.rng.choice((0, 0, 0, 1, 1, 2))):
            self._spoil()
        self.graph: CGraph = self.b.graph(*self.nodes)
        self.graph.nodes = self.nodes
        if self.rng.random() < 0.1:
            self.rng.choice(self.nodes).flags &= ~FLAG_COMPUTE
        n = len(self.nodes)
        first = self.rng.choice((0, 0, 0, self.rng.randrange(n)))
        end = self.rng.choice((n, n, self.rng.randrange(first, n) + 1))
        self.split = SplitNodes(self.nodes[first:end], self.nodes[end : end + SEEN_BEHIND])

    def _layer(self) -> None:
        rng = self.rng
        n_experts = rng.choice((8, 8, 64, 288, 12))
        logits = self._node(Op.MUL_MAT, self._weight(32, n_experts), self.x, ne=(n_experts, self.x.ne[1]))
        ids, weights = self._choice(logits, rng.choice((1, 2, 2, 4, 16)))
        if rng.random() < 0.05:
            return
        if rng.random() < 0.3:
            self._node(Op.SCALE, self.x)
        self._experts(ids, weights, n_experts)

    def _choice(self, logits: Tensor, n_used: int) -> tuple[Tensor, Tensor]:
        rng = self.rng
        n_experts, n_tokens = logits.ne[:2]
        n_used = min(n_used, n_experts)
        gating = rng.choice((Op.SOFT_MAX, Op.SOFT_MAX, UnaryOp.SIGMOID, UnaryOp.SOFTPLUS, UnaryOp.RELU))
        if isinstance(gating, Op):
            scale = rng.choice((1.0, 1.0, 1.0, 1.0, 0.5))
            mask = [self._leaf("mask", n_experts, n_tokens)] if rng.random() < 0.1 else []
            probs = self._node(gating, logits, *mask, params=(float_bits(scale), rng.choice((0, 0, -(2**31)))))
        else:
            probs = self._node(Op.UNARY, logits, params=(int(gating),))
            if gating == UnaryOp.SOFTPLUS and rng.random() < 0.8:
                probs = self._node(Op.SQRT, probs)
        shaped = self._reshape(probs, 1, n_experts, n_tokens)
        compared = self._node(Op.ADD, probs, self._leaf("bias", n_experts)) if rng.random() < 0.4 else probs
        order = self._node(Op.ARGSORT, compared, type="i32")
        ids = self._view(order, (n_used, n_tokens, 1, 1), order.nb)
        weights = self._node(Op.GET_ROWS, shaped, ids, ne=(1, n_used, n_tokens))
        if rng.random() < 0.6:
            flat = self._reshape(weights, n_used, n_tokens)
            total = self._node(Op.SUM_ROWS, flat, ne=(1, n_tokens))
            least = self._node(Op.CLAMP, total)
            weights = self._reshape(self._node(Op.DIV, flat, least), 1, n_used, n_tokens)
        if rng.random() < 0.4:
            weights = self._node(Op.SCALE, weights)
        return ids, weights

    def _experts(self, ids: Tensor, weights: Tensor, n_experts: int) -> None:
        rng = self.rng
        n_used, n_tokens = ids.ne[:2]
        x = self.x
        shaped = self._reshape(x, x.ne[0], 1, n_tokens)
        type, glu = rng.choice(_QUANTS), rng.choice(_GLUS)
        ne = (64, n_used, n_tokens)
        gate, up = (self._weight(32, 64, n_experts, type=type) for _ in range(2))
        products = [self._node(Op.MUL_MAT_ID, w, shaped, ids, ne=ne) for w in (gate, up)]
        if rng.random() < 0.3:
            products.reverse()
        gated = self._node(Op.GLU, *products, params=(int(glu), 0))
        down = self._node(
            Op.MUL_MAT_ID, self._weight(64, 32, n_experts, type=type), gated, ids, ne=(32, n_used, n_tokens)
        )
        out = self._sum(down, weights)
        if rng.random() < 0.7:
            shared = [self._node(Op.MUL_MAT, self._weight(32, 64, type=type), x, ne=(64, n_tokens)) for _ in range(2)]
            gated = self._node(Op.GLU, *shared, params=(int(glu), 0))
            shared_out = self._node(Op.MUL_MAT, self._weight(64, 32, type=type), gated, ne=(32, n_tokens))
            out = self._node(Op.ADD, out, shared_out)
        self.x = out

    def _sum(self, experts: Tensor, weights: Tensor) -> Tensor:
        rng = self.rng
        n, n_used, n_tokens = experts.ne[:3]
        product = experts
        if rng.random() < 0.3:
            product = self._product(product, self._leaf("scale", 1, n_used, n_tokens))
        product = self._product(product, weights)
        views, total = [], None
        early = rng.random() < 0.3
        for i in range(n_used):
            views.append(
                self._view(
                    product, (n, n_tokens, 1, 1), (4, product.nb[2], product.nb[2] * n_tokens), i * product.nb[1]
                )
            )
            if early and i:
                total = self._node(Op.ADD, total or views[0], views[i])
        if not early:
            for view in views[1:]:
                total = self._node(Op.ADD, total or views[0], view)
        return total if total is not None else self._reshape(views[0], n, n_tokens)

    def _product(self, a: Tensor, b: Tensor) -> Tensor:
        sources = (a, b) if self.rng.random() < 0.9 else (b, a)
        return self._node(Op.MUL, *sources, ne=a.ne)

    def _spoil(self) -> None:
        """Something that keeps nodes from being fused, or only looks so."""
        rng = self.rng
        node = rng.choice(self.nodes)
        match rng.randrange(7):
            case 0:
                node.flags |= FLAG_OUTPUT
            case 1:
                self._node(Op.SCALE, node)
            case 2:
                self.nodes.insert(rng.randrange(len(self.nodes)), self.b.node("late", Op.SCALE, self.nodes[0]))
            case 3:
                node.src[rng.randrange(len(node.src))] = rng.choice(
                    self.nodes[: self.nodes.index(node)] or [self._leaf("l", 32)]
                )
            case 4:
                node.set_layout(node.ne, (node.nb[0], *(nb + 16 for nb in node.nb[1:])))
            case 5:
                node.op_params = (*(node.op_params or (0,))[:1], 1, 0, rng.choice((0, 7)))
            case 6:
                i = rng.randrange(len(self.nodes) - 1)
                self.nodes[i], self.nodes[i + 1] = self.nodes[i + 1], self.nodes[i]

    def _leaf(self, name: str, *ne: int, type: str = "f32") -> Tensor:
        return self.b.leaf(name, *ne, type=type)

    def _weight(self, *ne: int, type: str = "f32") -> Tensor:
        w = self._leaf("w", *ne, type=type)
        w.buffer = WEIGHTS if self.rng.random() < 0.97 else None
        return w

    def _node(
        self, op: Op, *src: Tensor, ne: tuple[int, ...] | None = None, type: str = "f32", params: tuple[int, ...] = ()
    ) -> Tensor:
        name = f"n{len(self.nodes)}"
        self.nodes.append(self.b.node(name, op, *src, ne=ne, type=type, params=params))
        return self.nodes[-1]

    def _reshape(self, t: Tensor, *ne: int) -> Tensor:
        self.nodes.append(self.b.view(f"n{len(self.nodes)}", t, *ne, op=Op.RESHAPE))
        return self.nodes[-1]

    def _view(self, t: Tensor, ne: tuple[int, int, int, int], nb: tuple[int, ...], offset: int = 0) -> Tensor:
        view = self.b.view(f"n{len(self.nodes)}", t, *ne, offset=offset)
        view.set_layout(ne, (*nb, nb[-1])[:4])  # type: ignore[arg-type]
        self.nodes.append(view)
        return view
