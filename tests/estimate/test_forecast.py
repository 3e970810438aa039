"""Speeds of placed models, from graphs that llama.cpp built."""

from __future__ import annotations

import random

import pytest

import ggmltool
from ggmltool.estimate.forecast import SOME_HOST, Forecast, forecast, nodes_of, rates_of_devices, splits_of
from ggmltool.estimate.records import Rates
from ggmltool.estimate.seconds import Estimator, GraphWork
from ggmltool.estimate.work import VIEW, RateKind
from ggmltool.scenario.devices.texts import read_devices
from ggmltool.scenario.run.compiled import Compiled
from ggmltool.scenario.run.reserving import ReservingRun
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec
from ggmltool.sources.llama.capture.capture import capture
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.place.measurer import Measurer
from ggmltool.sources.llama.place.needs import place_and_measure
from ggmltool.sources.llama.place.options import PlaceOptions, n_cpu_moe
from ggmltool.sources.llama.place.place import Placer
from tests.sources.library import needs_library
from tests.sources.real_models import bench_model, real

GPUS = read_devices(["2x RTX 3090"])
HOST = read_devices(["CPU=Ryzen 9 7950X"])


def captured(name: str, n_ctx: int = 8192, phase: str = "both") -> ScenarioSpec:
    options = CaptureOptions(n_ctx=n_ctx, phase=phase)  # type: ignore[arg-type]
    return ggmltool.load(capture(real(name), options).scenario).model


def test_nodes_are_numbered_as_in_plans_of_every_placement() -> None:
    """Splits of one placement can be looked up in the work of a graph that was captured for another."""
    model = ggmltool.load("gemma-3-270m").model
    order = [n.id for n in nodes_of(Compiled(model), "main")]
    placer = Placer(model, GPUS)
    rng = random.Random(1)
    for _ in range(5):
        options = PlaceOptions(n_gpu_layers=rng.randrange(20), tensor_split=(rng.random(), rng.random() + 0.1))
        placement, needs = place_and_measure(placer, options)
        plan = ReservingRun(Compiled(placement.model)).reserve("main")
        assert [n.id for n in plan.nodes] == order
        assert [(s.i_start, s.i_end, s.backend) for s in splits_of(plan)] == [
            (s.i_start, s.i_end, s.backend) for s in needs.splits["main"]
        ]


def test_a_placement_takes_as_long_whether_it_was_measured_or_planned() -> None:
    model = ggmltool.load("gemma-3-270m").model
    placer = Placer(model, [*GPUS, *HOST])
    told = forecast(placer.model)
    assert told is not None
    for n in (0, 9, 19):
        placement, needs = place_and_measure(placer, PlaceOptions(n_gpu_layers=n))
        of_placed = forecast(placement.model)
        assert of_placed is not None
        plan = ReservingRun(Compiled(placement.model)).reserve("main")
        measured = told.speeds(needs.splits, needs.parallel)
        assert measured == of_placed.speeds({"main": splits_of(plan)}, needs.parallel)
        assert measured == told.speeds(Measurer(placer).needs(PlaceOptions(n_gpu_layers=n)).splits, needs.parallel)


def test_rates_are_known_only_if_those_of_every_gpu_are() -> None:
    cpu, unknown = BackendSpec("CPU", "CPU"), BackendSpec("CUDA2", "CUDA")
    assert rates_of_devices([cpu]) is None
    assert rates_of_devices([*GPUS, unknown, cpu]) is None
    assert rates_of_devices([unknown, *HOST]) is None
    found = rates_of_devices([*GPUS, cpu])
    assert found is not None
    assert [rates.name for rates in found.values()] == ["RTX 3090", "RTX 3090", SOME_HOST.name]
    blas = rates_of_devices([*GPUS, BackendSpec("BLAS", "BLAS"), *HOST])
    assert blas is not None
    assert blas["BLAS"] == blas["CPU"]


@needs_library
def test_a_token_reads_every_weight_once_and_a_prompt_multiplies_each_with_every_token() -> None:
    """Llama 70B: 70.6 billion weights, of which the embeddings are looked up. Behind the last attention and its output,
    llama.cpp goes on with the one token whose logits are wanted."""
    model = captured("llama-70b")
    works = {name: GraphWork(nodes_of(Compiled(model), name)).works for name in model.graphs}
    weights = sum(t.type.row_size(t.ne[0]) * t.ne[1] for t in model.tensors() if t.name.endswith("weight"))
    embeddings = next(t for t in model.tensors() if t.name == "token_embd.weight")
    read = sum(w.nbytes for w in works["token"] if w.kind is RateKind.QUANTIZED)
    assert read == pytest.approx(weights - embeddings.type.row_size(embeddings.ne[0]) * embeddings.ne[1], rel=0.01)
    operations = sum(w.operations for w in works["prompt"] if w.kind is RateKind.QUANTIZED)
    output, for_one = 8192 * 128256, 8192 * 128256 + 3 * 8192 * 28672
    assert operations == pytest.approx(2 * 512 * (70.55e9 - output - for_one) + 2 * for_one, rel=2e-3)


@needs_library
def test_a_token_of_a_mixture_reads_the_experts_that_it_uses() -> None:
    """Qwen3-30B-A3B: 3.3 billion of 30.5 billion weights are active."""
    model = captured("qwen3-30b-a3b")
    token = GraphWork(nodes_of(Compiled(model), "token")).works
    active = sum(w.operations for w in token if w.kind is not RateKind.ATTENTION and w.columns) / 2
    assert active == pytest.approx(3.35e9 - 0.31e9, rel=0.05)


def measured(
    model: ScenarioSpec, devices: list[BackendSpec], options: PlaceOptions, rates: dict[str, Rates]
) -> tuple[float, float]:
    """The likely seconds of a prompt's ubatch, and of a token."""
    splits, compiled = Measurer(Placer(model, devices)).needs(options).splits, Compiled(model)
    works = {graph: GraphWork(nodes_of(compiled, graph), 0) for graph in ("prompt", "token")}
    prompt, token = (Estimator(work, rates).seconds(splits[graph]).mid for graph, work in works.items())
    return prompt, token


@needs_library
def test_experts_on_the_host_make_a_prompt_wait_for_pcie() -> None:
    """All experts are used and copied, once for each ubatch: 16 GiB over a link of known speed."""
    model = captured("qwen3-30b-a3b")
    gpu = read_devices(["RTX 3060 12GB"])
    rates = rates_of_devices([*gpu, *HOST])
    assert rates is not None
    prompt, token = measured(model, gpu, PlaceOptions(overrides=tuple(n_cpu_moe(48))), rates)
    link = rates["CUDA0"].to_device
    assert link is not None
    nbytes = sum(t.type.row_size(t.ne[0]) * t.ne[1] * t.ne[2] for t in model.tensors() if "_exps." in t.name)
    assert prompt == pytest.approx(nbytes / (link.pageable * rates["CUDA0"].efficiency.link.mid), rel=0.25)
    all_there = measured(model, gpu, PlaceOptions(), rates)
    assert prompt > 3 * all_there[0]
    assert token > 1.3 * all_there[1]


@needs_library
def test_pipeline_copies_make_long_prompts_faster_on_two_gpus() -> None:
    model = captured("llama-70b", phase="prompt")
    needs = Measurer(Placer(model, GPUS)).needs(PlaceOptions())
    rates = rates_of_devices([*GPUS, BackendSpec("CPU", "CPU")])
    assert rates is not None
    short, long = (Forecast(model, rates, n_prompt=n).speeds(needs.splits, parallel=True) for n in (512, 8192))
    assert short.prompt_rate is not None
    assert long.prompt_rate is not None
    assert long.prompt_rate.mid > 1.5 * short.prompt_rate.mid


@needs_library
def test_a_deeper_cache_costs_what_attention_reads() -> None:
    model = captured("llama-70b", n_ctx=32768)
    nodes = nodes_of(Compiled(model), "token")
    empty, deep = (sum(w.nbytes for w in GraphWork(nodes, d).works) for d in (255, 16383))
    cells = 80 * 2 * 8 * 128 * 2
    assert deep - empty == pytest.approx((16384 - 256) * (cells + 80 * 2), rel=0.01)


def test_every_node_that_computes_is_counted() -> None:
    nodes = nodes_of(Compiled(ggmltool.load("gemma-3-270m").model), "main")
    for n, w in zip(nodes, GraphWork(nodes).works, strict=True):
        assert (w == VIEW) == n.is_view_op
        assert w.nbytes > 0 or n.is_view_op


SOURCES = "https://github.com/AlexsJones/llmfit/pull/755", "https://github.com/AlexsJones/llmfit/pull/775"
"""An RTX 2080 and a Core i9-10900X: tokens of an answer in a second, for one request of a server."""


@needs_library
@pytest.mark.parametrize(
    ("model", "layers", "measured"), [("qwen3-30b-a3b q4_K_M", 36, 36.7), ("gpt-oss-20b mxfp4", 12, 36.4)]
)
def test_experts_on_the_cpu_are_met_within_a_factor_and_a_half(model: str, layers: int, measured: float) -> None:
    path = real("qwen3-30b-a3b") if model.startswith("qwen3") else bench_model(model)
    captured = capture(path, CaptureOptions(n_ctx=4096, phase="both"))
    placed = ggmltool.load(captured.scenario).place(n_cpu_moe=layers, device=["RTX 2080", "CPU=Core i9-10900X"])
    speeds = placed.as_dict()["speeds"]["tokens_per_second"]
    assert measured / 1.1 < speeds["mid"] < 1.5 * measured
