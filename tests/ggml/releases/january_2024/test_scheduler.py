"""The scheduler of January 2024: what it assigns, copies and measures, and what it refuses in which words."""

from __future__ import annotations

from typing import Any

import pytest

import ggmltool
from ggmltool.ggml.events import Assigned, Event, InputAdded, SplitStarted
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.releases.january_2024.scheduler import Scheduler
from ggmltool.ggml.releases.january_2024.state import memory_names
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
