"""The line that `fit` prints is what llama.cpp's own parser reads as the settings that were planned."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.place.options import (
    PlaceOptions,
    Tool,
    can_run,
    cpu_moe,
    line,
    n_cpu_ffn,
    n_cpu_moe,
    parse_overrides,
)
from tests.sources.fake_device import FakeGpu
from tests.sources.library import needs_library
from tests.sources.real_parser import parse

CONTEXT = CaptureOptions(n_ctx=32768)
TWO = [FakeGpu("CUDA0"), FakeGpu("CUDA1")]
NAME = 'it\'s a $HOME & "model" (1).gguf'
EXPERTS, DENSE = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU", r"\.ffn_(up|down|gate)\.=CPU"

CASES: dict[str, tuple[CaptureOptions, PlaceOptions, list[FakeGpu], dict[str, Any]]] = {
    "plain": (CONTEXT, PlaceOptions(), TWO[:1], {"n_ctx": 32768, "n_gpu_layers": -2, "n_parallel": 1}),
    "no GPU": (CONTEXT, PlaceOptions(0), [], {"n_ctx": 32768}),
    "batches": (replace(CONTEXT, n_ubatch=4096, n_batch=4096), PlaceOptions(7), TWO[:1],
                {"n_batch": 4096, "n_ubatch": 4096, "n_gpu_layers": 7}),
    "a small batch": (replace(CONTEXT, n_batch=128, n_ubatch=64), PlaceOptions(), TWO[:1],
                      {"n_batch": 128, "n_ubatch": 64}),
    "types of caches": (replace(CONTEXT, type_k="q8_0", type_v="q4_0", flash_attn="on"), PlaceOptions(), TWO,
                        {"cache_type_k": 8, "cache_type_v": 2, "flash_attn_type": 1}),
    "sequences": (replace(CONTEXT, n_parallel=3, kv_unified=True, swa_full=True), PlaceOptions(), TWO,
                  {"n_parallel": 3, "kv_unified": True, "swa_full": True}),
    "as many sequences as llama-server has": (replace(CONTEXT, n_parallel=4, kv_unified=True), PlaceOptions(), TWO,
                                              {"n_parallel": -1}),
    "four caches": (replace(CONTEXT, n_parallel=4), PlaceOptions(), TWO, {"n_parallel": 4, "kv_unified": False}),
    "a split": (CONTEXT, PlaceOptions(tensor_split=(28, 53)), TWO, {"tensor_split": [28.0, 53.0]}),
    "one of two": (CONTEXT, PlaceOptions(split_mode="none", main_gpu=1), TWO, {"split_mode": 0, "main_gpu": 1}),
    "experts": (CONTEXT, PlaceOptions(overrides=tuple(n_cpu_moe(2))), TWO,
                {"tensor_buft_overrides": rf"blk\.0{EXPERTS},blk\.1{EXPERTS}"}),
    "all experts": (CONTEXT, PlaceOptions(overrides=(cpu_moe(),)), TWO, {"tensor_buft_overrides": EXPERTS}),
    "dense parts": (CONTEXT, PlaceOptions(overrides=tuple(n_cpu_ffn(1))), TWO,
                    {"tensor_buft_overrides": rf"blk\.0{DENSE}"}),
    "patterns first": (
        CONTEXT, PlaceOptions(overrides=(*parse_overrides(r"ffn_.*=CPU,attn_k=CUDA1"), *n_cpu_moe(1))), TWO,
        {"tensor_buft_overrides": rf"ffn_.*=CPU,attn_k=CUDA1,blk\.0{EXPERTS}"},
    ),
    "what is off": (
        CONTEXT, PlaceOptions(3, offload_kqv=False, op_offload=False, extra_bufts=False, lazy_mode="off"), TWO,
        {"no_kv_offload": True, "no_op_offload": True, "no_extra_bufts": True, "lazy_mode": 0, "n_gpu_layers": 3},
    ),
}  # fmt: skip


@needs_library
@pytest.mark.parametrize("tool", ["llama-server", "llama-cli"])
@pytest.mark.parametrize("case", CASES)
def test_llama_cpp_reads_the_line_as_it_is_meant(case: str, tool: Tool) -> None:
    capture, place, gpus, meant = CASES[case]
    if not can_run(tool, capture):
        assert tool == "llama-cli"
        return
    read = parse(line(tool, NAME, capture, place, [gpu.name for gpu in gpus]), gpus)
    read["tensor_split"] = read["tensor_split"][: len(meant.get("tensor_split", ()))]
    assert {name: read[name] for name in meant} == meant, json.dumps(read)
    assert read["model"] == NAME
    assert read["fit_params"] is False


@needs_library
def test_a_device_that_is_not_there_is_refused_by_the_parser() -> None:
    with pytest.raises(ValueError, match="invalid device: CUDA1"):
        parse(line("llama-cli", "m.gguf", CONTEXT, PlaceOptions(), ["CUDA0", "CUDA1"]), TWO[:1])


def test_a_build_without_an_option_is_told_the_same_by_another() -> None:
    options = PlaceOptions(overrides=tuple(n_cpu_ffn(2)), lazy_mode="on")
    old = line("llama-server", "m.gguf", CONTEXT, options, ["CUDA0"], "b10566")
    assert r"-ot 'blk\.(0|1)\.ffn_(up|down|gate)\.=CPU'" in old
    assert "-lzm" not in old
    new = line("llama-server", "m.gguf", CONTEXT, options, ["CUDA0"], "b11549")
    assert "-ncffn 2" in new
    assert "-lzm on" in new
