"""What a re-implementation of ggml's scheduler would get wrong: FACTS section 8, entries 17 to 40, 51, 52 and 55.

Each scenario runs on the engine and on the real library; `judged` compares everything, the tests name the figures.
Entry 31, the reordering of Metal and Vulkan, waits for those devices.
"""

from __future__ import annotations

from typing import Any

import pytest

from ggmltool.ggml.events import IdsChanged, Logged, ReallocNeeded
from ggmltool.ggml.why import Why
from tests.conformance.judged import GPU, Judging

ROWS = "f32[64, 40]"
INPUT = {"type": "f32", "ne": [64, 40], "flags": ["input"]}
MATRIX = "f32[64, 64]"
ALLOC = ["alloc g"]


def source(
    nodes: dict[str, Any],
    *,
    backends: list[Any] | None = None,
    on_gpu: dict[str, Any] | None = None,
    on_cpu: dict[str, Any] | None = None,
    inputs: dict[str, Any] | None = None,
    others: dict[str, Any] | None = None,
    expand: list[str] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A graph between weights on the first device, weights on the CPU and inputs, by default `x`."""
    backends = backends or [GPU, "CPU"]
    contexts: dict[str, Any] = {}
    if on_gpu:
        first = backends[0]
        name = first if isinstance(first, str) else first["name"]
        contexts["gpu"] = {"buft": name, "usage": "weights", "tensors": on_gpu}
    if on_cpu:
        contexts["cpu"] = {"buft": "CPU", "usage": "weights", "tensors": on_cpu}
    contexts |= others or {}
    contexts["inputs"] = {"tensors": {"x": INPUT} if inputs is None else inputs}
    graph = {"nodes": nodes} | ({"expand": expand} if expand else {})
    return {"backends": backends, "contexts": contexts, "graphs": {"g": graph}, "steps": ALLOC, **more}


def lacking(*ops: str) -> list[Any]:
    """A GPU that does not support some ops, and the CPU."""
    return [{**GPU, "supports": {"except": list(ops)}}, "CPU"]


LEAF = {"x": {"type": "f32", "ne": [64, 40]}}
W, U = {"w": MATRIX}, {"u": MATRIX}
SQUARE = {"type": "f32", "ne": [64, 64], "flags": ["input"]}
REPACK = {"CPU_REPACK": {"device": "CPU", "host": False, "ops": ["mul_mat", "mul_mat_id"]}}


def offloading(*middle: Any, rows: int = 64, buft: str = "CPU", **more: Any) -> dict[str, Any]:
    inputs = {"x": {"type": "f32", "ne": [64, rows], "flags": ["input"]}}
    weights = {"w": {"buft": buft, "usage": "weights", "tensors": W}}
    backends = [{**GPU, "offload_min_batch": 32}, *middle, "CPU"]
    return source({"y": "mul_mat(w, x)"}, backends=backends, inputs=inputs, others=weights, **more)


def two_weights(y: str) -> dict[str, Any]:
    """Two weights of one op, in memory of a device that cannot run it and of the CPU's."""
    second = {"name": "CUDA1", "profile": "custom", "supports": {"except": ["mul"]}}
    others = {"other": {"buft": "CUDA1", "usage": "weights", "tensors": {"w1": ROWS}}}
    nodes = {"h": "mul_mat(w0, x)", "y": y}
    backends = [GPU, second, "CPU"]
    return source(nodes, backends=backends, on_gpu={"w0": MATRIX}, on_cpu={"w2": ROWS}, others=others)


def view_of_weight(y: str) -> dict[str, Any]:
    nodes = {"h": "mul_mat(w, x)", "v": "view(u, ne=[64, 32], nb=[256])", "y": y}
    return source(nodes, on_gpu=W, on_cpu=U)


def nobody(nodes: dict[str, Any]) -> dict[str, Any]:
    without = {"except": ["sin"]}
    return source(nodes, backends=[{**GPU, "supports": without}, {"name": "CPU", "supports": without}], inputs=LEAF)


def outside(
    nodes: dict[str, Any], buft: str = "CUDA3", usage: str = "weights", type: str = "f32", **memory: Any
) -> dict[str, Any]:
    """A graph that uses a tensor `far` in memory of a device that the scheduler was not given."""
    far = {"far": {"buft": buft, "usage": usage, "tensors": {"far": {"type": type, "ne": [64, 40]}}}}
    built = source(nodes, on_gpu=W, buffer_types={buft: {"device": "CUDA3", **memory}})
    return built | {"contexts": {**far, **built["contexts"]}}


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "18 a graph of views only is computed on the first backend": (
        source({"v": "view(w, ne=[8])"}, on_cpu=W),
        {"splits": [("CUDA0", [], ["v"])], "backend v w": ["CPU", "CPU"]},
    ),
    "19 a leaf of which only a reshape is used has no backend": (
        source({"r": "reshape(x, ne=[40, 64])", "y": "sqr(r)"}, inputs=LEAF),
        {"error condition": "buffer_id >= 0"},
    ),
    "19 a leaf that nothing uses has no backend either": (
        source({"y": "sqr(z)"}, inputs=LEAF | {"z": INPUT}, expand=["y", "x"]),
        {"error condition": "buffer_id >= 0"},
    ),
    "19 a leaf goes where its first user is": (
        source({"y": "sqr(x)"}, inputs=LEAF),
        {"backend x y": ["CUDA0", "CUDA0"]},
    ),
    "20 where nothing is known nodes go to the first backend that can": (
        source({"a": "sin(x)", "b": "cos(x)"}, backends=[{**GPU, "supports": {"only": ["cos"]}}, "CPU"], inputs=LEAF),
        {"on a b": [("CPU", "3.best"), ("CUDA0", "3.best")]},
    ),
    "20 where nothing is known a node goes to the first backend": (
        source({"a": "sin(x)"}, inputs=LEAF),
        {"on a": ("CUDA0", "3.best")},
    ),
    "21 a device asks for large batches on host weights": (
        offloading(),
        {"on y": ("CUDA0", "1.off"), "splits": [("CUDA0", ["w", "x"], ["y"])]},
    ),
    "21 a device does not ask for small batches": (offloading(rows=31), {"on y": ("CPU", "1.wgt0")}),
    "21 a scheduler may not offload": (
        offloading(scheduler={"op_offload": False}),
        {"on y": ("CPU", "1.wgt0")},
    ),
    "21 BLAS keeps the ops it runs from being offloaded": (offloading("BLAS"), {"on y": ("BLAS", "1.wgt0")}),
    "21 weights in a type that is not host memory are never offloaded": (
        offloading(buft="CPU_REPACK", buffer_types=REPACK),
        {"on y": ("CPU", "1.wgt0")},
    ),
    "22 the first weight decides even that nobody is found": (
        two_weights("mul(w1, w2)"),
        {"on y": ("CUDA0", "2.sup"), "splits": [("CUDA0", ["x"], ["h"]), ("CUDA0", ["w1", "w2"], ["y"])]},
    ),
    "22 the first weight decides": (two_weights("mul(w2, w1)"), {"on y": ("CPU", "1.wgt0")}),
    "23 a view of a weight is no weight until it has memory": (
        view_of_weight("mul_mat(v, h)"),
        {
            "on v y": [("CPU", "1.dst"), ("CUDA0", "2.sup")],
            "splits": [("CUDA0", ["x", "v"], ["h", "v", "y"])],
        },
    ),
    "23 a weight is one": (view_of_weight("mul_mat(u, h)"), {"cause y": "1.wgt0"}),
    "24 weights in host memory belong to the first backend that takes it": (
        source({"y": "add(x, w)"}, backends=["BLAS", "CPU"], on_cpu={"w": ROWS}),
        {"backend w y x": ["BLAS", "CPU", "CPU"]},
    ),
    "25 an input goes to the last backend wherever it is used": (
        source({"y": "mul_mat(w, x)"}, on_gpu=W),
        {"backend x y": ["CPU", "CUDA0"], "place x": ("CPU", 0, 0)},
    ),
    "25 an input that has memory stays with it": (
        source({"y": "mul_mat(w, k)"}, on_gpu=W, others={"state": {"buft": "CUDA0", "tensors": {"k": INPUT}}}),
        {"backend k": "CUDA0", "splits": [("CUDA0", [], ["y"])]},
    ),
    "26 a spread goes on behind a node that the device cannot run": (
        source({"h": "mul_mat(w, x)", "a": "sin(h)", "b": "cos(a)"}, backends=lacking("sin"), on_gpu=W),
        {"on h a b": [("CUDA0", "1.wgt0"), ("CPU", "3.best"), ("CUDA0", "2.sup")]},
    ),
    "26 a node on the CPU ends the spread of a GPU": (
        source({"h": "mul_mat(w, x)", "c": "mul_mat(u, h)", "d": "cos(c)"}, on_gpu=W, on_cpu=U),
        {"on h c d": [("CUDA0", "1.wgt0"), ("CPU", "1.wgt0"), ("CPU", "2.sup")]},
    ),
    "27 a product rises from the CPU to BLAS where all sources are known": (
        source(
            {"a": "add(w, x)", "y": "mul_mat(a, x)", "z": "mul_mat(a, b)"},
            backends=["BLAS", "CPU"],
            on_cpu=W,
            inputs={"x": SQUARE, "b": {"type": "f32", "ne": [64, 64]}},
        ),
        {"on y z": [("BLAS", "3.upg"), ("CPU", "2.sup")]},
    ),
    "28 a source of the same backend is not copied wherever it lies": (
        source(
            {"y": {"op": "mul_mat", "src": ["w", "x"], "backend": "CUDA0"}},
            on_cpu={"w": {"type": "f32", "ne": [64, 64], "backend": "CUDA0"}},
        ),
        {"splits": [("CUDA0", ["x"], ["y"])], "src y": ("w", "CUDA0#x#0"), "hazards": ["assigned"]},
    ),
    "28 a source of another backend is not copied where its memory can be used": (
        source({"y": "mul_mat(w, x)"}, backends=[{**GPU, "supports_bufts": ["CPU"]}, "CPU"], on_gpu=W),
        {"splits": [("CUDA0", [], ["y"])], "backend x": "CPU", "buffer x": "CPU"},
    ),
    "29 what is copied of a view is the view": (
        source(
            {"h": "mul_mat(w, x)", "v": "view(h, ne=[64, 2], nb=[256], offset=256)", "y": "sin(v)"},
            backends=lacking("sin"),
            on_gpu=W,
        ),
        {"splits": [("CUDA0", ["x"], ["h", "v"]), ("CPU", ["v"], ["y"])], "src y v": [("CPU#v#0",), ("h",)]},
    ),
    "38 a user's assignment is honoured whatever the device can run": (
        source({"y": {"op": "sin", "src": ["x"], "backend": "CUDA0"}}, backends=lacking("sin")),
        {"on y": ("CUDA0", "usr")},
    ),
    "38 a user's assignment may still rise to an equal buffer type": (
        source(
            {"y": {"op": "mul_mat", "src": ["x", "x"], "backend": "CPU"}},
            backends=["BLAS", "CPU"],
            inputs={"x": SQUARE},
        ),
        {"on y": ("BLAS", "3.upg")},
    ),
    "39 a graph that was split points to the scheduler's copies": (
        source({"y": "mul_mat(w, x)"}, on_gpu=W, steps=["reserve g"]),
        {"src y": ("w", "CUDA0#x#0")},
    ),
    "40 a cache on a device that cannot write it aborts": (
        source(
            {"y": "set_rows(k, x, i)"},
            backends=lacking("set_rows"),
            inputs={"x": INPUT, "i": {"type": "i64", "ne": [40], "flags": ["input"]}},
            others={"cache": {"buft": "CUDA0", "tensors": {"k": "f16[64, 128]"}}},
        ),
        {"error message": "pre-allocated tensor (y) in a buffer (CUDA0) that cannot run the operation (SET_ROWS)"},
    ),
    # FACTS 8.51 says that the CPU refuses such an op and none is found; in 0.20.2 it looks at its extra types only.
    "51 a weight on a GPU that cannot run the op is copied to the CPU": (
        source({"y": "mul_mat(w, x)"}, backends=lacking("mul_mat"), on_gpu=W),
        {"splits": [("CPU", ["w"], ["y"])], "on y": ("CPU", "3.best")},
    ),
    # FACTS 8.52, of 2025-03: there a node before the last took its user's backend. 0.20.2 looks at each in its turn.
    "52 a node nobody can run is ggml's assertion": (
        nobody({"a": "sin(x)", "y": "cos(a)"}),
        {"error condition": "*cur_backend_id != -1"},
    ),
    "52 the last node is no other": (
        nobody({"a": "cos(x)", "y": "sin(a)"}),
        {"error condition": "*cur_backend_id != -1"},
    ),
    # U8: memory of a device that the scheduler was not given. Pinned memory of another card is memory of the host.
    **{
        f"a {type} leaf in such memory aborts, {usage}": (
            outside({"h": "mul_mat(w, x)", "y": "mul_mat(far, h)"}, usage=usage, type=type),
            {"error message": "pre-allocated tensor (far) in a buffer (CUDA3) that cannot run the operation (NONE)"},
        )
        for type in ("f32", "q8_0")
        for usage in ("weights", "any")
    },
    "a node that writes into such memory aborts": (
        outside({"h": "mul_mat(w, x)", "y": "cpy(h, far)"}, usage="any"),
        {"error message": "pre-allocated tensor (far) in a buffer (CUDA3) that cannot run the operation (NONE)"},
    ),
    "such memory of the host is read where it is": (
        outside({"h": "mul_mat(w, x)", "y": "add(h, far)"}, "CUDA3_Host", host=True),
        {"backend y": "CPU"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_figures_of_a_small_graph(judged: Judging, case: str) -> None:
    document, figures = CASES[case]
    judged(document, hazards="hazards" in figures).check(figures)


def test_such_memory_is_explained(judged: Judging) -> None:
    error = judged(outside({"h": "mul_mat(w, x)", "y": "mul_mat(far, h)"})).error()
    assert "CUDA0 cannot use CUDA3, CPU cannot use CUDA3; give this context the device" in str(error["explanation"])


def wide(single: int, pairs: int) -> dict[str, Any]:
    """A product on the GPU, then sums that need `single` tensors from the CPU one by one and `pairs` two by two."""
    nodes = {"h": "mul_mat(w, x)"}
    last = "h"
    for i in range(single):
        nodes[f"s{i}"] = last = f"add({last if last == 'h' else f's{i - 1}'}, l{i})"
    for i in range(pairs):
        nodes[f"p{i}"] = f"add(l{single + 2 * i}, l{single + 2 * i + 1})"
    return {"nodes": nodes}


def wide_source() -> dict[str, Any]:
    leafs = {f"l{i}": INPUT for i in range(40)}
    out = source({}, on_gpu={"w": MATRIX}, inputs={"x": INPUT} | leafs)
    out["graphs"] = {"many": wide(31, 0), "pairs": wide(28, 1)}
    return out


def test_17_room_for_a_splits_inputs_outlives_the_graph_that_made_it(judged: Judging) -> None:
    fresh = judged(wide_source(), ["reserve many"])
    ends = fresh.rules.full_split_ends
    assert [len(s.inputs) for s in fresh.last.splits] == ([30, 2] if ends else [32])
    later = judged(wide_source(), ["reserve many", "reserve pairs", "reserve many"])
    assert [[len(s.inputs) for s in p.splits] for p in later.plans] == [[30, 2] if ends else [32], [31], [32]]
    grown = "ggml_backend_sched_split_inputs_grow: increasing split inputs capacity from 30 to 60"
    assert [p.log for p in later.plans] == [(), (grown,) if ends else (), ()]
    assert later.of(Logged) == [Logged("warn" if ends else "debug", grown)]


def test_18_after_another_graph_it_is_computed_where_that_began(judged: Judging) -> None:
    s = source({"v": "view(w, ne=[8])"}, on_cpu={"w": MATRIX})
    s["graphs"]["first"] = {"nodes": {"y": "mul_mat(w, x)"}}
    j = judged(s, ["alloc first", "reset", "alloc g"])
    assert [split[0] for split in j.splits()] == ["CPU"]


def test_30_a_copy_of_a_strided_view_takes_all_it_strides_over(judged: Judging) -> None:
    s = source(
        {"h": "mul_mat(w, x)", "v": "view(h, ne=[1, 40], nb=[256])", "y": "sin(v)"},
        backends=lacking("sin"),
        on_gpu={"w": MATRIX},
    )
    j = judged(s)
    # Of the 160 bytes of a column nearly all 10240 of the matrix.
    assert j.row("y").alloc_size == 160
    extent = 39 * 256 + 4
    assert j.offset("y") == (extent + 31) // 32 * 32 + (j.offset("CPU#v#0") or 0)


def experts(first: str | None) -> dict[str, Any]:
    """Experts on the CPU, computed on a GPU; `first` is a node before them."""
    nodes: dict[str, Any] = {"v": first} if first else {}
    nodes["y"] = f"mul_mat_id(up, {'v' if first else 'x'}, ids)"
    return {
        "backends": [{**GPU, "offload_min_batch": 1}, "CPU"],
        "contexts": {
            "w": {
                "buft": "CPU",
                "usage": "weights",
                "tensors": {"up": {"type": "f32", "ne": [16, 16, 8], "data": {"normal": {"seed": 1}}}},
            },
            "inputs": {
                "tensors": {
                    "x": {"type": "f32", "ne": [16, 1, 2], "flags": ["input"], "data": {"normal": {"seed": 2}}},
                    "ids": {"type": "i32", "ne": [2, 2], "flags": ["input"], "data": [[1, 2], [5, 7]]},
                }
            },
        },
        "graphs": {"g": {"nodes": nodes}},
        "steps": ["alloc g", "compute g"],
    }


def copies_of(j: Any, name: str) -> list[tuple[int, int]]:
    lines = [line.split() for line in j.trace() if line.startswith(f"set_tensor CUDA0 {name} ")]
    return [(int(offset), int(size)) for *_, offset, size in lines]


def test_32_only_the_experts_in_use_are_copied_with_512_bytes_behind_each_run(judged: Judging) -> None:
    j = judged(experts(None))
    used = [(1024, 2560), (5120, 1536), (7168, 1024)]
    assert copies_of(j, "CUDA0#up#0") == (used if j.rules.copies_used_experts else [(0, 8192)])


def test_32_a_view_before_them_in_the_first_split_makes_all_experts_be_copied(judged: Judging) -> None:
    j = judged(experts("reshape(x, ne=[16, 1, 2])"))
    assert j.splits() == [("CUDA0", ["up", "v", "ids"], ["v", "y"])]
    assert copies_of(j, "CUDA0#up#0") == [(0, 8192)]


def test_33_a_split_without_inputs_records_no_event_until_every_split_does(judged: Judging) -> None:
    def with_data(ne: list[int], seed: int) -> dict[str, Any]:
        return {"type": "f32", "ne": ne, "data": {"normal": {"seed": seed}}}

    s = source(
        {"a": "mul_mat(w, x)", "b": "mul_mat(u, x)", "c": "mul_mat(w, a)"},
        backends=[{**GPU, "events": True}, "CPU"],
        on_gpu={"w": with_data([64, 64], 1)},
        on_cpu={"u": with_data([64, 64], 2)},
        inputs={"x": {**with_data([64, 40], 3), "flags": ["input"]}},
        scheduler={"parallel": True},
    )
    s["steps"] = ["alloc g", "compute g"]
    j = judged(s)
    assert [(backend, inputs) for backend, inputs, _ in j.splits()] == [("CUDA0", ["x"]), ("CPU", []), ("CUDA0", [])]
    n = 2 if j.rules.records_every_split else 1
    assert [line for line in j.trace() if line.startswith("event_record")] == ["event_record CUDA0 0"] * n


def test_34_ids_of_the_first_graph_have_changed_where_it_is_not_all_on_backend_0(judged: Judging) -> None:
    j = judged(source({"y": "mul_mat(w, x)"}, on_gpu={"w": MATRIX}))
    assert [type(e) for e in j.events if isinstance(e, IdsChanged | ReallocNeeded)] == [IdsChanged]
    j = judged(source({"y": "sin(x)"}, inputs=LEAF))
    assert j.of(IdsChanged) == []
    assert j.of(ReallocNeeded) == [ReallocNeeded(Why.N_NODES, "", 0, 1)]


def history() -> dict[str, Any]:
    """Graphs of one and of three nodes, on either device by user assignment."""

    def nodes(*backends: str) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for i, backend in enumerate(backends):
            out[f"n{i}"] = {"op": "sin", "src": [f"n{i - 1}" if i else "x"], "backend": backend}
        return {"nodes": out}

    s = source({}, backends=[GPU, "CPU"], inputs={"x": {**INPUT, "backend": "CUDA0"}})
    s["graphs"] = {
        "one": nodes("CUDA0"),
        "gpu": nodes("CUDA0", "CUDA0", "CUDA0"),
        "cpu": nodes("CUDA0", "CPU", "CPU"),
    }
    return s


def changes(judged: Judging, *graphs: str) -> list[tuple[int, str, str]]:
    """Where the last allocation saw another backend than before, among the nodes of the scheduler's graph."""
    steps = [step for g in graphs for step in (f"alloc {g}", "reset")]
    last, before = judged(history(), steps), judged(history(), steps[:-2] or ["reset"])
    found = [(e.at, e.old_backend, e.new_backend) for e in last.of(IdsChanged) if not e.is_leaf]
    return found[len([e for e in before.of(IdsChanged) if not e.is_leaf]) :]


def test_35_ids_beyond_the_graph_before_count_as_backend_0(judged: Judging) -> None:
    assert changes(judged, "one", "gpu") == []
    # n0, the dependency on it, and then its copy, which is the first node on the CPU.
    assert changes(judged, "one", "cpu") == [(2, "CUDA0", "CPU")]


def test_55_ids_beyond_the_graph_before_are_those_of_two_graphs_before_it(judged: Judging) -> None:
    assert changes(judged, "cpu", "one", "cpu") == [(2, "CUDA0", "CPU")]
    assert changes(judged, "cpu", "cpu", "one", "cpu") == []
    assert changes(judged, "cpu", "cpu", "one", "gpu") == [(2, "CPU", "CUDA0")]


def test_36_with_pipeline_copies_an_inputs_own_place_rotates(judged: Judging) -> None:
    s = source({"y": "mul_mat(w, x)"}, on_gpu={"w": MATRIX}, scheduler={"parallel": True})
    j = judged(s, ["alloc g", "reset"] * 5)
    assert [j.offset("x", i) for i in range(5)] == [0, 10240, 20480, 30720, 0]
    assert [c.name for c in j.plans[1].copies[:4]] == ["CPU#x#0", "x", "CPU#x#2", "CPU#x#3"]
    assert [j.row("y", i).src[1] for i in range(5)] == [f"CUDA0#x#{i % 4}" for i in range(5)]


def test_36_reserve_makes_the_first_copy_current_again(judged: Judging) -> None:
    s = source({"y": "mul_mat(w, x)"}, on_gpu={"w": MATRIX}, scheduler={"parallel": True})
    j = judged(s, ["alloc g", "reset", "alloc g", "reset", "reserve g", "alloc g"])
    assert [p.nodes[0].src[1] for p in j.plans] == [f"CUDA0#x#{c}" for c in (0, 1, 1, 0)]


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 11])
def test_37_the_debug_print_takes_slots_of_the_hash_set(judged: Judging, size: int, debug: bool) -> None:
    s = source(
        {"a": "mul_mat(w, x)", "b": "mul_mat(u, a)"},
        on_gpu={"w": MATRIX},
        on_cpu={"u": MATRIX},
        scheduler={"graph_size": size},
    )
    j = judged(s, debug=debug)
    # 5 tensors fit into 5 slots and more; the two copies of the debug print take two more.
    assert j.last.ok == (size > 5 or (size > 3 and not debug))
    if not j.last.ok and size > 3:
        assert j.error()["function"] == "ggml_hash_find_or_insert"


def test_37_a_users_assignments_take_slots_before_the_graph_is_looked_at(judged: Judging) -> None:
    nodes = {f"n{i}": {"op": "sin", "src": ["x"], "backend": "CPU"} for i in range(3)}
    j = judged(source(nodes, scheduler={"graph_size": 1}))
    assert j.error()["function"] == "ggml_hash_find_or_insert"
    nodes["n2"].pop("backend")
    j = judged(source(nodes, scheduler={"graph_size": 1}))
    assert j.error()["function"] == "ggml_backend_sched_alloc_graph"


def test_a_scheduler_that_cannot_be_made_fails_the_first_plan_whatever_comes_before(judged: Judging) -> None:
    backends = [{**GPU, "name": f"GPU{i}"} for i in range(16)]
    j = judged(source({"y": "sin(x)"}, backends=[*backends, "CPU"]), ["reset", "reserve g", "alloc g"])
    assert (j.last.step, j.last.graph, len(j.plans)) == ("reserve", "g", 1)
    assert j.error()["condition"] == "n_backends <= GGML_SCHED_MAX_BACKENDS"


def test_a_build_that_was_split_before_sees_what_another_graph_left_in_the_arena(judged: Judging) -> None:
    """A copy that a node still reads became a view of an input of the other graph, which nobody assigned."""
    inputs = {id: {"type": "f32", "ne": [64], "flags": ["input"], "backend": "CPU"} for id in "abc"}
    source = {
        "backends": [GPU, "CPU"],
        "contexts": {"inputs": {"tensors": inputs}},
        "graphs": {
            "three": {"nodes": {"y": {"op": "add", "src": ["a", "b"], "backend": "CUDA0"}, "z": "add(y, c)"}},
            "two": {"nodes": {"y": {"op": "add", "src": ["a", "b"], "backend": "CUDA0"}}},
        },
    }
    steps = ["alloc three", "reset", "alloc two", "reset", "compute three"]
    assert judged(source, steps).error()["condition"] == "src_backend_id != -1"
