"""Random graphs of what Vulkan's graph_optimize looks for: runs of ops that it keeps, and nearly such runs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ggmltool.ggml.buffer import USAGE_WEIGHTS, AddressSpace, Buffer, BufferType
from ggmltool.ggml.devices.vulkan import KEPT
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import Op, UnaryOp
from ggmltool.ggml.tensor import FLAG_COMPUTE, FLAG_OUTPUT, Tensor
from tests.ggml.graphs import Builder

NE = (8, 8, 4)
RUNS: tuple[tuple[int, ...], ...] = (
    *KEPT,
    (Op.GET_ROWS, Op.PERMUTE, Op.CONT, Op.CPY, Op.RESHAPE, Op.ADD, Op.TOP_K),
    (Op.RMS_NORM, Op.MUL, Op.ADD, Op.MUL),
    (Op.RMS_NORM, Op.MUL, Op.ADD),
    (Op.RMS_NORM, Op.MUL, Op.ROPE, Op.VIEW, Op.SET_ROWS),
    (Op.RMS_NORM, Op.VIEW, Op.SET_ROWS),
    (Op.ROPE, Op.VIEW, Op.SET_ROWS),
    (Op.SCALE, Op.UNARY, Op.SCALE, Op.DSV4_HC_POST),
    (Op.RMS_NORM, Op.MUL),
    (Op.UNARY, Op.MUL),
    (Op.MUL_MAT, Op.ADD, Op.ADD),
    (Op.MUL_MAT_ID, Op.ADD_ID, Op.MUL),
    (Op.MUL_MAT_ID, Op.MUL),
    (Op.SSM_CONV, Op.ADD, Op.UNARY),
    (Op.SSM_CONV, Op.UNARY),
)
"""What one shader computes, whole or as pairs."""

ALONE = (
    Op.ADD, Op.MUL, Op.RMS_NORM, Op.MUL_MAT, Op.ROPE, Op.UNARY, Op.UNARY, Op.GLU, Op.SCALE, Op.SOFT_MAX, Op.CONT,
    Op.SET_ROWS, Op.CPY, Op.VIEW, Op.RESHAPE, Op.PERMUTE, Op.ARGSORT, Op.GET_ROWS, Op.FLASH_ATTN_EXT,
)  # fmt: skip
VIEWS = frozenset((Op.VIEW, Op.RESHAPE, Op.PERMUTE))
WRITES = frozenset((Op.SET_ROWS, Op.CPY))
FUNCTIONS = (UnaryOp.SILU, UnaryOp.SIGMOID, UnaryOp.GELU, UnaryOp.SOFTPLUS, UnaryOp.RELU, UnaryOp.EXP)


class Maker:
    """A graph in the making."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"vulkan order {seed}")
        self.b = Builder()
        self.nodes: list[Tensor] = []
        self.leafs = [self.b.leaf(f"w{i}", *self.shape(), type=self.type()) for i in range(5)]
        weights = Buffer(BufferType("Vulkan0", "Vulkan0"), 0, AddressSpace())
        weights.usage = USAGE_WEIGHTS
        for leaf in self.leafs[:2]:
            leaf.buffer = weights
        self.independence = self.rng.choice((0.05, 0.05, 0.2))
        self.not_computed = self.rng.choice((0, 0, 0.02, 0.15))
        self.caches = [self.b.leaf(f"c{i}", *NE) for i in range(3)]

    def type(self) -> str:
        return self.rng.choice(("f32", "f32", "f32", "f32", "f16"))

    def shape(self) -> tuple[int, ...]:
        return self.rng.choice((NE, NE, NE, NE, (8, 8, 1), (8, 1, 1), (4, 8, 4)))

    def leaf(self) -> Tensor:
        return self.rng.choice(self.leafs)

    def recent(self) -> Tensor:
        """A node, most likely one of the last ones, or a leaf."""
        if not self.nodes or self.rng.random() < 0.2:
            return self.leaf()
        return self.rng.choice(self.nodes[-self.rng.choice((1, 2, 4, 12, 40)) :])

    def add(self, op: int, first: Tensor) -> Tensor:
        """A node of this op, whose first source, or for some ops second one, is `first`."""
        rng, name = self.rng, f"n{len(self.nodes)}"
        if op in VIEWS:
            root = first if first.view_src is None else first.view_src
            made = self.b.view(name, root, op=Op(op), src=(first,))
            if rng.random() < 0.2:
                nb0, nb1, nb2, nb3 = made.nb
                made.set_layout(made.ne, rng.choice(((nb0, nb2, nb1, nb3), (nb0, nb1 + 4, nb2 + 64, nb3 + 256))))
        elif op in WRITES or rng.random() < (0.15 if op in (Op.ROPE, Op.RMS_NORM) else 0.05):
            cache = rng.choice(self.caches) if op in WRITES and rng.random() < 0.8 else self.recent()
            root = cache if cache.view_src is None else cache.view_src
            made = self.b.view(name, root, op=Op(op), src=(first, self.leaf(), cache))
        else:
            made = self.b.node(name, Op(op), *self.sources(op, first), ne=self.shape(), type=first.type.name)
        if op == Op.UNARY:
            made.op_params = (int(rng.choice(FUNCTIONS)),)
        if rng.random() < 0.04:
            made.flags |= FLAG_OUTPUT
        self.nodes.append(made)
        return made

    def sources(self, op: int, first: Tensor) -> list[Tensor]:
        rng = self.rng
        if op in (Op.UNARY, Op.SCALE, Op.RMS_NORM):
            return [first]
        # Vulkan looks at no position of a ROPE whether it is there.
        second = self.leaf() if op == Op.ROPE and rng.random() < 0.9 else self.recent()
        if rng.random() < 0.5:
            second = self.leaf()
        sources = [first, second] if rng.random() < 0.75 or op == Op.ROPE else [second, first]
        return sources + ([self.recent()] if op in (Op.DSV4_HC_POST, Op.ADD_ID) or rng.random() < 0.1 else [])

    def run(self, ops: tuple[int, ...]) -> None:
        """A run of ops, each of which reads the one before; now and then with something between, missing or other."""
        rng = self.rng
        last = self.recent()
        apart = rng.random() < 0.2
        for op in ops:
            if apart and rng.random() < 0.4:
                self.gap()
            roll = rng.random()
            if roll < 0.03:
                continue
            if roll < 0.1:
                self.one()
            last = self.add(
                rng.choice(ALONE) if roll > 0.98 else op, last if rng.random() > self.independence else self.recent()
            )

    def gap(self) -> None:
        """Some nodes that wait for nothing, so that what follows is about as far away as Vulkan looks."""
        for _ in range(self.rng.randint(10, 16)):
            self.add(self.rng.choice((Op.SCALE, Op.VIEW, Op.RESHAPE)), self.leaf())

    def one(self) -> None:
        self.add(self.rng.choice(ALONE), self.recent())

    def shuffle(self) -> None:
        """Let neighbors change their places where neither needs the other."""
        share = self.rng.choice((0, 0, 0.1, 0.4))
        for _ in range(2):
            for i in range(len(self.nodes) - 1):
                a, b = self.nodes[i : i + 2]
                if self.rng.random() < share and a is not b.view_src and all(s is not a for s in b.src):
                    self.nodes[i : i + 2] = [b, a]


def graph(seed: int) -> CGraph:
    """A graph of some dozen nodes; a few are not to be computed."""
    m = Maker(seed)
    makers: list[Callable[[], None]] = [m.one, lambda: m.run(m.rng.choice(RUNS)), lambda: m.run(m.rng.choice(RUNS))]
    for _ in range(m.rng.randint(1, 14)):
        m.rng.choice(makers)()
    m.shuffle()
    made = m.b.graph(*m.nodes)
    made.nodes = m.nodes
    for node in m.nodes:
        if m.rng.random() < m.not_computed:
            node.flags &= ~FLAG_COMPUTE
    return made
