"""`--fit`: what llama.cpp sets for GPUs that do not exist is set here, with the same lines on the way."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from ggmltool.ask.place.chosen import choose as choose_for
from ggmltool.ask.place.chosen import printed
from ggmltool.ask.place.options import PlaceRequest
from ggmltool.inspect.opened import Opened
from ggmltool.scenario.devices.backends import read_backends
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.sources.llama.capture.capture import capture
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.own_fit.common_fit import common_fit_params
from ggmltool.sources.llama.own_fit.records import FULL_CTX, FitParams, Fitted, PlacedMemory, fit_devices, fit_model
from ggmltool.sources.llama.own_fit.records import FitSettings as Ours
from ggmltool.sources.llama.place.options import PlaceOptions, parse_overrides
from ggmltool.sources.llama.place.place import Placer
from tests.sources.fake_gpus import FakeGpu, Refused, Settings
from tests.sources.library import has, needs_library
from tests.sources.models import SPECIAL_MODELS, cached
from tests.sources.real_fit import FitSettings, Found, fit
from tests.sources.real_models import real

pytestmark = needs_library

MIB = 1 << 20
STATUS = ("success", "failure", "error")


@cache
def captured(path: Path, options: CaptureOptions) -> ScenarioSpec:
    return load_spec(capture(path, options).scenario)


def choose(
    path: Path, gpus: Sequence[FakeGpu], settings: Settings, asked: FitSettings, host: Sequence[int], sequences: bool
) -> Fitted:
    """Our own choice for the same devices and settings."""
    specs = [{**gpu.spec(), "memory": gpu.memory} for gpu in gpus]
    devices = read_backends([*specs, {"name": "CPU", "memory": host[0]}])
    options = settings.options

    def captures(n_ctx: int) -> Placer:
        return Placer(captured(path, replace(options, n_ctx=n_ctx)), devices)

    base = PlaceOptions(
        split_mode="none" if asked.split_mode == "none" else "layer",
        main_gpu=settings.main_gpu,
        offload_kqv=options.offload_kqv,
        op_offload=settings.op_offload,
        extra_bufts=settings.use_extra_bufts,
    )
    overrides = tuple(o for pattern, device in settings.overrides for o in parse_overrides(f"{pattern}={device}"))
    params = FitParams(options.n_ctx, settings.n_gpu_layers, settings.tensor_split, overrides)
    placer = captures(options.n_ctx)
    found = fit_devices(placer, base)
    margins = asked.margins[: len(found)] if found else asked.margins[:1]
    n_streams = 1 if options.kv_unified else max(1, options.n_parallel)
    with_host = Ours(margins, asked.n_ctx_min, n_streams, asked.split_mode, host[-1])
    memory = PlacedMemory(captures, base, options.flash_attn == "auto")
    return common_fit_params(fit_model(placer), found, with_host, params, memory, sequences)


def check(path: Path, gpus: Sequence[FakeGpu], settings: Settings, asked: FitSettings) -> tuple[Fitted, Found]:
    """The same parameters, the same status, the same log."""
    there = fit(path, gpus, settings, asked)
    here = choose(path, gpus, settings, asked, there.host, "8.10566" not in settings.options.library)
    assert list(here.log) == there.log
    assert here.status == STATUS[there.status]
    assert here.params.n_ctx == there.n_ctx
    assert here.params.n_gpu_layers == there.n_gpu_layers
    shares = [*here.params.tensor_split, *[0.0] * 16][:16]
    assert shares == there.tensor_split
    assert [(o.pattern.pattern, o.buft) for o in here.params.overrides] == [(p, b) for p, b in there.overrides]
    return here, there


MODELS = ("llama", "llama-moe", "gemma2", "gemma3", "granitehybrid", "mamba2", "gpt-oss", "deepseek2", "qwen3", "rwkv7")
WRAPS = (27,)
"""Here llama.cpp's numbers of layers pass below zero, and it gives up with a split of thousands of millions."""


def random_case(seed: int) -> tuple[str, list[FakeGpu], Settings, FitSettings]:
    """A model, devices of random memory, and settings."""
    rng = random.Random(seed)
    name = rng.choice(MODELS)
    n = rng.choice((1, 1, 2, 2, 3, 4))
    events = rng.random() < 0.3
    most = rng.choice((6, 15, 40))
    gpus = [
        FakeGpu(
            f"CUDA{i}",
            memory=int(rng.uniform(0.2, most) * MIB),
            events=events,
            type="igpu" if rng.random() < 0.1 else "gpu",
        )
        for i in range(n)
    ]
    options = CaptureOptions(
        n_ctx=rng.choice((0, 0, 0, 512, 4096)),
        n_ubatch=rng.choice((512, 512, 128)),
        n_parallel=rng.choice((1, 1, 1, 4)),
        kv_unified=rng.random() < 0.3,
        type_k=rng.choice(("f16", "f16", "q8_0" if name != "deepseek2" else "f16")),
        program=rng.choice(("server", "library")),
    )
    margins = tuple(int(rng.choice((0, 0.5, 2)) * MIB) for _ in gpus)
    asked = FitSettings(margins, rng.choice((4096, 256, 1024, FULL_CTX)))
    return name, gpus, Settings(options=options), asked


@pytest.mark.parametrize("seed", [*range(10), *WRAPS])
def test_what_llama_cpp_chooses_is_chosen_here_with_the_same_words(seed: int) -> None:
    name, gpus, settings, asked = random_case(seed)
    here, _ = check(cached(name), gpus, settings, asked)
    assert here.status == ("error" if seed in WRAPS else "success")


def devices(*mib: float, **more: Any) -> list[FakeGpu]:
    return [FakeGpu(f"CUDA{i}", memory=int(n * MIB), **more) for i, n in enumerate(mib)]


def fixed(n_ctx: int = 512, **more: Any) -> Settings:
    return Settings(options=CaptureOptions(n_ctx=n_ctx), **more)


NONE, TWO_MARGINS = FitSettings((0,)), FitSettings((0, 0))

EXTREMES = {
    "nothing fits": (devices(0.01), fixed(0), NONE),
    "nothing fits on two": (devices(0.01, 0.01), fixed(0), TWO_MARGINS),
    "everything fits": (devices(1000), fixed(0), NONE),
    "everything fits on two": (devices(1000, 500), fixed(0), TWO_MARGINS),
    "four sequences fit": (devices(1000), Settings(options=CaptureOptions(n_parallel=4)), NONE),
    "memory unknown": (devices(0), fixed(), NONE),
    "memory of one unknown": (devices(0, 30), fixed(0), TWO_MARGINS),
    "memory of the last unknown": (devices(30, 0), fixed(0), TWO_MARGINS),
    "margin above the memory": (devices(20), fixed(), FitSettings((1 << 30,))),
    "a margin for each": (devices(9, 9), fixed(), FitSettings((8 * MIB, 0))),
    "integrated": (devices(8, type="igpu"), fixed(), NONE),
    "full context": (devices(9), fixed(0), FitSettings((0,), FULL_CTX)),
    "shortest context above the model's": (devices(9), fixed(0), FitSettings((0,), 1 << 20)),
    "layers by the user": (devices(9), fixed(0, n_gpu_layers=2), NONE),
    "all layers by the user": (devices(9), fixed(n_gpu_layers=-2), NONE),
    "split by the user": (devices(5, 4), fixed(tensor_split=(3, 1)), TWO_MARGINS),
    "split of one by the user": (devices(5), fixed(tensor_split=(1,)), NONE),
    "overrides by the user": (devices(5), fixed(overrides=((r"\.ffn_(up|down|gate|gate_up)_(ch|)exps", "CPU"),)), NONE),
    "one of two": (devices(9, 5), fixed(0, main_gpu=1, split_mode="none"), FitSettings((0,), split_mode="none")),
    "KV cache on the CPU": (devices(6, 5), Settings(options=CaptureOptions(n_ctx=512, offload_kqv=False)), TWO_MARGINS),
    "no flash attention": (
        devices(6, 5, without=("FLASH_ATTN_EXT",)),
        Settings(options=CaptureOptions(n_ctx=512, flash_attn="off")),
        TWO_MARGINS,
    ),
    "flash attention on the CPU": (
        devices(6, 5, without=("FLASH_ATTN_EXT",)),
        Settings(options=CaptureOptions(n_ctx=512, flash_attn="on")),
        TWO_MARGINS,
    ),
    "no op offload": (devices(6), fixed(op_offload=False), NONE),
    "repacked": (devices(6), fixed(use_extra_bufts=True), NONE),
}


@pytest.mark.parametrize(("name", "case"), [*zip(cycle(("llama", "llama-moe", "llama-moe")), EXTREMES, strict=False)])
def test_extremes_come_out_as_they_do_there(name: str, case: str) -> None:
    check(cached(name), *EXTREMES[case])


@pytest.mark.parametrize("n_ctx", [0, 512])
@pytest.mark.parametrize("margin", [0, 1 << 50])
def test_without_a_gpu_the_memory_of_the_host_counts(n_ctx: int, margin: int) -> None:
    here, _ = check(cached("llama"), [], fixed(n_ctx), FitSettings((margin,)))
    assert here.ok == (margin == 0)


@pytest.mark.parametrize("name", SPECIAL_MODELS)
def test_models_with_rules_of_their_own_are_fitted_as_there(name: str) -> None:
    check(cached(name), devices(4, 3), fixed(), TWO_MARGINS)


def test_flash_attention_that_llama_cpp_turns_off_is_refused() -> None:
    gpus = devices(6, without=("FLASH_ATTN_EXT",))
    with pytest.raises(PlaceError, match="decide with -fa on or -fa off"):
        choose(cached("llama"), gpus, fixed(), NONE, (1, 1), True)


def test_a_division_by_zero_ends_llama_cpp_and_is_told() -> None:
    settings = fixed(0, n_gpu_layers=0)
    with pytest.raises(Refused, match="-8"):
        fit(cached("llama"), devices(1, 1), settings, TWO_MARGINS)
    here = choose(cached("llama"), devices(1, 1), settings, TWO_MARGINS, (1, 1), True)
    assert (here.status, here.reason) == ("crash", "divides by zero (SIGFPE)")


def test_what_is_split_by_tensors_is_refused_before_anything_is_measured() -> None:
    here = choose(cached("llama"), devices(1), fixed(), FitSettings((0,), split_mode="tensor"), (1, 1), True)
    there = fit(cached("llama"), devices(1), fixed(), FitSettings((0,), split_mode="tensor"))
    assert list(here.log) == there.log
    assert not here.trials


GIB = 1 << 30
REAL = {
    "qwen3-30b-a3b on one": ("qwen3-30b-a3b", (12,), 0),
    "qwen3-30b-a3b on three": ("qwen3-30b-a3b", (8, 6, 8), 16384),
    "llama-70b on two": ("llama-70b", (24, 24), 0),
    "nemotron-49b on two": ("nemotron-49b", (19, 19), 0),
    "mamba-2.8b": ("mamba-2.8b", (2,), 0),
}


@pytest.mark.parametrize("case", REAL)
def test_published_models_are_fitted_as_there(case: str) -> None:
    name, memory, n_ctx = REAL[case]
    gpus = [FakeGpu(f"CUDA{i}", memory=n * GIB, events=True) for i, n in enumerate(memory)]
    here, _ = check(real(name), gpus, fixed(n_ctx), FitSettings((GIB,) * len(memory)))
    assert here.ok
    assert len(here.trials) > 1


def test_a_last_gpu_without_a_layer_keeps_all_experts_on_the_cpu() -> None:
    """However much the first one has left: 39 GiB of its 40 here."""
    gpus = [FakeGpu("CUDA0", memory=40 * GIB), FakeGpu("CUDA1", memory=900 * MIB)]
    here, _ = check(real("qwen3-30b-a3b"), gpus, fixed(8192), FitSettings((GIB, GIB)))
    assert here.ok
    assert len(here.params.overrides) == here.params.n_gpu_layers == 49
    assert here.trials[-1].measured.devices[0].total < 2 * GIB


@pytest.mark.parametrize("n_gpu_layers", [-1, 2])
def test_what_is_printed_of_given_parameters_is_what_is_printed_there(n_gpu_layers: int) -> None:
    gpus = devices(100, 50)
    there = fit(cached("llama-moe"), gpus, fixed(n_gpu_layers=n_gpu_layers), TWO_MARGINS, prints=True)
    layers = "all" if n_gpu_layers < 0 else str(n_gpu_layers)
    assert printed(opened_for(512), PlaceRequest(layers, device=named(gpus), no_repack=True)) == there.printed


def opened_for(n_ctx: int) -> Opened:
    return Opened(LoadedScenario(captured(cached("llama-moe"), fixed(n_ctx).options)))


def named(gpus: Sequence[FakeGpu]) -> tuple[str, ...]:
    """The devices as --device takes them."""
    traits = "profile=custom,row_padding=512,offload_min_batch=32"
    return tuple(f"{gpu.name}:memory={gpu.memory},{traits}" for gpu in gpus)


def test_what_is_chosen_is_asked_for_as_a_placement() -> None:
    """A context that nobody set is shortened, and captured anew."""
    gpus = devices(20, 14)
    there = fit(cached("llama-moe"), gpus, fixed(0), FitSettings((MIB, 2 * MIB), 1024))
    asked = PlaceRequest("auto", margin=(MIB, 2 * MIB), device=named(gpus), no_repack=True, fit_ctx=1024)
    chosen = choose_for(opened_for, asked)
    assert list(chosen.fitted.log) == there.log
    assert chosen.arguments.startswith(f"-c {there.n_ctx} -ngl {there.n_gpu_layers}")
    assert there.n_ctx < 8192
    assert chosen.opened.model.meta["n_ctx"] == there.n_ctx
    assert chosen.asked.layers in (str(there.n_gpu_layers), "all")


@pytest.mark.parametrize("seed", [1, 4, 24])
def test_the_llama_cpp_of_august_counts_the_context_once_for_all_sequences(seed: int) -> None:
    library = "xllamacpp==2026.8.10566"
    if not has(library):
        pytest.skip(f"needs {library}: a folder of GGMLTOOL_LIBRARIES")
    name, gpus, settings, asked = random_case(seed)
    check(cached(name), gpus, replace(settings, options=replace(settings.options, library=library)), asked)
