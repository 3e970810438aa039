"""Placed by real llama.cpp on GPUs that do not exist, a graph is planned here as its own scheduler planned it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ggmltool
from ggmltool.ask.splits.sched_debug import sched_debug
from ggmltool.scenario.devices.texts import read_devices
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.spec import Step
from ggmltool.sources.llama.capture.capture import capture
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.errors import LlamaRefused
from ggmltool.sources.llama.place.options import PlaceOptions
from ggmltool.sources.llama.place.place import Placer
from tests.sources.fake_gpus import FakeGpu, Placed, Refused, Settings, place
from tests.sources.library import needs_library
from tests.sources.models import MODELS, cached

pytestmark = needs_library

PROMPT = CaptureOptions(n_ctx=512, n_batch=512)
TOKEN = replace(PROMPT, phase="token")
ONE, TWO = [FakeGpu("CUDA0")], [FakeGpu("CUDA0"), FakeGpu("CUDA1")]
PIPELINE = [replace(gpu, events=True) for gpu in TWO]

CASES = {
    "no layer": (ONE, Settings(0, options=PROMPT)),
    "two layers": (ONE, Settings(2, options=PROMPT)),
    "all layers, one token": (ONE, Settings(-1, options=TOKEN)),
    "three layers on two": (TWO, Settings(3, options=PROMPT)),
    "all layers on two, one token": (TWO, Settings(-1, options=TOKEN)),
    "all layers on two, pipelined": (PIPELINE, Settings(-1, options=PROMPT)),
}


def check(placed: Placed) -> None:
    """The engine's plan of what llama.cpp reserved is the real scheduler's: splits, inputs, sizes."""
    scenario = ggmltool.load(placed.scenario)
    plan = scenario.plan(step="reserve")
    name = {tensor.id: tensor.name for tensor in (*plan.nodes, *scenario.model.tensors())}
    ours = [(s.backend, s.i_start, s.i_end, tuple(name[id] for id in s.inputs)) for s in plan.splits]
    assert ours == placed.splits
    assert dict(plan.buffer_sizes) == placed.buffer_sizes


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", MODELS)
def test_a_placed_model_is_planned_as_llama_cpp_does(name: str, case: str) -> None:
    devices, settings = CASES[case]
    placed = place(cached(name), devices, settings)
    check(placed)
    assert placed.n_copies == (4 if devices is PIPELINE else 1)


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt-oss", "granitehybrid", "rwkv7"])
@pytest.mark.parametrize("n_gpu_layers", [2, -1])
def test_the_sizes_are_those_that_llama_cpp_logs_when_it_really_loads(name: str, n_gpu_layers: int) -> None:
    sizes: dict[str, int] = {}
    for options in (PROMPT, TOKEN):
        plan = ggmltool.load(place(cached(name), TWO, Settings(n_gpu_layers, options=options)).scenario).plan(
            step="reserve"
        )
        sizes = {backend: max(n, sizes.get(backend, 0)) for backend, n in plan.buffer_sizes}
    loaded = place(cached(name), TWO, Settings(n_gpu_layers, options=PROMPT, alloc=True))
    logged = {key.split()[0]: mib for key, mib in loaded.logged.items() if "compute" in key}
    assert {backend: f"{n / 2**20:.2f}" for backend, n in sizes.items()} == {b: f"{n:.2f}" for b, n in logged.items()}


@pytest.mark.parametrize("name", MODELS)
def test_the_graph_is_printed_as_llama_cpp_prints_it(name: str) -> None:
    placed = place(cached(name), TWO, Settings(3, options=PROMPT), debug=2)
    text = "\n".join(placed.log)
    run = ggmltool.load(placed.scenario).start(debug=True)
    run.step(Step("reserve", graph="main"))
    ours = sched_debug(run.debug_records[-1], 2, causes=False).strip("\n")
    assert text[text.rindex("## SPLIT #0") :].strip("\n") == ours


OTHER_CASES = {
    "tensor split": (TWO, Settings(-1, tensor_split=(3, 1))),
    "one of two": (TWO, Settings(-1, split_mode="none", main_gpu=1)),
    "overrides": (ONE, Settings(-1, overrides=((r"blk\.[0-3]\.ffn_.*", "CPU"), (r"blk\.5\.", "CUDA0")))),
    "overrides on two": (TWO, Settings(2, overrides=((r"attn_k", "CUDA1"),))),
    "no op offload": (ONE, Settings(2, op_offload=False)),
    "KV cache on the CPU": (ONE, Settings(-1, options=replace(PROMPT, offload_kqv=False))),
    "no flash attention": (ONE, Settings(2, options=replace(PROMPT, flash_attn="off"))),
    "four sequences": (ONE, Settings(2, options=replace(PROMPT, n_parallel=4, kv_unified=True))),
    "ops missing": ([replace(ONE[0], without=("SET_ROWS", "ROPE"))], Settings(0, options=PROMPT)),
    "alignment": ([replace(ONE[0], alignment=256, row_padding=0, offload_min_batch=None)], Settings(4, options=PROMPT)),
    "repacked weights": (ONE, Settings(2, use_extra_bufts=True)),
    "little memory": ([replace(ONE[0], memory=1 << 20), TWO[1]], Settings(-1)),
}


@pytest.mark.parametrize("case", OTHER_CASES)
def test_settings_and_devices_change_the_plan_here_as_there(case: str) -> None:
    check(place(cached("llama"), *OTHER_CASES[case]))


def test_where_the_weights_are_is_told() -> None:
    placed = place(cached("llama"), TWO, Settings(3))
    assert placed.weights["token_embd.weight"] == "CPU"
    assert placed.weights["blk.0.attn_q.weight"] == "CPU"
    assert placed.weights["blk.4.attn_q.weight"] == "CUDA0"
    assert placed.weights["output.weight"] == "CUDA1"
    assert set(placed.weights) == set(MODELS["llama"]().tensors)
    assert placed.logged["CPU compute buffer size"] > 0


def test_what_goes_wrong_there_is_said() -> None:
    with pytest.raises(Refused, match="quantized V cache requires flash_attn"):
        place(cached("llama"), ONE, Settings(options=replace(PROMPT, flash_attn="off", type_v="q8_0")))


def refusal(gpus: list[FakeGpu], n_gpu_layers: int) -> str:
    """What the real llama.cpp says to -sm row."""
    with pytest.raises(Refused) as refused:
        place(cached("llama"), gpus, Settings(n_gpu_layers, "row"))
    return str(refused.value)


@pytest.mark.parametrize("n_gpu_layers", [-1, 2, 0])
def test_rows_are_split_on_no_device_without_split_buffers(n_gpu_layers: int) -> None:
    with pytest.raises(LlamaRefused) as ours:
        ours_of(["CUDA0:1GiB", "CUDA1:1GiB"], n_gpu_layers)
    words = ours.value.args[0]
    assert words == "error loading model: device CUDA0 does not support split buffers"
    assert words.partition(": ")[2] in refusal(TWO, n_gpu_layers)


@pytest.mark.parametrize("n_gpu_layers", [-1, 2])
def test_a_scheduler_takes_no_split_buffer_that_its_device_does_not_support(n_gpu_layers: int) -> None:
    with pytest.raises(LlamaRefused) as ours:
        ours_of(["SYCL0:1GiB", "SYCL1:1GiB"], n_gpu_layers)
    assert ours.value.args[0] in refusal([replace(gpu, splits_rows=True) for gpu in TWO], n_gpu_layers)


def test_rows_are_split_on_no_gpu_without_a_layer() -> None:
    ours_of(["SYCL0:1GiB", "SYCL1:1GiB"], 0)
    place(cached("llama"), [replace(gpu, splits_rows=True) for gpu in TWO], Settings(0, "row"))


def ours_of(devices: list[str], n_gpu_layers: int) -> None:
    """Place the same model here with -sm row."""
    model = load_spec(capture(cached("llama"), PROMPT).scenario)
    Placer(model, read_devices(devices)).place(PlaceOptions(n_gpu_layers, "row"))
