"""The oracle itself: known results of the real library, and what its devices say of themselves."""

from __future__ import annotations

from ggmltool.oracle import run
from ggmltool.oracle.lib import Lib
from tests.conformance.longform import model_of

MATRIX = {"type": "f32", "ne": [64, 64]}
ROWS = {"type": "f32", "ne": [64, 40]}


def three_layers(offload: int | None, parallel: bool = False) -> dict:
    """Products with weights on GPU, CPU and GPU again, a mask added after each."""
    gpu = {"name": "CUDA0", "alignment": 128, "offload_min_batch": offload, "events": True}

    def product(weight: str, x: str) -> dict:
        return {"op": "mul_mat", **ROWS, "src": [weight, x]}

    def masked(x: str, **more: object) -> dict:
        return {"op": "add", **ROWS, "src": [x, "mask"], **more}

    return {
        "backends": [gpu, "CPU"],
        "scheduler": {"parallel": parallel},
        "contexts": {
            "gpu": {"buft": "CUDA0", "usage": "weights", "tensors": {"w1": MATRIX, "w3": MATRIX}},
            "cpu": {"buft": "CPU", "usage": "weights", "tensors": {"w2": MATRIX}},
            "inputs": {"tensors": {"inp": {**ROWS, "flags": ["input"]}, "mask": {**ROWS, "flags": ["input"]}}},
        },
        "graphs": {
            "g": {
                "nodes": {
                    "a": product("w1", "inp"),
                    "am": masked("a"),
                    "b": product("w2", "am"),
                    "bm": masked("b"),
                    "d": product("w3", "bm"),
                    "dm": masked("d", flags=["output"]),
                },
                "expand": ["dm"],
            }
        },
    }


def last_plan(release: str, source: dict) -> dict:
    return run(model_of(source, release=release)).plans[-1]


def offsets(plan: dict) -> dict[str, tuple[str, int]]:
    named = [(n["id"], n) for n in plan["nodes"]] + [(leaf["id"], leaf) for leaf in plan["leafs"]]
    named += [(c["name"], c) for c in plan["copies"]]
    return {name: (entry["buffer"], entry["offset"]) for name, entry in named}


def test_without_offload_the_cpu_weight_takes_its_product_to_the_cpu(release: str):
    plan = last_plan(release, three_layers(None))
    assert [(s["backend"], s["inputs"], s["i_start"], s["i_end"]) for s in plan["splits"]] == [
        ("CUDA0", ["inp", "mask"], 0, 2),
        ("CPU", ["am"], 2, 3),
        ("CUDA0", ["b"], 3, 6),
    ]
    assert plan["buffer_sizes"] == {"CUDA0": 30720, "CPU": 20480}
    where = offsets(plan)
    assert where["CUDA0#inp#0"] == ("CUDA0", 0)
    assert where["CUDA0#mask#0"] == ("CUDA0", 10240)
    assert where["a"] == where["am"] == ("CUDA0", 20480)
    assert where["CUDA0#b#0"] == where["bm"] == ("CUDA0", 0)
    assert where["d"] == where["dm"] == ("CUDA0", 20480)
    assert (where["inp"], where["mask"]) == (("CPU", 0), ("CPU", 10240))
    assert (where["CPU#am#0"], where["b"]) == (("CPU", 0), ("CPU", 10240))
    assert [leaf["id"] for leaf in plan["leafs"]] == ["w3", "w2", "w1", "inp", "mask"]


def test_offload_from_32_rows_copies_the_cpu_weight_in_a_split_of_its_own(release: str):
    plan = last_plan(release, three_layers(32))
    assert [(s["backend"], s["inputs"]) for s in plan["splits"]] == [("CUDA0", ["inp", "mask"]), ("CUDA0", ["w2"])]
    assert plan["buffer_sizes"] == {"CUDA0": 47104, "CPU": 20480}
    where = offsets(plan)
    assert (where["b"], where["bm"], where["d"]) == (("CUDA0", 0), ("CUDA0", 0), ("CUDA0", 20480))


def test_pipeline_copies_stand_before_everything_else(release: str):
    plan = last_plan(release, three_layers(None, parallel=True))
    assert plan["buffer_sizes"] == {"CUDA0": 143360, "CPU": 133120}
    where = offsets(plan)
    assert (where["a"], where["d"]) == (("CUDA0", 122880), ("CUDA0", 133120))
    assert [c["offset"] for c in plan["copies"] if c["of"] == "inp" and c["backend"] == "CUDA0"] == [
        0, 10240, 20480, 30720,
    ]  # fmt: skip
    assert [c["name"] for c in plan["copies"][:4]] == ["inp", "CPU#inp#1", "CPU#inp#2", "CPU#inp#3"]
    assert where["b"] == ("CPU", 122880)


def test_computing_synchronizes_and_copies_in_ggmls_order(release: str):
    plain = ["alloc g", "compute g"]
    trace = [
        line
        for line in run(model_of(three_layers(None), plain, release)).trace
        if not line.startswith(("alloc", "free"))
    ]
    computed = trace[trace.index("graph_compute CUDA0 [a, am]") - 4 :]
    assert computed == [
        "synchronize CUDA0",
        "set_tensor CUDA0 CUDA0#inp#0 0 10240",
        "synchronize CUDA0",
        "set_tensor CUDA0 CUDA0#mask#0 0 10240",
        "graph_compute CUDA0 [a, am]",
        "synchronize CPU",
        "synchronize CUDA0",
        "synchronize CPU",
        "get_tensor CUDA0 am 0 10240",
        "graph_compute CPU [b]",
        "synchronize CUDA0",
        "synchronize CPU",
        "synchronize CUDA0",
        "set_tensor CUDA0 CUDA0#b#0 0 10240",
        "graph_compute CUDA0 [bm, d, dm]",
        "synchronize CUDA0",
        "synchronize CPU",
    ]


def test_debug_text_is_what_ggml_prints(release: str):
    text = run(model_of(three_layers(None), release=release)).debug[-1].decode()
    assert "\n## SPLIT #0: CUDA0 # 2 inputs: [inp (  10K)] [mask (  10K)] \n" in text
    assert "node #  0 (   MUL_MAT):                    a (  10K) [CUDA0         ] use=1,c=1:" in text


def test_an_abort_is_the_last_plan_and_the_next_scenario_goes_on(release: str):
    from ggmltool.oracle import run_many

    source = three_layers(None)
    twice = model_of(source, ["reserve g", "alloc g", "alloc g", "alloc g"], release)
    aborted, fine = run_many([twice, model_of(source, release=release)])
    assert [plan["ok"] for plan in aborted.plans] == [True, True, False]
    assert aborted.plans[-1]["error"] == {
        "kind": "abort",
        "condition": "!sched->is_alloc",
        "message": "GGML_ASSERT(!sched->is_alloc) failed",
    }
    assert [plan["ok"] for plan in fine.plans] == [True, True]


def test_the_cpu_device_runs_ops_whose_source_lies_in_memory_it_cannot_use(lib: Lib):
    import ctypes

    from ggmltool.oracle.structs import Buffer, Tensor

    device = lib.ggml_backend_reg_dev_get(lib.ggml_backend_cpu_reg(), 0)
    foreign = lib.structs["ggml_backend_buffer_type"]()
    foreign.iface.get_name = ctypes.cast(lib.base.ggml_version, ctypes.c_void_p).value
    buffer = Buffer(buft=ctypes.addressof(foreign), size=1 << 20)
    with lib.context() as ctx:
        weight = lib.tensor(ctx, "f32", (64, 64))
        product = lib.call("mul_mat", ctx, weight, lib.tensor(ctx, "f32", (64, 3)))
        Tensor.from_address(weight).buffer = ctypes.addressof(buffer)
        assert not lib.ggml_backend_dev_supports_buft(device, ctypes.addressof(foreign))
        assert lib.ggml_backend_dev_supports_op(device, product)


def test_a_gpu_weight_whose_op_the_gpu_lacks_is_copied_to_the_cpu(release: str):
    source = three_layers(None)
    source["backends"][0]["supports"] = {"except": ["mul_mat"]}
    plan = last_plan(release, source)
    assert plan["ok"]
    assert ["w1", "inp"] in [s["inputs"][:2] for s in plan["splits"]] or any(
        "w1" in s["inputs"] and s["backend"] == "CPU" for s in plan["splits"]
    )
