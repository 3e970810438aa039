"""The scheduler's calls: reserve, alloc, reset, synchronize; its own graph, its arena and its limits."""

from __future__ import annotations

import pytest

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import Backend, Device, op_table
from ggmltool.ggml.devices.profile import make_buft, make_device
from ggmltool.ggml.devices.profiles import PROFILES
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert
from ggmltool.ggml.events import Entered, Grown, IdsChanged, Left, Logged, ReallocNeeded, Synchronized
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.registry import float_bits
from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from ggmltool.ggml.sched.scheduler import Scheduler
from ggmltool.ggml.tensor import FLAG_OUTPUT, Tensor
from ggmltool.ggml.why import Why
from tests.ggml.sched.bench import Bench, device, names


def two_layers(b: Bench) -> tuple[Tensor, Tensor, Tensor]:
    """An input, a product on the GPU and one on the CPU."""
    t = b.parse("w:8,8@0 u:8,8@1 x:8,2! h=MUL_MAT(w,x) y=MUL_MAT(u,h)")
    return t["x"], t["h"], t["y"]


def test_its_own_graph_has_a_dependency_and_a_copy_before_each_split() -> None:
    b = Bench()
    x, _, y = two_layers(b)
    g = b.split(y)
    assert names(b.sched.nodes) == ["x (view)", "GPU0#x#0", "h", "h (view)", "CPU#h#0", "y"]
    assert [b.sched.names[i] for i in b.sched.node_ids] == ["CPU", "GPU0", "GPU0", "GPU0", "CPU", "CPU"]
    assert b.sched.leafs == g.leafs
    dependency = b.sched.nodes[0]
    assert (dependency.op, dependency.view_src, dependency.src) == (Op.NONE, x, [x])
    assert names(g.nodes) == ["h", "y"]


def test_with_pipeline_copies_all_of_them_are_leafs() -> None:
    b = Bench(parallel=True)
    _, _, y = two_layers(b)
    g = b.split(y)
    copies = ["x", *(f"CPU#x#{c}" for c in (1, 2, 3)), *(f"GPU0#x#{c}" for c in range(4))]
    assert names(b.sched.leafs) == [*copies, *(f"CPU#h#{c}" for c in range(4)), *names(g.leafs)]


def test_alloc_gives_every_tensor_memory() -> None:
    b = Bench()
    x, h, y = two_layers(b)
    b.alloc(y)
    assert [t.buffer.buft.name for t in (x, h, y) if t.buffer] == ["CPU", "GPU0", "CPU"]
    assert b.sched.is_alloc


def test_reserve_makes_the_buffers_and_leaves_the_tensors_alone() -> None:
    b = Bench()
    x, h, y = two_layers(b)
    assert b.sched.reserve(b.graph(y))
    assert (b.sched.get_buffer_size(0), b.sched.get_buffer_size(1)) == (256, 128)
    assert h.buffer is None
    assert b.sched.is_reset
    assert not b.sched.is_alloc
    # What was assigned is known after the reset that ends it.
    assert [b.backend(t) for t in (x, h, y)] == ["CPU", "GPU0", "CPU"]
    assert [b.sched.ids[t.index] for t in (x, h, y)] == [-1, -1, -1]


def test_allocating_what_was_reserved_makes_no_new_buffers() -> None:
    b = Bench()
    two = two_layers(b)
    b.sched.reserve(b.graph(two[2]))
    grown = len(b.of(Grown))
    b.alloc(two_layers(b)[2])
    assert len(b.of(Grown)) == grown == 2
    # The ids are those of the reserved graph, and the plan serves.
    assert b.of(ReallocNeeded) == []
    assert [e.at for e in b.of(IdsChanged)] == []


def test_a_graph_is_allocated_once_between_resets() -> None:
    b = Bench()
    b.alloc(two_layers(b)[2])
    with pytest.raises(GgmlAssert) as error:
        b.sched.alloc_graph(b.graph(two_layers(b)[2]))
    assert error.value.condition == "!sched->is_alloc"
    b.sched.reset()
    b.alloc(two_layers(b)[2])


def test_reset_forgets_assignments_by_the_user() -> None:
    b = Bench()
    x = b.input("x", 8)
    y = b.node("y", Op.SIN, x)
    b.sched.set_tensor_backend(y, 1)
    b.split(y)
    assert (b.backend(y), b.cause(y)) == ("CPU", "usr")
    b.sched.reset()
    b.split(y)
    assert b.cause(y) != "usr"


def test_an_assignment_before_a_reset_without_a_split_is_forgotten_too() -> None:
    b = Bench()
    y = b.node("y", Op.SIN, b.placed("x", 8, on=0))
    b.sched.set_tensor_backend(y, 1)
    b.sched.reset()
    b.split(y)
    assert b.backend(y) == "GPU0"


def test_a_graph_that_was_split_keeps_pointing_to_slots_that_the_next_split_fills_anew() -> None:
    b = Bench()
    _, h, y = two_layers(b)
    b.split(y)
    copy = h.src[1]
    assert copy is not None
    assert copy.name == "GPU0#x#0"
    z = b.input("z", 64, 2)
    w = b.weight("w2", 64, 64, on=0)
    b.sched.reset()
    b.split(b.node("other", Op.MUL_MAT, w, z, ne=(64, 2)))
    assert (h.src[1].name, h.src[1].ne[:2]) == ("GPU0#z#0", (64, 2))  # type: ignore[union-attr]


def test_the_next_pipeline_copy_is_used_by_the_next_allocation() -> None:
    b = Bench(parallel=True)
    seen = []
    for _ in range(5):
        x, _, y = two_layers(b)
        b.alloc(y)
        seen.append(b.sched.cur_copy)
        assert x.flags & FLAG_OUTPUT
        b.sched.reset()
    assert seen == [0, 1, 2, 3, 0]
    b.sched.synchronize()
    b.alloc(two_layers(b)[2])
    assert b.sched.cur_copy == 0


def test_synchronizing_an_allocated_graph_keeps_the_order_of_copies() -> None:
    b = Bench(parallel=True)
    b.alloc(two_layers(b)[2])
    b.sched.synchronize()
    assert b.sched.next_copy == 1


def test_reserve_waits_for_all_backends_first() -> None:
    b = Bench()
    b.sched.reserve(b.graph(two_layers(b)[2]))
    assert b.of(Synchronized) == [Synchronized("GPU0"), Synchronized("CPU")]
    assert b.events[0] == Entered("ggml_backend_sched_reserve")
    assert b.events[-1] == Left("ggml_backend_sched_reserve")


def test_what_is_entered_is_left_in_reverse_order() -> None:
    b = Bench()
    b.sched.reserve(b.graph(two_layers(b)[2]))
    b.alloc(two_layers(b)[2])
    stack: list[str] = []
    for e in b.events:
        if isinstance(e, Entered):
            stack.append(e.function)
        elif isinstance(e, Left):
            assert stack.pop() == e.function
    assert stack == []


def test_more_tensors_than_the_hash_set_holds_are_ggmls_assertion() -> None:
    b = Bench(graph_size=2)
    with pytest.raises(GgmlAssert) as error:
        b.sched.reserve(b.graph(two_layers(b)[2]))
    assert error.value.condition == "(int)sched->hash_set.size >= measure_graph->n_nodes + measure_graph->n_leafs"
    with pytest.raises(GgmlAssert) as error:
        b.sched.alloc_graph(b.graph(two_layers(b)[2]))
    assert error.value.condition == "(int)sched->hash_set.size >= graph->n_nodes + graph->n_leafs"


def test_two_graphs_without_a_reset_share_the_hash_set() -> None:
    b = Bench(graph_size=5)
    b.split(two_layers(b)[2])
    with pytest.raises(GgmlAbort) as error:
        b.split(two_layers(b)[2])
    assert error.value.function == "ggml_hash_find_or_insert"


def test_the_arena_has_room_for_60_tensors_a_node() -> None:
    sched = Bench(graph_size=10).sched
    assert sched.arena.capacity == (10 * 60 * 336 + DEFAULT.graph_overhead(10)) // 368


def test_the_last_backend_is_a_cpu() -> None:
    with pytest.raises(GgmlAssert, match="GGML_BACKEND_DEVICE_TYPE_CPU"):
        Bench(device("CPU", "cpu"), device("GPU0"))


def test_there_are_at_most_16_backends_and_at_least_one() -> None:
    backends = [*(device(f"GPU{i}") for i in range(16)), device("CPU", "cpu")]
    with pytest.raises(GgmlAssert, match="GGML_SCHED_MAX_BACKENDS"):
        Bench(*backends)
    Bench(*backends[1:])
    with pytest.raises(GgmlAssert, match="n_backends > 0"):
        Scheduler([], Bench().ctx.indices, Bench().addresses)


def test_a_backend_uses_its_own_default_buffer_type() -> None:
    foreign = BufferType("X", "X")
    odd = Device("GPU0", "gpu", foreign, op_table((), True))
    odd.bufts = frozenset()
    with pytest.raises(GgmlAssert, match="ggml_backend_supports_buft"):
        Bench(Backend("GPU0", odd), device("CPU", "cpu"))


def test_graph_inputs_beyond_30_are_logged() -> None:
    for ggml, level in (("0.20.2", "warn"), ("0.26", "debug")):
        b = Bench(parallel=True, release=RELEASES[ggml])
        t = b.node("h", Op.MUL_MAT, b.weight("w", 8, 8, on=0), b.input("x", 8, 2), ne=(8, 2))
        for i in range(31):
            t = b.node(f"n{i}", Op.ADD, t, b.input(f"x{i}", 8, 2))
        b.split(t)
        logged = {(e.level, e.text) for e in b.of(Logged)}
        assert (level, "ggml_backend_sched_graph_inputs_grow: increasing graph inputs capacity from 30 to 60") in logged
        assert {said for said, _ in logged} == {level}


def attention(b: Bench, rows: int, heads: int) -> Tensor:
    """Attention on a quantized cache: `rows` times `heads` is what its result takes."""
    q = b.input("q", 128, rows, heads)
    k, v = b.placed("k", 128, 256, 2, on=0, type="q8_0"), b.placed("v", 128, 256, 2, on=0, type="q8_0")
    mask = b.input("mask", 256, 64, type="f16")
    return b.node("y", Op.FLASH_ATTN_EXT, q, k, v, mask, ne=(128, heads, rows), type="f32", params=(float_bits(1.0), 0))


def test_14_attention_of_another_batch_may_outgrow_the_plan_though_its_bytes_fit() -> None:
    profile = PROFILES["CUDA"]
    cuda = Backend("CUDA0", make_device(profile, "CUDA0", make_buft(profile, "CUDA0", "CUDA0")))
    b = Bench(cuda, device("CPU", "cpu"))
    few, many = attention(b, 2, 4), attention(b, 4, 2)
    assert few.nbytes == many.nbytes
    b.sched.reserve(b.graph(few))
    b.alloc(many)
    outgrown = [e for e in b.of(ReallocNeeded) if e.tensor == "y"]
    copies = 2 * (2 * 128 * 256 * 2)
    assert [(e.why, e.old_size, e.new_size) for e in outgrown] == [(Why.LARGER, 4096, 4096 + copies)]
