"""`place`: where a captured model's tensors go, what every device needs, and whether it fits."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

import ggmltool
from tests.cli.conftest import SAMPLES, Call

GEMMA = SAMPLES / "gemma-3-270m.json.gz"


def test_the_sum_of_a_device_is_that_of_its_parts_and_of_the_plan(call: Call) -> None:
    document = json.loads(call("place", "-ngl", "9", "--device", "CUDA0:2GiB", "--json", GEMMA).out)
    call("place", "-ngl", "9", "--device", "CUDA0:2GiB", "-o", "placed.json.gz", GEMMA)
    plan = ggmltool.load("placed.json.gz").plan(step="reserve")
    assert [(g["graph"], g["splits"]) for g in document["graphs"]] == [("main", len(plan.splits))]
    bufts = dict(plan.backends)
    assert bufts == {"CUDA0": "CUDA0", "CPU": "CUDA_Host"}  # as llama.cpp, which logs "CUDA_Host compute buffer size"
    sizes = {bufts[backend]: size for backend, size in plan.buffer_sizes}
    assert {d["buft"]: d["compute"] for d in document["devices"] if d["compute"]} == sizes
    for device in document["devices"]:
        parts = [device[part] for part in ("weights", "cache", "compute", "output")]
        assert device["total"] == sum(parts)
        mine = [t for t in document["tensors"] if t["buft"] == device["buft"]]
        assert sum(t["nbytes"] for t in mine if t["kind"] == "cache") == device["cache"]
        weights = sum(t["nbytes"] for t in mine if t["kind"] == "weight")
        assert weights <= device["weights"] <= weights * 1.1  # rows are padded, tensors aligned
    gpu = document["devices"][0]
    assert gpu["left"] == gpu["memory"] - gpu["total"] == 2**31 - gpu["total"]
    assert document["fits"] is True


def test_the_placed_scenario_is_one_for_all_other_commands(call: Call) -> None:
    written = call("place", "-ngl", "9", "-o", "placed.json.gz", GEMMA)
    assert (written.status, written.out, written.err) == (0, "", "Wrote placed.json.gz\n")
    piped = call("place", "-ngl", "9", "-f", "scenario", GEMMA)
    assert piped.out == gzip.decompress(Path("placed.json.gz").read_bytes()).decode()
    assert json.loads(piped.out)["meta"]["placed"] == "-ngl 9"
    splits = call("splits", "placed.json.gz")
    assert splits.status == 0
    assert call("splits", "-", stdin=piped.out.encode()).out == splits.out
    assert call("place", "-ngl", "9", "--json", GEMMA, "-o", "numbers.json").status == 0
    assert json.loads(Path("numbers.json").read_text("utf-8"))["kind"] == "placement"


def test_a_scenario_that_does_not_fit_is_written_and_said_so(call: Call) -> None:
    result = call("place", "-ngl", "9", "--device", "CUDA0:700MiB", "-o", "placed.json", GEMMA)
    assert (result.status, result.out) == (1, "")
    assert "CUDA0 does not fit: " in result.err
    assert Path("placed.json").exists()


def test_a_second_placement_forgets_the_first(call: Call) -> None:
    call("place", "-ngl", "4", "--device", "CUDA0", "--device", "CUDA1", "-o", "placed.json", GEMMA)
    again = json.loads(call("place", "-ngl", "9", "--device", "CUDA0", "--json", "placed.json").out)
    direct = json.loads(call("place", "-ngl", "9", "--device", "CUDA0", "--json", GEMMA).out)
    assert again["devices"] == direct["devices"]
    assert again["graphs"] == direct["graphs"]


def test_experts_stay_on_the_cpu(call: Call) -> None:
    tensors = {f"blk.{il}.ffn_{name}_exps.weight": "q4_0[256, 32, 8]" for il in range(3) for name in ("up", "down")}
    scenario = {
        "ggmltool": 1,
        "contexts": {
            "weights": {"buft": "CPU", "usage": "weights", "tensors": tensors},
            "inputs": {"tensors": {"x": {"type": "f32", "ne": [256, 1, 8], "flags": ["input"]}, "ids": "i32[2, 8]"}},
        },
        "graphs": {
            "main": {"nodes": {f"y-{il}": f"mul_mat_id(blk.{il}.ffn_up_exps.weight, x, ids)" for il in range(3)}}
        },
    }

    def on_cpu(*options: str) -> list[str]:
        result = call("place", *options, "--device", "CUDA0", "--json", "-", stdin=json.dumps(scenario).encode())
        return [t["name"] for t in json.loads(result.out)["tensors"] if t["buft"] == "CPU"]

    assert on_cpu() == []
    assert on_cpu("--cpu-moe") == list(tensors)
    assert on_cpu("--n-cpu-moe", "2") == list(tensors)[:4]
    assert on_cpu("-ngl", "0") == list(tensors)
    assert on_cpu("-ot", r"\.[1]\.=CPU", "-ot", "exps=CUDA0") == list(tensors)[2:4]


def test_what_moves_nothing_is_said(call: Call) -> None:
    out = call("place", "-ot", "ffn_dwon=CPU,ffn_up=CPU", "--n-cpu-moe", "2", GEMMA, columns=200).out
    assert re.findall(r"^note: no weight is placed by (.*)$", out, re.MULTILINE) == [
        "-ot ffn_dwon=CPU",
        "--n-cpu-moe 2",
    ]
    assert "note: there are no layers" in call("place", "matmul", columns=200).out


def test_a_device_of_another_name_is_said_to_do_everything(call: Call) -> None:
    result = call("place", "--device", "CUDO0:2GiB", GEMMA)
    assert (result.status, result.err) == (
        0, "CUDO0 is not a known device (see `ggmltool backends`): it is assumed to support every op\n"
    )  # fmt: skip
    assert call("place", "-q", "--device", "CUDO0:2GiB", GEMMA).err == ""
    assert call("place", "--device", "Vulkan1:2GiB", GEMMA).err == ""


def test_a_pattern_that_would_search_forever_is_given_up(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggmltool.sources.llama.overrides.SECONDS", 0.2)
    scenario = {
        "ggmltool": 1,
        "contexts": {"w": {"buft": "CPU", "usage": "weights", "tensors": {"a" * 40 + "!": "f32[8, 8]"}}},
        "graphs": {"main": {"nodes": {"y": f"sqr({'a' * 40}!)"}}},
    }
    scenario["graphs"] = {"main": {"nodes": {"y": {"op": "sqr", "src": ["a" * 40 + "!"]}}}}
    result = call("place", "-ot", "(a+)+$=CPU", "-", stdin=json.dumps(scenario).encode())
    assert (result.status, result.out) == (2, "")
    assert "the patterns of -ot search for longer than" in result.err


def test_ops_that_a_gpu_does_not_support_are_named_with_the_reason(call: Call, tmp_path: Path) -> None:
    """U16, U17."""
    device = tmp_path / "npu.yaml"
    device.write_text("- name: NPU0\n  supports: {except: [glu], rules: [{op: rope, src0: {ne0: [64, 128]}}]}\n")
    out = call("place", "-ngl", "all", "--device", device, "gemma-3-270m", columns=110).out
    assert "NPU0 does not support this ROPE (ne[0] of source 0 is 256, not 64 or 128): 36 nodes on CPU\n" in out
    assert "NPU0 does not support GEGLU: 18 nodes on CPU\n" in out
    document = json.loads(call("place", "-ngl", "all", "--device", device, "--json", "gemma-3-270m").out)
    assert [(u["op"], u["lacks"], u["runs_on"], u["nodes"]) for u in document["unsupported"]] == [
        ("ROPE", False, "CPU", 36),
        ("GEGLU", True, "CPU", 18),
    ]


@pytest.mark.parametrize(
    ("devices", "says"),
    [
        ("CUDA0:24GiB,CUDA1:8GiB", "error loading model: device CUDA0 does not support split buffers"),
        ("SYCL0:24GiB,SYCL1:8GiB", "in a buffer (SYCL_Split) that cannot run the operation (NONE)"),
    ],
)
@pytest.mark.parametrize("command", [["place"], ["sweep", "-ngl", "1..3"]])
def test_rows_end_as_llama_cpp_does(call: Call, command: list[str], devices: str, says: str) -> None:
    ran = call(*command, "-sm", "row", "--device", devices, "gemma-3-270m")
    assert ran.status == 1
    assert says in ran.err
    assert "Use -sm layer" in ran.err
    assert not ran.out


def test_a_placement_on_all_gpus_is_a_scenario_of_one_device(call: Call) -> None:
    command = ("place", "-sm", "tensor", "-ts", "3,1", "--device", "CUDA0:2GiB,CUDA1:2GiB", GEMMA)
    document = json.loads(call(*command, "--json").out)
    assert call(*command, "-o", "placed.json.gz").status == 0
    plan = ggmltool.load("placed.json.gz").plan(step="reserve")
    assert dict(plan.buffer_sizes)["Meta(CUDA0,CUDA1)"] == document["devices"][0]["compute"]
    assert {d["device"]: d["compute"] for d in document["devices"][:2]} == dict.fromkeys(
        ("CUDA0", "CUDA1"), document["devices"][0]["compute"]
    )
    assert [(s["gpu"], s["asked"]) for s in document["shares"]] == [("CUDA0", 0.75), ("CUDA1", 0.25)]


def test_a_fit_that_llama_cpp_gives_up_is_told_in_its_words(call: Call) -> None:
    result = call("place", "--fit", "-ngl", "9", "--device", "CUDA0:700MiB", GEMMA)
    assert result.status == 1
    assert result.err == (
        "common_fit_params: failed to fit params to free device memory: n_gpu_layers already set by user to 9, abort\n"
    )
    assert "llama.cpp gives up: n_gpu_layers already set by user to 9, abort" in result.out


def test_experts_kept_on_the_cpu_by_the_user_are_overrides_that_a_fit_leaves_alone(call: Call) -> None:
    result = call("place", "--fit", "--cpu-moe", "--device", "CUDA0:700MiB", GEMMA)
    assert (result.status, "tensor_buft_overrides already set by user" in result.err) == (1, True)


def test_a_device_that_reports_no_memory_gets_no_layer(call: Call) -> None:
    result = call("place", "--fit", "--device", "CUDA0:0GiB,CPU:64GiB", GEMMA)
    assert "device CUDA0 did not report memory; --fit will not use it" in result.out
    assert "-c 2048 -ngl 0" in result.out


def test_a_fit_is_written_as_the_placement_that_it_chose(call: Call) -> None:
    call("place", "--fit", "-fitt", "900", "--device", "CUDA0:1600MiB", "-o", "placed.json.gz", GEMMA)
    shown = json.loads(call("place", "--fit", "-fitt", "900", "--device", "CUDA0:1600MiB", "--json", GEMMA).out)
    meta = ggmltool.load("placed.json.gz").opened.model.meta
    assert f"-ngl {shown['fit']['n_gpu_layers']} " in f"{meta['placed']} "
    assert shown["options"]["n_gpu_layers"] == shown["fit"]["n_gpu_layers"]


def test_python_asks_for_it_as_auto() -> None:
    found = ggmltool.load(GEMMA).place("auto", device="CUDA0:1600MiB", margin="900MiB")
    assert found.as_dict()["fit"]["status"] == "success"


def test_what_is_too_much_is_refused(call: Call) -> None:
    long = call("place", "-ot", f"{'a' * 1001}=CPU", GEMMA)
    many = call("sweep", "-ngl", "0..19", *(f"-ts=1,{n}" for n in range(1, 1002)), GEMMA)
    assert (long.status, "the limit is 1000" in long.err) == (2, True)
    assert (many.status, "20020 placements are too many" in many.err) == (2, True)
