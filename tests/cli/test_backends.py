"""`backends`: the known devices, those of a scenario, and their function tables."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ggmltool.ggml.op import Op
from ggmltool.scenario.devices.texts import read_devices
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import LoadedScenario
from tests.cli.conftest import Call
from tests.conformance.fuzz import scenario as random_scenario


@pytest.mark.parametrize(
    ("device", "figures"),
    [
        ("CUDA0:24GiB", {"memory": 24 << 30}),
        ("CUDA0:memory=1024,events=false,offload_min_batch=never", {"memory": 1024, "offload_min_batch": None}),
        ("CUDA7", {"profile": "CUDA", "buft": "CUDA7", "offload_min_batch": 32}),
        ("mine:profile=CUDA,type=igpu", {"profile": "CUDA", "type": "igpu"}),
        ("GPU0:max_size=1GiB,alignment=64", {"profile": "custom", "interface": None}),
        ("Vulkan0:max_size=2GiB,max_tensor_size=1GiB", {"profile": "Vulkan", "max_tensor_size": 1 << 30}),
        ("Metal:features=bfloat,graph_optimize=false", {"features": ["bfloat"], "graph_optimize": False}),
        ("CPU:features=neon+dotprod", {"features": ["neon", "dotprod"], "graph_optimize": None}),
        ("RPC0[host:50052]:24GiB", {"profile": "RPC", "name": "RPC0[host:50052]", "memory": 24 << 30}),
    ],
)
def test_a_device_is_made_from_its_name_and_params(call: Call, device: str, figures: dict[str, object]) -> None:
    document = json.loads(call("backends", "--json", "--device", device).out)
    made = document["backends"][0]
    assert {key: made[key] for key in figures} == figures
    assert made["caps"]["events"] == (
        made["profile"] in ("CUDA", "Metal", "Vulkan", "RPC") and "events=false" not in device
    )


@pytest.mark.parametrize(
    "device",
    [
        "CPU", "BLAS", "CUDA0:24GiB", "ROCm0:features=mfma", "Metal", "Vulkan0:max_size=2GiB", "SYCL0", "RPC0[h:1]",
        "OpenCL", "CANN0", "X:offload_min_batch=8",
    ],
)  # fmt: skip
def test_a_device_that_was_written_is_the_same_when_it_is_read(call: Call, tmp_path: Path, device: str) -> None:
    file = tmp_path / "device.yaml"
    assert call("backends", "--device", device, "--device", "CPU2:profile=CPU", "-f", "yaml", "-o", file).status == 0
    direct = call("backends", "--device", device, "--device", "CPU2:profile=CPU", "--json").out
    assert call("backends", "--device", file, "--json").out == direct


def test_a_device_is_written_edited_and_used_by_a_scenario(call: Call, tmp_path: Path) -> None:
    call("backends", "--device", "Metal", "-f", "yaml", "-o", tmp_path / "metal.yaml")
    text = (tmp_path / "metal.yaml").read_text("utf-8")
    (tmp_path / "metal.yaml").write_text(text.replace("alignment: 32", "alignment: 256"), "utf-8")
    scenario = tmp_path / "graph.yaml"
    scenario.write_text(
        "ggmltool: 1\nbackends: [{name: MTL0, profile: metal.yaml, max_size: 1GiB}, CPU]\ngraphs: {}\n", "utf-8"
    )
    document = json.loads(call("backends", "--json", scenario).out)
    metal, buft = document["backends"][0], document["buffer_types"][0]
    assert (metal["name"], metal["profile"], buft["alignment"], buft["max_size"]) == ("MTL0", "Metal", 256, 1 << 30)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("name: A\nalignment: 3\n", "device.yaml:2:12: alignment must be a power of two"),
        ("- name: A\n- {name: B, profile: X}\n", 'device.yaml:2:22: profile cannot be "X"'),
        ("backends: [{nam: A}]\n", 'device.yaml:1:13: a backend has no key "nam"'),
        ("- name: A\n  profile: other.yaml\n", 'device.yaml:2:12: profile cannot be "other.yaml"'),
        ("[]\n", "there is no device"),
        ("7\n", "there is no device"),
    ],
)
def test_a_mistake_in_a_file_of_devices_has_its_place_there(call: Call, tmp_path: Path, text: str, hint: str) -> None:
    (tmp_path / "device.yaml").write_text(text, "utf-8")
    scenario = tmp_path / "graph.yaml"
    scenario.write_text("ggmltool: 1\nbackends: [{name: A, profile: device.yaml}, CPU]\ngraphs: {}\n", "utf-8")
    for args in (("--device", tmp_path / "device.yaml"), (scenario,)):
        result = call("backends", *args)
        assert (result.status, result.out) == (2, "")
        assert hint in result.err


def test_a_profile_is_one_device_in_a_file_beside_the_scenario(call: Call, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text("[CUDA0, CPU]\n", "utf-8")
    for profile, hint in (("two.yaml", "has 2 devices"), ("no.yaml", "there is no file"), ("../x.yaml", "outside")):
        document = f"ggmltool: 1\nbackends: [{{name: A, profile: {profile}}}, CPU]\ngraphs: {{}}\n"
        (tmp_path / "graph.yaml").write_text(document, "utf-8")
        result = call("backends", tmp_path / "graph.yaml")
        assert result.status == 2
        assert "graph.yaml:2:31: " in result.err
        assert hint in result.err


@pytest.mark.parametrize("device", ["CPU", "BLAS", "CUDA0", "Metal", "Vulkan0", "SYCL0", "OpenCL", "CANN0"])
def test_the_list_of_ops_that_is_offered_is_the_one_of_the_rules(call: Call, tmp_path: Path, device: str) -> None:
    from ggmltool.ggml.device import NO
    from ggmltool.scenario.load import load_spec
    from ggmltool.scenario.run.devices import make_backends, make_bufts

    text = call("backends", "--device", device, "-f", "yaml").out
    lines = text.splitlines()
    offered = next((i for i, line in enumerate(lines) if "# supports: " in line), None)
    if offered is None:
        assert device == "CPU"
        return
    rules = next((i for i, line in enumerate(lines) if line == "  supports:"), offered)
    with_list = lines[:rules] + [line.replace("  # ", "  ", 1) for line in lines[offered:]]
    tables = []
    for devices in (lines, with_list):
        (tmp_path / "device.yaml").write_text("\n".join(devices) + "\n", "utf-8")
        document = {"ggmltool": 1, "backends": [{"name": device, "profile": "device.yaml"}, "X"]}
        model = load_spec(document, tmp_path)
        tables.append(make_backends(model, make_bufts(model))[0].device.table)
    by_rules, by_list = ([answer == NO for answer in table] for table in tables)
    families = (Op.UNARY, Op.GLU)
    assert [no for op, no in enumerate(by_list) if op not in families] == [
        no for op, no in enumerate(by_rules) if op not in families
    ]


@pytest.mark.parametrize("device", ["CUDA0", "Metal", "Vulkan0", "SYCL0", "OpenCL", "CANN0", "ROCm0"])
def test_a_device_that_is_written_out_with_its_rules_answers_as_before(call: Call, tmp_path: Path, device: str) -> None:
    """U16."""
    file = tmp_path / "device.yaml"
    assert call("backends", "--device", device, "--format", "yaml", "-o", str(file)).status == 0
    (again,) = read_devices([str(file)])[:1]
    assert again.supports is not None
    for seed in range(12):
        whole = random_scenario(seed, short_forms=False)
        given = {key: whole[key] for key in ("ggmltool", "contexts", "graphs")}
        for context in given["contexts"].values():
            context.pop("buft", None)
        for tensors in (
            *(c["tensors"] for c in given["contexts"].values()),
            *(g["nodes"] for g in given["graphs"].values()),
        ):
            for tensor in tensors.values():
                tensor.pop("backend", None)
        model = load_spec(given | {"backends": ["CPU"]})
        cpu = model.backends[0]
        answers = []
        for spec in (*read_devices([device])[:1], again):
            run = LoadedScenario(replace(model, backends=[spec, cpu])).start()
            built = [t for graph in model.graphs for t in run.build(graph).nodes]
            answers.append([run.backends[0].device.refusal(t) is None for t in built])
        assert answers[0] == answers[1]


def test_a_device_of_ones_own_is_told_what_to_implement(call: Call) -> None:
    out = call("backends", "--interface", "--device", "NPU0", columns=200).out
    assert "so it has no function tables; what a backend of your own implements, and what may be NULL:\n" in out
    rows = [" ".join(line.split()) for line in out.splitlines()]
    crash = "a crash: it is called without a check"
    assert f"supports_op required whether it computes a node, asked in every pass {crash}" in rows
    assert "get_alloc_size optional bytes of a tensor with padding ggml_nbytes" in rows
    assert "event_wait with events the stream waits for an event an assertion" in rows
    document = json.loads(call("backends", "--interface", "--json", "--device", "NPU0", "--device", "CPU").out)
    own, cpu = document["backends"]
    assert own["to_implement"]["ggml_backend_i"]["graph_compute"]["need"] == "required"
    assert "to_implement" not in cpu
    older = call("backends", "--interface", "--device", "NPU0", "--ggml", "2025-03").out
    assert older.endswith("NPU0: not a device of ggml's, so it has no function tables\n")


def test_this_machine_is_measured_and_its_file_taken_as_devices(call: Call, tmp_path: Path) -> None:
    measured = call("backends", "--measure", columns=80)
    assert measured.status == 0
    assert "Measuring the CPU" in measured.err
    assert re.search(r"^  CPU +CPU +", measured.out, re.MULTILINE)
    file = tmp_path / "here.yaml"
    assert call("backends", "--measure", "--format", "yaml", "-o", file).status == 0
    rows = json.loads(call("backends", "--rates", "--json", "--device", file).out)["devices"]
    assert rows[-1]["backends"] == ["CPU"]
    assert rows[-1]["rates"]["bandwidth"] > 1e8
    assert rows[-1]["rates"]["sources"]["memory"] == "its owner"
