"""-sm tensor as the real llama.cpp does it on GPUs that do not exist: the plan, and what each of them is asked for."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from ggmltool.scenario.devices.backends import read_backends
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.sources.llama.capture.capture import capture
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.errors import LlamaRefused, PlaceError
from ggmltool.sources.llama.place.meta_device import NOT_IMPLEMENTED, OnAll, place_on_all
from ggmltool.sources.llama.place.options import PlaceOptions
from tests.sources.fake_gpus import FakeGpu, Refused, Settings, place
from tests.sources.gguf_file import Description, write_gguf
from tests.sources.library import needs_library
from tests.sources.models import MODELS, cached

pytestmark = needs_library

PROMPT = CaptureOptions(n_ctx=512, n_batch=512)
FINE = ("llama-moe", "gpt-oss", "gemma3", "gemma2")
"""Models whose blocks are small enough that each GPU has some of every tensor that is cut."""


def check(path: Path, n_gpus: int, n_gpu_layers: int, shares: tuple[float, ...]) -> OnAll:
    """Place a model there and here, and compare the splits and every buffer."""
    gpus = [FakeGpu(f"CUDA{i}") for i in range(n_gpus)]
    there = place(path, gpus, Settings(n_gpu_layers, "tensor", tensor_split=shares, alloc=True, options=PROMPT))
    model = load_spec(capture(path, PROMPT).scenario)
    devices = read_backends([{**gpu.spec(), "memory": gpu.memory} for gpu in gpus])
    here = place_on_all(model, devices, PlaceOptions(n_gpu_layers, "tensor", tensor_split=shares), (0,))
    meta = f"Meta({','.join(gpu.name for gpu in gpus)})"
    names = names_of(here.placement.model)
    assert [(s.backend, s.i_start, s.i_end, tuple(names[copied.id] for copied in s.inputs))
            for s in here.needs.splits["main"]] == there.splits  # fmt: skip
    assert dict(here.needs.plan.buffer_sizes) == there.buffer_sizes
    for gpu in gpus:
        use = next(use for use in here.needs.uses if use.device == gpu.name)
        weights, *caches, compute = there.allocated[gpu.name]
        assert (use.weights, use.cache, use.compute) == (weights, sum(caches), compute), gpu.name
        assert compute == there.buffer_sizes[meta]
    return here


def names_of(model: ScenarioSpec) -> dict[str, str]:
    return {t.id: t.name for t in (*model.tensors(), *model.graphs["main"].nodes)}


@pytest.mark.parametrize("n_gpus", [1, 2, 3, 4])
@pytest.mark.parametrize("name", FINE)
def test_every_gpu_has_what_it_has_there(name: str, n_gpus: int) -> None:
    random_ = random.Random(f"{name} {n_gpus}")
    check(cached(name), n_gpus, -1, ())
    for _ in range(2):
        shares = tuple(random_.choice((1.0, 2.0, 3.0, 0.7, 0.49, 5.25)) for _ in range(n_gpus))
        check(cached(name), n_gpus, random_.choice((-1, 2, 3)), shares)


@pytest.mark.parametrize("shares", [(), (3.0, 1.0), (1.0, 2.5)])
def test_fused_weights_are_cut_part_by_part(tmp_path: Path, shares: tuple[float, ...]) -> None:
    fused = MODELS["phi3"]()
    tensors = {name: ("q8_0" if type_.startswith("q") else type_, ne) for name, (type_, ne) in fused.tensors.items()}
    path = tmp_path / "phi3.gguf"
    write_gguf(path, Description(fused.architecture, fused.values, tensors))
    check(path, 2, -1, shares)


def test_shares_drift_from_those_asked_for() -> None:
    """What llama.cpp #28506 is about: parts are rounded down to heads and blocks."""
    shares = check(cached("gpt-oss"), 2, -1, (0.6, 0.4)).shares
    assert [share.asked for share in shares] == pytest.approx([0.6, 0.4])
    assert shares[0].got == pytest.approx(0.6, abs=0.2)
    assert shares[0].got != pytest.approx(0.6, abs=0.01)
    assert sum(share.got for share in shares) == pytest.approx(1)


def refusal(name: str, **options: str) -> str:
    settings = Settings(-1, "tensor", options=replace(PROMPT, **options))
    with pytest.raises(Refused) as refused:
        place(cached(name), [FakeGpu("CUDA0"), FakeGpu("CUDA1")], settings)
    return str(refused.value)


def ours(name: str, *devices: str, **options: str) -> OnAll:
    model = load_spec(capture(cached(name), replace(PROMPT, **options)).scenario)
    return place_on_all(model, read_backends([{"name": d} for d in devices]), PlaceOptions(), (0,))


@pytest.mark.parametrize("name", sorted(NOT_IMPLEMENTED & set(MODELS)))
def test_an_architecture_is_refused_in_its_words(name: str) -> None:
    with pytest.raises(LlamaRefused) as refused:
        ours(name, "CUDA0", "CUDA1")
    assert refused.value.args[0].partition(": ")[2] in refusal(name)


def test_without_flash_attention_it_is_refused() -> None:
    with pytest.raises(LlamaRefused) as refused:
        ours("llama", "CUDA0", "CUDA1", flash_attn="off")
    assert refused.value.args[0] in refusal("llama", flash_attn="off")


def test_gpus_of_two_kinds_and_layers_without_attention_are_refused() -> None:
    with pytest.raises(PlaceError, match="of one kind, with the same params; not for CUDA0, Vulkan0"):
        ours("llama", "CUDA0", "Vulkan0")
    with pytest.raises(PlaceError, match="needs a GPU"):
        ours("llama", "CPU")
    with pytest.raises(PlaceError, match="whose layer 0 has no attention"):
        ours("rwkv7", "CUDA0")
