"""The scheduler of January 2024: what it assigns, copies and measures, and what it refuses in which words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import ggmltool
from ggmltool.ggml.buffer import AddressSpace, BufferType
from ggmltool.ggml.context import Context, IndexSpace
from ggmltool.ggml.device import Backend, Device, DeviceType, op_table
from ggmltool.ggml.dtypes import F32, TYPES, DType
from ggmltool.ggml.errors import GgmlCrash, GgmlFailed, LineAssert
from ggmltool.ggml.events import Assigned, Event, InputAdded, Logged, SplitStarted
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.graph_copy import compare_graph_backend, graph_copy
from ggmltool.ggml.op import Op
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.releases.january_2024.graph_copy import Copier
from ggmltool.ggml.releases.january_2024.graph_plan import (
    graph_plan_compute,
    graph_plan_create,
    graph_plan_free,
    work_size,
)
from ggmltool.ggml.releases.january_2024.registry import MAX_BACKENDS_REG, NOT_FOUND, Registry
from ggmltool.ggml.releases.january_2024.scheduler import Scheduler
from ggmltool.ggml.releases.january_2024.state import memory_names
from ggmltool.ggml.releases.january_2024.tallocr import alloc_ctx_tensors_from_buft
from ggmltool.ggml.tensor import FLAG_OUTPUT, Dims, Tensor
from ggmltool.ggml.values.transfer import tensor_get, tensor_set
from ggmltool.scenario.run.measured import MeasuredRun
from ggmltool.scenario.scenario import Scenario

WEIGHTS = {
    "cpu": {"buft": "CPU", "usage": "weights", "tensors": {"wc": "f32[8, 8]"}},
    "gpu": {"buft": "GPU0", "usage": "weights", "tensors": {"wg": "f32[8, 8]"}},
}


def scenario(nodes: dict[str, Any], contexts: dict[str, Any] | None = None, **more: Any) -> Scenario:
    """A scenario with weights on a GPU and on the CPU; `x` has no memory of its own."""
    document = {
        "ggmltool": 1,
        "ggml": "2024-01",
        "backends": ["GPU0", "CPU"],
        "contexts": {**WEIGHTS, "in": {"tensors": {"x": "f32[8, 4]"}}, **(contexts or {})},
        "graphs": {"main": {"nodes": nodes}},
    }
    return ggmltool.load({**document, **more})


def run_of(s: Scenario, events: list[Event] | None = None) -> MeasuredRun:
    run = s.start(events.append if events is not None else None, debug=True)
    assert isinstance(run, MeasuredRun)
    return run


def assigned(plan: Plan) -> dict[str, tuple[str | None, str | None]]:
    return {n.id: (n.backend, n.cause) for n in plan.nodes} | {t.id: (t.backend, "") for t in plan.leafs}


def refusal(plan: Plan) -> dict[str, str | None]:
    assert plan.error is not None
    return dict(plan.error)


def test_a_gpu_spreads_up_and_down_and_the_cpu_only_where_no_gpu_came() -> None:
    nodes = {
        "before": "sqr(x)",
        "on_gpu": "mul_mat(wg, before)",
        "after": "sqr(on_gpu)",
        "on_cpu": "mul_mat(wc, after)",
        "last": "sqr(on_cpu)",
    }
    found = assigned(scenario(nodes).plan())
    assert found["before"] == ("GPU0", "2.1")
    assert found["after"] == ("GPU0", "2.2")
    assert found["last"] == ("CPU", "2.4")
    assert found["x"] == ("GPU0", "")


def test_up_from_the_cpu_is_rule_2_3() -> None:
    assert assigned(scenario({"a": "sqr(x)", "b": "mul_mat(wc, a)"}).plan())["a"] == ("CPU", "2.3")


def test_events_tell_the_rule_and_the_copies() -> None:
    events: list[Event] = []
    run_of(scenario({"a": "mul_mat(wg, x)", "b": "mul_mat(wc, a)"}), events).measure("main")
    causes = [(e.tensor, e.cause) for e in events if isinstance(e, Assigned)]
    assert causes == [("wg", "1.dst"), ("wc", "1.dst"), ("a", "1.wgt0"), ("b", "1.wgt0"), ("x", "3.cur")]
    assert [(e.backend, e.node) for e in events if isinstance(e, SplitStarted)] == [("GPU0", "a"), ("CPU", "b")]
    assert [e.copies for e in events if isinstance(e, InputAdded)] == [("CPU#a",)]


def test_an_input_of_two_splits_has_one_copy_that_is_filled_twice() -> None:
    nodes = {
        "a": "mul_mat(wg, x)",
        "b": "mul_mat(wc, a)",
        "c": "mul_mat(wg, b)",
        "d": "add(c, a)",
        "e": "mul_mat(wc, d)",
        "f": "add(e, a)",
    }
    plan = scenario(nodes).plan()
    assert [s.inputs for s in plan.splits] == [(), ("a",), ("b",), ("d", "a")]
    assert [c.name for c in plan.copies] == ["CPU#a", "GPU0#b", "CPU#d"]


def test_measuring_makes_buffers_and_computing_fits_into_them() -> None:
    run = run_of(scenario({"a": "mul_mat(wg, x)", "b": "mul_mat(wc, a)"}))
    measured = run.measure("main")
    assert dict(measured.measured) == {"GPU0": 256, "CPU": 256}
    assert dict(measured.buffer_sizes) == {"GPU0": 256, "CPU": 256 + 64}
    assert [t.buffer_size for t in measured.tallocs] == [1, 65]
    sched = run.start()
    assert not sched.is_measure
    assert sched.ids == [-1] * len(sched.ids)


def test_a_second_measuring_is_refused() -> None:
    run = run_of(scenario({"a": "mul_mat(wg, x)"}))
    run.measure("main")
    error = refusal(run.measure("main"))
    assert error["function"] == "ggml_backend_sched_init_measure"
    assert error["message"] == "GGML_ASSERT: ggml-backend.c:1403: ggml_tallocr_is_measure(sched->tallocs[0])"


def test_a_graph_of_inputs_alone_has_no_backend() -> None:
    error = refusal(scenario({"a": "sqr(x)"}).plan())
    assert (error["function"], error["condition"]) == ("sched_split_graph", "node_allocr != NULL")


def test_a_view_of_an_input_that_comes_first_has_no_backend() -> None:
    nodes = {"r": "reshape_1d(x, ne0=32)", "t": "sqr(r)", "s": "mul_mat(wg, x)"}
    error = refusal(scenario(nodes).plan())
    assert error["condition"] == "src_allocr != NULL"


def test_a_view_op_without_backend_is_read_through_null() -> None:
    nodes = {"y": "mul_mat(wg, x)", "r": "reshape_1d(z, ne0=8)"}
    more = {"late": {"tensors": {"z": "f32[8]"}}}
    error = refusal(scenario(nodes, more).plan())
    assert error["kind"] == "crash"
    assert error["message"] == "Segmentation fault (SIGSEGV): a read at the address NULL"


def test_the_user_decides_without_a_cause() -> None:
    nodes = {"a": {"op": "sqr", "src": ["x"], "backend": "GPU0"}, "b": "sqr(a)"}
    assert assigned(scenario(nodes).plan()) == {"a": ("GPU0", ""), "b": ("GPU0", "2.2"), "x": ("GPU0", "")}


def test_two_backends_of_one_buffer_type_have_memory_of_their_own() -> None:
    devices = [{"name": "ACC", "profile": "custom", "buft": "CPU"}, "CPU"]
    nodes = {"a": {"op": "sqr", "src": ["x"], "backend": "ACC"}, "b": {"op": "sqr", "src": ["a"], "backend": "CPU"}}
    s = scenario(nodes, {"gpu": {"tensors": {}}}, backends=devices)
    plan = s.plan()
    assert plan.backends == (("ACC", "CPU (ACC)"), ("CPU", "CPU"))
    assert [c.name for c in plan.copies] == ["CPU#a"]
    assert memory_names(run_of(s).start().backends) == ["CPU (ACC)", "CPU"]


def test_more_splits_than_256_are_refused() -> None:
    nodes: dict[str, Any] = {"n0": "mul_mat(wg, x)"}
    for i in range(1, 257):
        nodes[f"n{i}"] = f"mul_mat({'wc' if i % 2 else 'wg'}, n{i - 1})"
    error = refusal(scenario(nodes).plan())
    assert error["condition"] == "cur_split < GGML_MAX_SPLITS"
    del nodes["n256"]
    assert len(scenario(nodes).plan().splits) == 256


@pytest.mark.parametrize(("n", "ok"), [(16, True), (17, False)])
def test_a_split_has_16_inputs(n: int, ok: bool) -> None:
    nodes: dict[str, Any] = {f"g{i}": "mul_mat(wg, x)" for i in range(n)}
    nodes["c0"] = "mul_mat(wc, g0)"
    for i in range(1, n):
        nodes[f"c{i}"] = f"add(c{i - 1}, g{i})"
    for i in range(1, n):
        nodes[f"c{i}"] = {"op": "add", "src": [f"c{i - 1}", f"g{i}"], "backend": "CPU"}
    plan = scenario(nodes).plan()
    assert plan.ok == ok
    if not ok:
        assert refusal(plan)["condition"] == "n_inputs < GGML_MAX_SPLIT_INPUTS"


def test_seventeen_backends_are_too_many() -> None:
    devices = [f"GPU{i}" for i in range(16)] + ["CPU"]
    error = refusal(scenario({"a": "mul_mat(wg, x)"}, backends=devices).plan())
    assert error["condition"] == "n_backends <= GGML_MAX_BACKENDS"


def test_memory_that_no_backend_can_use_is_refused() -> None:
    devices = ["GPU0", "GPU1"]
    s = scenario({"a": "mul_mat(wg, x)", "b": "mul_mat(wc, a)"}, backends=devices)
    error = refusal(s.plan())
    assert error["condition"] == 'false && "tensor buffer type not supported by any backend"'


def test_a_graph_of_more_nodes_than_the_hash_set_allows_is_measured_and_not_computed() -> None:
    nodes: dict[str, Any] = {"n0": "mul_mat(wg, x)"}
    for i in range(1, 4200):
        nodes[f"n{i}"] = f"sqr(n{i - 1})"
    s = scenario(nodes, scheduler={"graph_size": 2048})
    run = run_of(s)
    assert run.measure("main").ok
    error = refusal(run.alloc("main"))
    assert error["function"] == "ggml_backend_sched_graph_compute"


def test_what_is_in_place_of_a_copy_stays_a_view_of_it() -> None:
    s = scenario({"a": "mul_mat(wg, x)", "b": "mul_mat(wc, a)", "c": "sqr(b)"})
    plan = s.plan()
    assert plan.inplace == ("c",)
    places = {n.id: (n.buffer, n.offset, n.alloc_size) for n in plan.nodes}
    assert places["c"] == ("CPU", places["b"][1], None)


def test_a_second_graph_that_needs_more_is_refused() -> None:
    document = {
        "ggmltool": 1,
        "ggml": "2024-01",
        "backends": ["GPU0", "CPU"],
        "contexts": {**WEIGHTS, "in": {"tensors": {"x": "f32[8, 4]", "large": "f32[8, 64]"}}},
        "graphs": {"small": {"nodes": {"a": "mul_mat(wg, x)"}}, "big": {"nodes": {"b": "mul_mat(wg, large)"}}},
        "steps": ["measure small", "compute small", "compute big"],
    }
    plans = ggmltool.load(document).run()
    assert [p["ok"] for p in plans] == [True, True, False]
    assert "not enough space in the buffer" in plans[-1]["error"]["message"]
    assert plans[-1]["error"]["explanation"].startswith("large needs 2048 bytes in the memory of GPU0")


def test_a_debug_build_says_what_is_not_where_its_root_is() -> None:
    nodes = {
        "a": "mul_mat(wg, x)",
        "v": {"op": "reshape", "src": ["a"], "ne": [8, 4], "backend": "CPU"},
        "b": "mul_mat(wc, v)",
    }
    plan = scenario(nodes).plan()
    assert plan.debug_log is not None
    assert "!!!!!!! v has backend CPU, view_src a has backend GPU0" in plan.debug_log
    assert plan.log == ()


def test_the_scheduler_is_that_of_the_release() -> None:
    sched = run_of(scenario({"a": "mul_mat(wg, x)"})).start()
    assert isinstance(sched, Scheduler)
    assert (sched.release.name, sched.hash_size) == ("2024-01", 8209)


CPU = BufferType("CPU", "CPU", 64, host=True, slack=64)


def made(registry: Registry, name: str) -> list[str]:
    """Register a backend; what it is told when it is made."""
    told: list[str] = []

    def init(params: str) -> Backend:
        told.append(params)
        return Backend(name, Device(name, "cpu", CPU, op_table((), True)))

    registry.register(name, init, CPU, f"ggml_backend_reg_{name.lower()}_init")
    return told


def test_a_backend_is_made_from_its_name_and_params() -> None:
    registry = Registry()
    told = made(registry, "CPU")
    assert registry.init_backend_from_str("CPU").name == "CPU"
    registry.init_backend_from_str("CPU:n_threads=4:more")
    assert told == ["", "n_threads=4:more"]
    assert (len(registry), registry.get_name(0)) == (1, "CPU")


def test_an_unknown_backend_is_not_found() -> None:
    registry = Registry()
    made(registry, "CPU")
    assert registry.find_by_name("cpu") == NOT_FOUND
    with pytest.raises(GgmlFailed, match="ggml_backend_reg_init_backend_from_str: backend cpu not found"):
        registry.init_backend_from_str("cpu:4")


def test_buffers_come_from_the_default_type() -> None:
    registry = Registry()
    made(registry, "CPU")
    assert registry.get_default_buffer_type(0) is CPU
    assert registry.alloc_buffer(0, 100).size == 164


def test_there_is_room_for_16() -> None:
    registry = Registry()
    for i in range(MAX_BACKENDS_REG):
        made(registry, f"GPU{i}")
    with pytest.raises(LineAssert, match="ggml_backend_registry_count < GGML_MAX_BACKENDS_REG"):
        made(registry, "GPU16")
    for ask in (registry.get_name, registry.init_backend, registry.get_default_buffer_type):
        with pytest.raises(LineAssert, match="i < ggml_backend_registry_count"):
            ask(16)


def test_a_long_name_is_cut() -> None:
    registry = Registry()
    made(registry, "G" * 200)
    assert registry.get_name(0) == "G" * 127
    assert registry.init_backend_from_str("G" * 200).name == "G" * 200


def backend(type: DeviceType = "cpu") -> Backend:
    return Backend("X", Device("X", type, BufferType("X", "X"), op_table((), True)))


def node(op: Op, ne: Dims, *src: Tensor, type: DType = F32) -> Tensor:
    t = Tensor(type, ne, id=op.name)
    t.set_op(op, (), *src)
    return t


def of(type: str, *ne: int) -> Tensor:
    n = (*ne, 1, 1, 1, 1)
    return Tensor(TYPES[type], (n[0], n[1], n[2], n[3]))


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (node(Op.ADD, (8, 1, 1, 1), of("f32", 8), of("f32", 8)), 0),
        (node(Op.ADD, (32, 1, 1, 1), of("q4_0", 32), of("f32", 32), type=TYPES["q4_0"]), 4 * 32 * 4),
        (node(Op.MUL_MAT, (4, 3, 1, 1), of("f32", 32, 4), of("f32", 32, 3)), 0),
        (node(Op.MUL_MAT, (4, 3, 1, 1), of("q4_0", 32, 4), of("f32", 32, 3)), 34 * 3),
        (node(Op.MUL_MAT, (4, 3, 1, 1), of("f16", 32, 4), of("f32", 32, 3)), 2 * 96),
        (node(Op.SOFT_MAX, (10, 2, 1, 1), of("f32", 10, 2)), 4 * 10 * 2),
        (node(Op.SOFT_MAX, (10, 9, 1, 1), of("f32", 10, 9)), 4 * 10 * 4),
        (node(Op.CONV_TRANSPOSE_1D, (5, 1, 1, 1), of("f16", 3, 2, 4), of("f32", 6, 4)), 2 * 24 + 2 * 24),
        (node(Op.CROSS_ENTROPY_LOSS, (1, 1, 1, 1), of("f32", 6, 2), of("f32", 6, 2)), 4 * (4 + 6 * 4)),
    ],
    ids=str,
)
def test_a_node_needs_so_much(n: Tensor, expected: int) -> None:
    assert work_size([n]) == (expected + 64 * 3 if expected else 0)


def test_the_node_that_needs_most_decides_and_every_thread_has_a_cache_line() -> None:
    small = node(Op.SOFT_MAX, (10, 2, 1, 1), of("f32", 10, 2))
    large = node(Op.SOFT_MAX, (100, 1, 1, 1), of("f32", 100, 1))
    assert work_size([small, large], 2) == 400 + 64
    assert work_size([large], 0) == work_size([large], 4)


def test_a_convolution_of_other_types_is_refused() -> None:
    with pytest.raises(LineAssert, match=r"ggml\.c:16750: false"):
        work_size([node(Op.CONV_TRANSPOSE_1D, (5, 1, 1, 1), of("f32", 3, 2, 4), of("f16", 6, 4))])


def test_a_plan_is_computed_often_and_freed_once() -> None:
    n = node(Op.SQR, (4, 1, 1, 1), of("f32", 4))
    plan = graph_plan_create(backend(), [n])
    computed: list[Sequence[Tensor]] = []
    for _ in range(2):
        graph_plan_compute(plan, lambda _, nodes: computed.append(nodes))
    assert computed == [(n,), (n,)]
    graph_plan_free(plan)
    with pytest.raises(GgmlCrash, match="after it was freed"):
        graph_plan_compute(plan, lambda _, nodes: computed.append(nodes))
    with pytest.raises(GgmlCrash, match="second time"):
        graph_plan_free(plan)


def test_only_the_cpu_has_plans() -> None:
    with pytest.raises(GgmlCrash, match="address NULL"):
        graph_plan_create(backend("gpu"), [])


CPU = BufferType("CPU", "CPU", 64, host=True, slack=64)
GPU = BufferType("GPU0", "GPU0", 128)


class Made:
    """x → y = sqr(x) → v, a view of y, on the CPU; `w` would come behind an empty slot of y's sources."""

    def __init__(self, allocate: bool = True) -> None:
        self.indices, self.addresses = IndexSpace(), AddressSpace()
        self.ctx = Context(indices=self.indices)
        self.x, self.w, self.y = (self.ctx.new_tensor(F32, (4,), name=name) for name in "xwy")
        self.y.set_op(Op.SQR, (), self.x)
        self.v = self.ctx.view_tensor(self.y)
        self.v.set_op(Op.VIEW, (), self.y)
        self.y.flags |= FLAG_OUTPUT
        self.graph = CGraph(16, self.indices.top)
        self.graph.build_forward_expand(self.v)
        if allocate:
            alloc_ctx_tensors_from_buft(self.ctx, CPU, self.addresses)
            tensor_set(self.x, np.arange(4, dtype=np.float32).tobytes())

    def copy(self, events: list[Event] | None = None) -> Tensor:
        backend = Backend("GPU0", Device("GPU0", "gpu", GPU, op_table((), True)))
        listener = events.append if events is not None else None
        made = graph_copy(backend, self.graph, self.indices, self.addresses, listener, Copier)
        assert made is not None
        return made.graph.nodes[-1]


def test_values_and_views_are_on_the_other_backend() -> None:
    v = Made().copy()
    y = v.src[0]
    assert y is not None
    assert y.src[0] is not None
    assert v.view_src is y
    assert v.data == y.data
    assert y.buffer is v.buffer
    assert y.buffer is not None
    assert y.buffer.buft is GPU
    assert tensor_get(y.src[0]).tobytes() == np.arange(4, dtype=np.float32).tobytes()


def test_sources_end_at_the_first_empty_slot() -> None:
    made = Made()
    made.y.src = [made.x, None, made.w]
    y = made.copy().src[0]
    assert y is not None
    assert [s.name if s else None for s in y.src] == ["x"]


def test_a_graph_without_memory_is_refused() -> None:
    with pytest.raises(LineAssert, match=r"ggml-backend\.c:1496: src->data"):
        Made(allocate=False).copy()


def test_nodes_are_compared_one_by_one_and_views_are_not() -> None:
    made = Made()
    cpu = Backend("CPU", Device("CPU", "cpu", CPU, op_table((), True)))
    other = Backend("GPU0", Device("GPU0", "gpu", GPU, op_table((), True)))
    seen: list[str] = []

    def compared(_: int, a: Tensor, b: Tensor) -> bool:
        seen.append(a.name)
        assert b.name == a.name
        return True

    assert compare_graph_backend(
        cpu, other, made.graph, compared, lambda *_: None, made.indices, made.addresses, copier_class=Copier
    )
    assert seen == ["y"]


def test_nothing_to_allocate_is_a_failure() -> None:
    made = Made()
    made.graph.nodes = []
    events: list[Event] = []
    backend = Backend("GPU0", Device("GPU0", "gpu", GPU, op_table((), True)))
    assert graph_copy(backend, made.graph, made.indices, made.addresses, events.append, Copier) is None
    assert Logged("error", "failed to allocate buffer for graph copy\n") in events
