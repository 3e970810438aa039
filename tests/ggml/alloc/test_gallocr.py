"""The graph allocator: laws on random graphs, and refusals. Its decisions are judged by the real library's
(`tests/conformance`).
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType, tensor_alloc
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, GgmlFailed
from ggmltool.ggml.events import Event, Freed
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import Op
from ggmltool.ggml.telling import Telling
from ggmltool.ggml.tensor import FLAG_INPUT, FLAG_OUTPUT, Tensor
from ggmltool.ggml.version import SIZE_MAX
from tests.ggml.graphs import Builder
from tests.invariants import check_graph


class Bench:
    """An allocator with the events it announced."""

    def __init__(self, *bufts: BufferType) -> None:
        self.bufts = bufts or (BufferType("B", "B"),)
        self.events: list[Event] = []
        self.gallocr = Telling(self.bufts, AddressSpace())
        self.gallocr.tell = self.events.append

    def reserve(self, b: Builder, g: CGraph, ids: dict[str, int] | None = None) -> None:
        node_ids, leaf_ids = ([(ids or {}).get(t.name, 0) for t in of] for of in (g.nodes, g.leafs))
        self.gallocr.reserve_n(g.nodes, g.leafs, node_ids, leaf_ids, b.n_tensors)

    def alloc(self, b: Builder, g: CGraph) -> bool:
        return self.gallocr.alloc_graph(g.nodes, g.leafs, b.n_tensors)

    def place(self, text: str) -> None:
        """Reserves and allocates the graph of `Builder.parse`."""
        b = Builder()
        g = b.graph(list(b.parse(text).values())[-1])
        self.reserve(b, g)
        assert self.alloc(b, g)


def larger(op: Op) -> BufferType:
    """A buffer type in which the results of an op take 1024 bytes more than they have."""

    def size_of(t: Tensor) -> int:
        return t.nbytes + (1024 if t.op == op else 0)

    return BufferType("B", "B", alloc_size=size_of)


def test_a_parent_with_room_of_its_own_gives_the_tail_back() -> None:
    bench = Bench(larger(Op.SIN))
    bench.place("x:64! s=SIN(x) y=SQR(s) z=COS(y)")
    assert Freed("s", "B", 0, 512, 1024, extra=True, asked=1024) in bench.events


def test_a_child_that_needs_more_than_its_parent_is_ggmls_assertion() -> None:
    with pytest.raises(GgmlAssert) as error:
        Bench(larger(Op.SQR)).place("x:64! y=SQR(x)")
    assert error.value.condition == "parent_size >= node_size"


def test_more_roots_outside_the_graph_than_the_hash_set_has_room_for_abort() -> None:
    b, bench = Builder(), Bench()
    tensors = [b.input("x", 64)]
    for i in range(144):
        tensors.append(b.node(f"n{i}", Op.SIN, tensors[-1]))
    views = [b.view(f"v{i}", b.leaf(f"root{i}", 4), src=(tensors[-1],)) for i in range(60)]
    with pytest.raises(GgmlAbort) as error:
        bench.reserve(b, b.graph(*views))
    assert error.value.function == "ggml_hash_find_or_insert"
    assert bench.gallocr.hash_size == 257


def test_an_unused_leaf_that_lost_its_memory_is_not_noticed() -> None:
    bench, b = Bench(), Builder()
    unused = b.leaf("unused", 64)
    tensor_alloc(Buffer(bench.bufts[0], 256, AddressSpace()), unused, 0)
    bench.reserve(b, b.graph(unused, b.node("n", Op.ARANGE, ne=(4,), type="f32")))
    b = Builder()
    g = b.graph(b.leaf("unused", 64), b.node("n", Op.ARANGE, ne=(4,), type="f32"))
    with pytest.raises(GgmlFailed):
        bench.alloc(b, g)


OPS = (Op.SQR, Op.SIN, Op.ADD, Op.MUL, Op.SCALE, Op.COS, Op.SOFT_MAX, Op.MUL_MAT, Op.CPY, Op.UNARY)


def random_graph(seed: int) -> tuple[Builder, CGraph, dict[str, int]]:
    """Any ops between tensors of a few sizes, with views, in-place nodes, casts and outputs; ids of two buffers."""
    rng = Random(seed)
    b = Builder()
    sizes = [rng.choice((0, 4, 16, 64, 65)) for _ in range(rng.randint(1, 3))]
    made = [b.leaf(f"x{i}", n, flags=rng.choice((0, FLAG_INPUT))) for i, n in enumerate(sizes)]
    for i in range(rng.randint(1, 25)):
        kind = rng.choice(("op", "op", "op", "view", "inplace", "cast"))
        src = rng.choices(made[-8:], k=rng.randint(1, 3))
        op = rng.choice(OPS)
        if kind == "view":
            t = b.view(f"n{i}", src[0])
        elif kind == "inplace":
            t = b.view(f"n{i}", src[0], op=op, src=src)
        else:
            ne = (rng.choice((4, 16, 64, 65)),) if rng.random() < 0.5 else src[0].ne
            t = b.node(f"n{i}", op if kind == "op" else Op.CPY, *src, ne=ne, output=rng.random() < 0.1)
            if kind == "cast":
                t.src.append(t)
        made.append(t)
    nodes = [t for t in made if t.op]
    g = b.graph(*rng.choices(nodes, k=rng.randint(1, 4)))
    return b, g, {t.name: rng.randrange(2) for t in (*g.leafs, *g.nodes)}


def has_bytes(g: CGraph) -> bool:
    """Whether every tensor has bytes: a buffer without any has no address, which ggml does not survive."""
    return all(t.nbytes for t in (*g.leafs, *g.nodes) if t.view_src is None)


@settings(max_examples=500)
@given(st.integers(0, 1 << 32), st.sampled_from((SIZE_MAX, 600)), st.booleans())
def test_whatever_the_graph_no_two_live_tensors_overlap(seed: int, max_size: int, padded: bool) -> None:
    b, g, ids = random_graph(seed)
    if not has_bytes(g):
        return
    bench = Bench(BufferType("G", "G", 128, max_size, 512 * padded), BufferType("C", "C"))
    bench.reserve(b, g, ids)
    assert bench.alloc(b, g)
    assert all(t.buffer is not None for t in g.nodes)
    sizes = {
        (buft.name, c.chunk): c.size
        for buft, made in zip(bench.bufts, bench.gallocr.buffers, strict=True)
        for c in (made.chunks if made is not None else ())
    }
    assert check_graph(g.nodes, g.leafs, sizes) == []
    freed = [e.tensor for e in bench.events if isinstance(e, Freed) and not e.extra]
    assert len(freed) == len(set(freed))
    assert not {t.name for t in g.nodes if t.flags & FLAG_OUTPUT}.intersection(freed)


@given(st.integers(0, 1 << 32))
def test_planning_the_same_graph_again_changes_nothing(seed: int) -> None:
    b, g, ids = random_graph(seed)
    bench = Bench(BufferType("G", "G", 128), BufferType("C", "C"))
    bench.reserve(b, g, ids)
    first = (bench.gallocr.node_allocs, bench.gallocr.leaf_allocs, bench.gallocr.buffers.copy())
    bench.reserve(b, g, ids)
    assert first == (bench.gallocr.node_allocs, bench.gallocr.leaf_allocs, bench.gallocr.buffers)
