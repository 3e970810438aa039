"""The scheduler of January 2024: what it assigns, copies and measures, and what it refuses in which words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ggmltool
from ggmltool.ggml.buffer import AddressSpace, BufferType
from ggmltool.ggml.context import Context, IndexSpace
from ggmltool.ggml.device import Backend, Device, op_table
from ggmltool.ggml.dtypes import F32
from ggmltool.ggml.errors import GgmlFailed, LineAssert
from ggmltool.ggml.events import Assigned, Event, InputAdded, Logged, SplitStarted
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.graph_copy import compare_graph_backend, graph_copy
from ggmltool.ggml.op import Op
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.releases.january_2024.graph_copy import Copier
from ggmltool.ggml.releases.january_2024.registry import MAX_BACKENDS_REG, Registry
from ggmltool.ggml.releases.january_2024.tallocr import alloc_ctx_tensors_from_buft
from ggmltool.ggml.tensor import FLAG_OUTPUT, Tensor
from ggmltool.ggml.values.transfer import tensor_get, tensor_set
from ggmltool.scenario.run.measured import MeasuredRun
from ggmltool.scenario.scenario import LoadedScenario

WEIGHTS = {
    "cpu": {"buft": "CPU", "usage": "weights", "tensors": {"wc": "f32[8, 8]"}},
    "gpu": {"buft": "GPU0", "usage": "weights", "tensors": {"wg": "f32[8, 8]"}},
}


def scenario(nodes: dict[str, Any], contexts: dict[str, Any] | None = None, **more: Any) -> LoadedScenario:
    """A scenario with weights on a GPU and on the CPU; `x` has no memory of its own."""
    document = {
        "ggmltool": 1,
        "ggml": "2024-01",
        "backends": ["GPU0", "CPU"],
        "contexts": {**WEIGHTS, "in": {"tensors": {"x": "f32[8, 4]"}}, **(contexts or {})},
        "graphs": {"main": {"nodes": nodes}},
    }
    return ggmltool.load({**document, **more})


def run_of(s: LoadedScenario, events: list[Event] | None = None) -> MeasuredRun:
    run = s.start(events.append if events is not None else None, debug=True)
    assert isinstance(run, MeasuredRun)
    return run


def refusal(plan: Plan) -> dict[str, str | None]:
    assert plan.error is not None
    return dict(plan.error)


def test_events_tell_the_rule_and_the_copies() -> None:
    events: list[Event] = []
    run_of(scenario({"a": "mul_mat(wg, x)", "b": "mul_mat(wc, a)"}), events).measure("main")
    causes = [(e.tensor, e.cause) for e in events if isinstance(e, Assigned)]
    assert causes == [("wg", "1.dst"), ("wc", "1.dst"), ("a", "1.wgt0"), ("b", "1.wgt0"), ("x", "3.cur")]
    assert [(e.backend, e.node) for e in events if isinstance(e, SplitStarted)] == [("GPU0", "a"), ("CPU", "b")]
    assert [e.copies for e in events if isinstance(e, InputAdded)] == [("CPU#a",)]


def chain(n: int) -> dict[str, Any]:
    """Products by weights on the GPU and on the CPU in turn."""
    return {"n0": "mul_mat(wg, x)"} | {f"n{i}": f"mul_mat({'wc' if i % 2 else 'wg'}, n{i - 1})" for i in range(1, n)}


PRODUCTS = {"a": "mul_mat(wg, x)", "b": "mul_mat(wc, a)"}


@pytest.mark.parametrize(
    ("nodes", "more", "expected"),
    [
        (
            PRODUCTS,
            {"backends": [*(f"GPU{i}" for i in range(16)), "CPU"]},
            {"condition": "n_backends <= GGML_MAX_BACKENDS"},
        ),
        (
            PRODUCTS,
            {"backends": ["GPU0", "GPU1"]},
            {"condition": 'false && "tensor buffer type not supported by any backend"'},
        ),
        (chain(257), {}, {"condition": "cur_split < GGML_MAX_SPLITS"}),
    ],
    ids=["17 backends", "memory of none", "257 splits"],
)
def test_a_graph_is_refused(nodes: dict[str, Any], more: dict[str, Any], expected: dict[str, str]) -> None:
    assert expected.items() <= refusal(scenario(nodes, **more).plan()).items()


def test_a_graph_may_have_256_splits() -> None:
    assert len(scenario(chain(256)).plan().splits) == 256


def test_a_graph_of_more_nodes_than_the_hash_set_allows_is_measured_and_not_computed() -> None:
    nodes: dict[str, Any] = {"n0": "mul_mat(wg, x)"}
    for i in range(1, 4200):
        nodes[f"n{i}"] = f"sqr(n{i - 1})"
    s = scenario(nodes, scheduler={"graph_size": 2048})
    run = run_of(s)
    assert run.measure("main").ok
    error = refusal(run.alloc("main"))
    assert error["function"] == "ggml_backend_sched_graph_compute"


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


CPU = BufferType("CPU", "CPU", 64, host=True, slack=64)
GPU = BufferType("GPU0", "GPU0", 128)
GPU0 = Backend("GPU0", Device("GPU0", "gpu", GPU, op_table((), True)))


def test_a_registry_makes_backends_by_name_and_params() -> None:
    registry = Registry()
    told: list[str] = []

    def init(params: str) -> Backend:
        told.append(params)
        return Backend("CPU", Device("CPU", "cpu", CPU, op_table((), True)))

    for name in ("CPU", "G" * 200, *(f"GPU{i}" for i in range(MAX_BACKENDS_REG - 2))):
        registry.register(name, init, CPU, "ggml_backend_reg_cpu_init")
    assert registry.init_backend_from_str("CPU").name == "CPU"
    registry.init_backend_from_str("CPU:n_threads=4:more")
    registry.init_backend_from_str("G" * 200)
    assert told == ["", "n_threads=4:more", ""]
    assert registry.entries[1].name == "G" * 127
    with pytest.raises(GgmlFailed, match="ggml_backend_reg_init_backend_from_str: backend cpu not found"):
        registry.init_backend_from_str("cpu:4")
    with pytest.raises(LineAssert, match="ggml_backend_registry_count < GGML_MAX_BACKENDS_REG"):
        registry.register("one more", init, CPU)


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

    def copy(self) -> Tensor:
        made = graph_copy(GPU0, self.graph, self.indices, self.addresses, None, Copier)
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
    seen: list[tuple[str, str]] = []

    def compared(_: int, a: Tensor, b: Tensor) -> bool:
        seen.append((a.name, b.name))
        return True

    assert compare_graph_backend(
        cpu, GPU0, made.graph, compared, lambda *_: None, made.indices, made.addresses, copier_class=Copier
    )
    assert seen == [("y", "y")]


def test_nothing_to_allocate_is_a_failure() -> None:
    made = Made()
    made.graph.nodes = []
    events: list[Event] = []
    assert graph_copy(GPU0, made.graph, made.indices, made.addresses, events.append, Copier) is None
    assert Logged("error", "failed to allocate buffer for graph copy\n") in events
