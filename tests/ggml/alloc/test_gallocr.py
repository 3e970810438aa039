"""The graph allocator: who is computed in whose memory, what is freed when, and when a plan serves no more."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggmltool.ggml.buffer import USAGE_COMPUTE, AddressSpace, Buffer, BufferType, tensor_alloc
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, GgmlFailed
from ggmltool.ggml.events import Allocated, Event, Freed, Grown, Kept, NotReused, ReallocNeeded, Reused
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import INPLACE_OPS, Op
from ggmltool.ggml.telling import Telling
from ggmltool.ggml.tensor import FLAG_INPUT, FLAG_OUTPUT, Tensor
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.ggml.why import Facts, Why
from tests.ggml.graphs import Builder
from tests.invariants import check_graph


def plain(name: str = "B", alignment: int = 32, max_size: int = SIZE_MAX, row_padding: int = 0) -> BufferType:
    return BufferType(name, name, alignment, max_size, row_padding)


@dataclass
class Bench:
    """An allocator with the events it announced. `strict` checks that nothing overlaps after every allocation."""

    bufts: list[BufferType] = field(default_factory=lambda: [plain()])
    strict: bool = True

    def __post_init__(self) -> None:
        self.events: list[Event] = []
        self.gallocr = Telling(self.bufts, AddressSpace())
        self.gallocr.tell = self.events.append

    def reserve(self, b: Builder, g: CGraph, ids: dict[str, int] | None = None) -> None:
        node_ids = [ids.get(t.name, 0) for t in g.nodes] if ids is not None else None
        leaf_ids = [ids.get(t.name, 0) for t in g.leafs] if ids is not None else None
        self.gallocr.reserve_n(g.nodes, g.leafs, node_ids, leaf_ids, b.n_tensors)

    def alloc(self, b: Builder, g: CGraph) -> bool:
        ok = self.gallocr.alloc_graph(g.nodes, g.leafs, b.n_tensors)
        if ok and self.strict:
            sizes = {
                (buft.name, c.chunk): c.size
                for buft, v in zip(self.bufts, self.gallocr.buffers, strict=True)
                for c in (v.chunks if v is not None else ())
            }
            assert check_graph(g.nodes, g.leafs, sizes) == []
        return ok

    def place(self, b: Builder, *outputs: Tensor, ids: dict[str, int] | None = None) -> int:
        """Reserves and allocates; the size of the first buffer."""
        g = b.graph(*outputs)
        self.reserve(b, g, ids)
        assert self.alloc(b, g)
        return self.gallocr.get_buffer_size(0)

    def of(self, kind: type) -> list:  # type: ignore[type-arg]
        return [e for e in self.events if isinstance(e, kind)]


def offset(t: Tensor) -> int:
    assert t.buffer is not None
    return t.data - t.buffer.base


def chain(b: Builder, *ops: Op) -> list[Tensor]:
    out = [b.input("x", 64)]
    for i, op in enumerate(ops):
        out.append(b.node(f"n{i}", op, out[-1]))
    return out


@dataclass
class Case:
    """A graph (`Builder.parse`), the outputs by which it is built, and what becomes of it."""

    graph: str
    outputs: str
    size: int
    offsets: str
    """Of each tensor in turn, views left out."""
    not_reused: tuple[NotReused, ...] = ()
    reused: str = ""
    freed: str | None = None


CASES = {
    "a chain of ops in place needs the memory of its input only": Case(
        "x:64! a=SCALE(x) b=SQR(a) c=LOG(b)", "c", 256, "0 0 0 0", reused="x a b"
    ),
    "a chain of other ops goes back and forth between two places": Case(
        "x:64! a=SIN(x) b=COS(a) c=SIN(b) d=COS(c)", "d", 512, "0 256 0 256 0", freed="x a b c"
    ),
    "a source with another user to come is not overwritten": Case(
        "x:64! first=SQR(x) second=SQRT(x) sum=ADD(first,second)",
        "sum",
        512,
        "0 256 0 256",
        (NotReused("first", "x", Why.CHILDREN, Facts(n_children=2)),),
        reused="x first",
    ),
    "an output is neither overwritten nor freed": Case(
        "x:64! kept=SIN(x)! last=SQR(kept)", "last", 512, "0 256 0", (NotReused("last", "kept", Why.OUTPUT),), freed="x"
    ),
    "inputs have their memory before the first node": Case(
        "x:64! late:64! a=SIN(x) c=SIN(a) sum=ADD(c,late)", "sum", 768, "0 256 512 0 0", reused="c"
    ),
    "a root that a view still shows is not reused in place": Case(
        "x:64! root=SIN(x) view=VIEW(root) square=SQR(root) sum=ADD(square,view)",
        "view square sum",
        512,
        "0 256 0 0",
        (NotReused("square", "root", Why.VIEWS, Facts(n_views=1)),),
        reused="square",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_what_becomes_of_a_graph(case: Case) -> None:
    b, bench = Builder(), Bench()
    tensors = b.parse(case.graph)
    assert bench.place(b, *(tensors[name] for name in case.outputs.split())) == case.size
    assert [offset(t) for t in tensors.values() if t.op != Op.VIEW] == [int(n) for n in case.offsets.split()]
    assert bench.of(NotReused)[: len(case.not_reused)] == list(case.not_reused)
    assert [e.parent for e in bench.of(Reused)] == case.reused.split()
    assert bench.of(Kept) == [Kept(t.name) for t in tensors.values() if t.flags & FLAG_OUTPUT]
    if case.freed is not None:
        assert [e.tensor for e in bench.of(Freed)] == case.freed.split()


NAMES = (
    "FILL SCALE DIAG_MASK_ZERO DIAG_MASK_INF ADD ADD_ID ADD1 SUB MUL DIV SQR SQRT LOG UNARY ROPE ROPE_BACK SILU_BACK "
    "RMS_NORM RMS_NORM_BACK SOFT_MAX SOFT_MAX_BACK"
)


def test_the_ops_in_place_are_ggmls_and_reuse_their_source() -> None:
    assert {op.name for op in INPLACE_OPS} == set(NAMES.split())
    for op in Op:
        if op not in (Op.NONE, Op.VIEW, Op.RESHAPE, Op.PERMUTE, Op.TRANSPOSE):
            b = Builder()
            x, y = chain(b, op)
            Bench().place(b, y)
            assert (offset(x) == offset(y)) == (op in INPLACE_OPS), op


def test_any_source_will_do_and_the_first_is_taken() -> None:
    b, bench = Builder(), Bench()
    t = b.parse("small:1! x:64! y:64!")
    sum = b.node("sum", Op.ADD, *t.values(), ne=(64,))
    bench.place(b, sum)
    assert offset(sum) == offset(t["x"])
    assert bench.of(NotReused) == [NotReused("sum", "small", Why.LAYOUT)]


def test_a_node_flagged_input_has_its_memory_before_the_first_node_too() -> None:
    b, bench = Builder(), Bench()
    state = b.parse("x:64! a=SIN(x) state=COS(a)")["state"]
    state.flags |= FLAG_INPUT
    bench.place(b, state)
    assert [e.tensor for e in bench.of(Allocated)] == ["x", "state", "a"]


def test_a_view_needs_no_memory_and_keeps_its_root_until_its_own_last_use() -> None:
    b, bench = Builder(), Bench()
    t = b.parse("x:64! root=SIN(x)")
    root = t["root"]
    view = b.view("view", root, 32, offset=128)
    other = b.node("other", Op.COS, root)
    last = b.node("last", Op.SIN, view)
    bench.place(b, other, last, b.node("end", Op.ADD, other, last, ne=(64,)))
    assert view.data == root.data + 128
    assert offset(last) not in range(offset(root), offset(root) + 256)
    freed = [e.tensor for e in bench.of(Freed)]
    assert freed.index("root") > freed.index("x")


def test_tensors_with_memory_of_their_own_are_left_alone() -> None:
    b, bench = Builder(), Bench()
    weight, x = b.leaf("w", 64), b.input("x", 64)
    buffer = bench.bufts[0]
    tensor_alloc(Buffer(buffer, 256, AddressSpace()), weight, 0)
    y = b.node("y", Op.MUL, weight, x)
    assert bench.place(b, y) == 256
    assert weight.buffer is not y.buffer
    assert y.buffer is not None
    assert y.buffer.usage == USAGE_COMPUTE
    assert offset(y) == offset(x)
    assert bench.of(NotReused) == [NotReused("y", "w", Why.PREALLOCATED)]


def test_every_buffer_id_has_a_planner_of_its_own() -> None:
    b, bench = Builder(), Bench([plain("G", 128), plain("C", 32)])
    x, on_c, on_g = chain(b, Op.SIN, Op.SIN)
    bench.place(b, on_g, ids={"x": 1, "n0": 1, "n1": 0})
    assert [t.buffer.buft.name for t in (x, on_c, on_g) if t.buffer] == ["C", "C", "G"]
    assert [bench.gallocr.get_buffer_size(i) for i in (0, 1)] == [256, 512]


def test_an_id_without_tensors_has_an_empty_buffer() -> None:
    b, bench = Builder(), Bench([plain("G"), plain("C")])
    _, y = chain(b, Op.SQR)
    bench.place(b, y, ids={"x": 1, "n0": 1})
    assert bench.gallocr.get_buffer_size(0) == 0
    assert bench.gallocr.buffers[0] is not None


def test_a_leaf_without_a_backend_is_ggmls_assertion() -> None:
    b, bench = Builder(), Bench()
    _, y = chain(b, Op.SQR)
    with pytest.raises(GgmlAssert) as error:
        bench.place(b, y, ids={"x": -1})
    assert error.value.condition == "buffer_id >= 0"


def test_more_roots_outside_the_graph_than_the_hash_set_has_room_for_abort() -> None:
    b, bench = Builder(), Bench()
    tensors = chain(b, *[Op.SIN] * 144)
    views = [b.view(f"v{i}", b.leaf(f"root{i}", 4), src=(tensors[-1],)) for i in range(60)]
    with pytest.raises(GgmlAbort) as error:
        bench.place(b, *views)
    assert error.value.function == "ggml_hash_find_or_insert"
    assert bench.gallocr.hash_size == 257


def simple(n: int = 64, ops: tuple[Op, ...] = (Op.SIN, Op.SIN)) -> tuple[Builder, CGraph]:
    b = Builder()
    x = b.input("x", n)
    for i, op in enumerate(ops):
        x = b.node(f"n{i}", op, x)
    return b, b.graph(x)


def test_an_equal_graph_is_served_by_the_plan() -> None:
    bench = Bench()
    first, again = simple(), simple()
    bench.reserve(*first)
    buffer = bench.gallocr.buffers[0]
    assert bench.alloc(*first)
    assert bench.alloc(*again)
    assert bench.gallocr.buffers[0] is buffer
    assert bench.of(ReallocNeeded) == []
    assert len(bench.of(Grown)) == 1


def test_a_smaller_graph_of_the_same_form_is_served_too() -> None:
    bench = Bench()
    bench.reserve(*simple(64))
    assert bench.alloc(*simple(16))
    assert bench.of(ReallocNeeded) == []


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (simple(65), ReallocNeeded(Why.LARGER, "n0", 256, 260, "n0")),
        (simple(64, (Op.SIN,)), ReallocNeeded(Why.N_NODES, "", 2, 1)),
    ],
)
def test_one_buffer_is_planned_anew_where_the_plan_does_not_serve(
    graph: tuple[Builder, CGraph], reason: ReallocNeeded
) -> None:
    bench = Bench()
    bench.reserve(*simple())
    assert bench.alloc(*graph)
    assert bench.of(ReallocNeeded) == [reason]


def test_of_several_buffers_the_caller_must_plan_anew() -> None:
    bench = Bench([plain("G"), plain("C")])
    b, g = simple()
    bench.reserve(b, g, {"x": 1})
    assert not bench.alloc(*simple(65))
    assert all(t.buffer is None for t in g.nodes)


def test_another_number_of_leafs_does_not_fit_the_plan() -> None:
    bench = Bench()
    bench.reserve(*simple())
    b = Builder()
    x = b.input("x", 64)
    g = b.graph(b.node("n0", Op.SIN, x), b.node("n1", Op.ADD, x, b.input("y", 64)))
    assert bench.alloc(b, g)
    assert bench.of(ReallocNeeded) == [ReallocNeeded(Why.N_LEAFS, "", 1, 2)]


def test_a_tensor_that_had_memory_when_the_plan_was_made_needs_a_new_plan_without_it() -> None:
    bench = Bench()
    b, g = simple()
    tensor_alloc(Buffer(bench.bufts[0], 256, AddressSpace()), g.leafs[0], 0)
    bench.reserve(b, g)
    assert bench.alloc(*simple())
    assert [(e.why, e.slot) for e in bench.of(ReallocNeeded)] == [(Why.PREALLOCATED, 0)]


def test_an_unused_leaf_that_lost_its_memory_is_not_noticed() -> None:
    bench = Bench()
    b = Builder()
    unused = b.leaf("unused", 64)
    tensor_alloc(Buffer(bench.bufts[0], 256, AddressSpace()), unused, 0)
    bench.reserve(b, b.graph(unused, b.node("n", Op.ARANGE, ne=(4,), type="f32")))
    b = Builder()
    g = b.graph(b.leaf("unused", 64), b.node("n", Op.ARANGE, ne=(4,), type="f32"))
    with pytest.raises(GgmlFailed):
        bench.alloc(b, g)


def test_buffers_grow_and_never_shrink() -> None:
    bench = Bench()
    for n in (64, 128, 32):
        bench.reserve(*simple(n))
    assert [(e.old_size, e.new_size) for e in bench.of(Grown)] == [(0, 512), (512, 1024)]
    assert bench.gallocr.get_buffer_size(0) == 1024


def test_the_hash_set_only_grows() -> None:
    bench = Bench()
    b, g = simple(4, (Op.SIN,) * 20)
    bench.reserve(b, g)
    assert bench.gallocr.hash_size == 37
    bench.reserve(*simple())
    assert bench.gallocr.hash_size == 37


def test_a_padded_parent_gives_its_tail_to_nobody_where_its_child_is_padded_too() -> None:
    b, bench = Builder(), Bench([plain(row_padding=512)])
    x = b.input("x", 64, type="q8_0")
    y = b.node("y", Op.SCALE, x)
    assert bench.place(b, y) == 68 + 476
    assert bench.of(Freed) == []


def test_a_parent_with_room_of_its_own_gives_the_tail_back() -> None:
    def size_of(t: Tensor) -> int:
        return t.nbytes + (1024 if t.op == Op.SIN else 0)

    b, bench = Builder(), Bench([BufferType("B", "B", alloc_size=size_of)])
    _, s = chain(b, Op.SIN)
    y = b.node("y", Op.SQR, s)
    z = b.node("z", Op.COS, y)
    bench.place(b, z)
    assert Freed("n0", "B", 0, 512, 1024, extra=True, asked=1024) in bench.of(Freed)
    assert offset(y) == offset(s) == 256


def test_a_child_that_needs_more_than_its_parent_is_ggmls_assertion() -> None:
    def size_of(t: Tensor) -> int:
        return t.nbytes + (1024 if t.op == Op.SQR else 0)

    b, bench = Builder(), Bench([BufferType("B", "B", alloc_size=size_of)])
    _, y = chain(b, Op.SQR)
    with pytest.raises(GgmlAssert) as error:
        bench.place(b, y)
    assert error.value.condition == "parent_size >= node_size"


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
    bench = Bench([plain("G", 128, max_size, 512 * padded), plain("C", 32)])
    bench.reserve(b, g, ids)
    assert bench.alloc(b, g)
    assert all(t.buffer is not None for t in g.nodes)
    freed = [e.tensor for e in bench.of(Freed) if not e.extra]
    assert len(freed) == len(set(freed))
    assert not {t.name for t in g.nodes if t.flags & FLAG_OUTPUT}.intersection(freed)


@given(st.integers(0, 1 << 32))
def test_planning_the_same_graph_again_changes_nothing(seed: int) -> None:
    b, g, ids = random_graph(seed)
    bench = Bench([plain("G", 128), plain("C", 32)])
    bench.reserve(b, g, ids)
    first = (bench.gallocr.node_allocs, bench.gallocr.leaf_allocs, bench.gallocr.buffers.copy())
    bench.reserve(b, g, ids)
    assert first == (bench.gallocr.node_allocs, bench.gallocr.leaf_allocs, bench.gallocr.buffers)
