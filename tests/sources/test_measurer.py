"""Placements measured one after the other are those that are placed, planned and measured one by one, to the byte."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.scenario.devices.texts import read_devices
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.place.measurer import Measurer
from ggmltool.sources.llama.place.needs import Needs, place_and_measure
from ggmltool.sources.llama.place.options import Override, PlaceOptions, n_cpu_ffn, n_cpu_moe, parse_overrides
from ggmltool.sources.llama.place.place import Placer
from tests.benchmarks.placing import model as transformer
from tests.sources.models import MODELS, SPECIAL_MODELS, cached

CASES = int(os.environ.get("GGMLTOOL_TEST_PLACEMENTS", "60"))
"""Placements that are tried for each kind of model."""

SAMPLES = Path(__file__).parents[2] / "sample_graphs"

DEVICES = (
    ("CUDA0",),
    ("CUDA0:60MiB", "CUDA1:40MiB"),
    ("CUDA0:300MiB", "CUDA1:8GiB", "CUDA2:300MiB"),
    ("CUDA0:20MiB", "CUDA1:20MiB"),
    ("CUDA0", "Vulkan0"),
    ("ROCm0", "CUDA0:1GiB", "Vulkan1"),
    ("Metal",),
    ("Vulkan0:1GiB", "Vulkan1:1GiB"),
    ("SYCL0",),
    ("CANN0",),
    ("OpenCL",),
    ("CUDA0", "BLAS"),
    ("CUDA0:1GiB", "CUDA1:1GiB", "CPU:max_size=1MiB"),
    ("CUDA0:max_size=100KiB",),
    ("CPU",),
)

PATTERNS = (r"ffn_(up|down)", r"blk\.1\.", "attn", "output", "token_embd", ".*", r"blk\.[02]\.ffn", "rope|norm", "exps")


def with_factors(scenario: dict[str, Any]) -> dict[str, Any]:
    """The same with one weight that all layers use, which lies once in each buffer type."""
    scenario["contexts"]["weights"]["tensors"]["rope_freqs.weight"] = "f32[32]"
    for name, node in scenario["graphs"]["main"]["nodes"].items():
        if isinstance(node, dict) and node["op"] == "rope":
            scenario["graphs"]["main"]["nodes"][name] = node | {"src": [*node["src"], "rope_freqs.weight"]}
    return scenario


def of_size(scenario: dict[str, Any], graph_size: int) -> dict[str, Any]:
    """The same for a scheduler of this size, which may be too small."""
    return {**scenario, "scheduler": {"graph_size": graph_size}}


def without_names(scenario: dict[str, Any]) -> dict[str, Any]:
    """The same with inputs that ggml calls by their numbers."""
    for input in scenario["contexts"]["inputs"]["tensors"].values():
        input["name"] = ""
    return scenario


def of_2025(scenario: dict[str, Any]) -> dict[str, Any]:
    """The same without ops of later times, for the ggml of March 2025."""
    nodes = scenario["graphs"]["main"]["nodes"]
    for name, node in list(nodes.items()):
        if "stored" in name:
            del nodes[name]
        elif "swiglu" in name:
            nodes[name] = node.replace("swiglu_split", "mul")
    return {**scenario, "ggml": "2025-03"}


WRITTEN: Mapping[str, Callable[[], Any]] = {
    "dense": lambda: transformer(4),
    "experts": lambda: transformer(3, moe=True),
    "factors": lambda: with_factors(transformer(3)),
    "numbered": lambda: without_names(with_factors(transformer(2))),
    "too small": lambda: of_size(transformer(4), 90),
    "of its size": lambda: of_size(transformer(4), 512),
    "march 2025": lambda: of_2025(transformer(3)),
    "0.20.2": lambda: {**transformer(2, moe=True), "ggml": "0.20.2"},
    "gemma": lambda: SAMPLES / "gemma-3-270m.json.gz",
    "gemma placed": lambda: SAMPLES / "gemma-3-270m-ngl9.json.gz",
    "views": lambda: with_views(transformer(2)),
    "cache in one": lambda: with_one_cache(transformer(3)),
}


def with_views(scenario: dict[str, Any]) -> dict[str, Any]:
    """The same with weights that are views of another one."""
    weights = scenario["contexts"]["weights"]["tensors"]
    weights["blk.1.half.weight"] = {"type": "q4_K", "ne": [1024, 512], "view_src": "blk.1.attn_q.weight"}
    return scenario


def with_one_cache(scenario: dict[str, Any]) -> dict[str, Any]:
    """The same with a cache that belongs to no layer."""
    scenario["contexts"]["kv"]["tensors"]["state"] = "f32[64, 4]"
    scenario["graphs"]["main"]["nodes"]["kept"] = {"op": "scale", "src": ["state"], "s": 2.0, "flags": ["output"]}
    return scenario


@cache
def written(name: str) -> ScenarioSpec:
    return load_spec(WRITTEN[name]())


@cache
def captured(path: Path, options: CaptureOptions) -> ScenarioSpec:
    from ggmltool.sources.llama.capture.capture import capture

    return load_spec(capture(path, options).scenario)


class Source(NamedTuple):
    """Where a model comes from: written here, or captured with these options."""

    name: str
    options: CaptureOptions | None = None

    def model(self) -> ScenarioSpec:
        return written(self.name) if self.options is None else captured(self.file(), self.options)

    def file(self) -> Path:
        return cached(self.name)


@cache
def measurer(source: Source, devices: tuple[str, ...]) -> Measurer:
    """One for all placements of a model on the same devices, which is the point."""
    return Measurer(Placer(source.model(), read_devices(list(devices))))


@st.composite
def placements(draw: st.DrawFn, placer: Placer) -> PlaceOptions:
    """Options of all kinds, some of which are wrong."""
    n_layer, n_gpu = placer.parts.n_layer, len(placer.gpus)
    bufts = [placer.devices[d.name].buft.name for d in (*placer.gpus, placer.cpu)]
    overrides: list[Override] = []
    for pattern in draw(st.lists(st.sampled_from(PATTERNS), max_size=2)):
        overrides += parse_overrides(f"{pattern}={draw(st.sampled_from([*bufts, 'CPU', 'CPU', 'Nowhere']))}")
    overrides += n_cpu_moe(draw(st.sampled_from([0, 0, 0, 1, n_layer])))
    overrides += n_cpu_ffn(draw(st.sampled_from([0, 0, 0, 1, n_layer])))
    return PlaceOptions(
        draw(st.sampled_from([-1, -1, *range(n_layer + 2)])),
        draw(st.sampled_from(["layer", "layer", "layer", "none", "row"])),
        draw(st.integers(0, max(n_gpu, 1))),
        tuple(draw(st.lists(st.integers(0, 4).map(float), max_size=n_gpu))),
        tuple(draw(st.permutations(overrides))),
        draw(st.sampled_from([True, True, False])),
        draw(st.sampled_from([True, True, False])),
        draw(st.sampled_from([None, None, True, False])),
        draw(st.booleans()),
        draw(st.sampled_from(["auto", "on", "off"])),
        draw(st.sampled_from([True, True, False])),
    )


def outcome(ask: Callable[[PlaceOptions, tuple[int, ...]], Needs], options: PlaceOptions, *margins: int) -> Needs | str:
    """What comes of it; of what place_and_measure says, all but the plan."""
    try:
        needs = ask(options, margins)
    except PlaceError as error:
        return str(error)
    return Needs(**{f.name: getattr(needs, f.name) for f in fields(Needs)})


def devices_of(model: ScenarioSpec) -> list[tuple[str, ...]]:
    """The devices that there are in the model's ggml."""
    known = profiles_of(model.release)
    return [devices for devices in DEVICES if all(d.profile in known for d in read_devices(list(devices)))]


def placed_alone(placer: Placer) -> Callable[[PlaceOptions, tuple[int, ...]], Needs]:
    """What is said of a placement that is made for itself."""
    return lambda options, margins: place_and_measure(placer, options, margins)[1]


def check(source: Source, data: st.DataObject) -> None:
    """A few placements, of which each meets what the one before it left."""
    fast = measurer(source, data.draw(st.sampled_from(devices_of(source.model()))))
    margins = data.draw(st.sampled_from([(0,), (1 << 20, 2 << 20)]))
    for _ in range(3):
        options = data.draw(placements(fast.placer))
        assert outcome(fast.needs, options, *margins) == outcome(placed_alone(fast.placer), options, *margins)


ALIKE = settings(max_examples=max(1, CASES // 3), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", WRITTEN)
def test_a_model_is_measured_as_it_is_placed_alone(name: str) -> None:
    @ALIKE
    @given(st.data())
    def measured(data: st.DataObject) -> None:
        check(Source(name), data)

    measured()


@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="needs llama.cpp (the package xllamacpp)")
@pytest.mark.parametrize("name", [*MODELS, *SPECIAL_MODELS])
def test_a_captured_model_is_measured_as_it_is_placed_alone(name: str) -> None:
    options = CaptureOptions(n_ctx=512, n_batch=512)
    kinds = [options, replace(options, phase="both"), replace(options, flash_attn="off")]

    @settings(ALIKE, max_examples=max(1, CASES // 15))
    @given(st.data())
    def measured(data: st.DataObject) -> None:
        check(Source(name, data.draw(st.sampled_from(kinds))), data)

    measured()


def test_what_no_capture_has_is_measured_too() -> None:
    """An empty weight has no place in a buffer: such a model is placed as a whole each time."""
    scenario = transformer(2)
    scenario["contexts"]["weights"]["tensors"]["blk.0.none.weight"] = "f32[64, 0]"
    placer = Placer(load_spec(scenario), read_devices(["CUDA0"]))
    for n in range(4):
        options = PlaceOptions(n)
        assert outcome(Measurer(placer).needs, options, 0) == outcome(placed_alone(placer), options, 0)


@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="needs llama.cpp (the package xllamacpp)")
def test_an_override_of_two_tensors_of_one_name_is_of_both() -> None:
    """Tied embeddings are two tensors: one for the rows of the input, one for the product of the output."""
    source = Source("gemma4", CaptureOptions(n_ctx=512, n_batch=512))
    placer = Placer(source.model(), read_devices(["Metal"]))
    measured = Measurer(placer)
    for overrides in ((), tuple(parse_overrides("token_embd=CPU"))):
        options = PlaceOptions(overrides=overrides)
        assert outcome(measured.needs, options, 0) == outcome(placed_alone(placer), options, 0)
