"""A buffer that is larger than the largest of its device: what is refused, what goes elsewhere, what is no limit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ggmltool.scenario.load import load_spec
from ggmltool.sources.llama.capture.capture import capture
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.place.measurer import Measurer
from ggmltool.sources.llama.place.needs import place_and_measure
from ggmltool.sources.llama.place.options import PlaceOptions
from ggmltool.sources.llama.place.place import Placer
from tests.cli.conftest import Call
from tests.sources.library import needs_library
from tests.sources.models import cached
from tests.sources.real_models import real
from tests.sources.searching import devices

pytestmark = needs_library

KQ = ("-fa", "off", "-c", "8192", "-ub", "512", "--margin", "0")
"""Attention without flash attention: 512 tokens by 8192 by 4 heads by 4 bytes are 64 MiB at once."""


def test_place_sweep_and_fit_know_a_buffer_that_is_too_large_as_check_does(call: Call, tmp_path: Path) -> None:
    model, device = str(cached("llama")), ("--device", "MTL0:8GiB,max_size=32MiB")
    placed = tmp_path / "placed.json"
    done = call("place", *KQ, *device, model, columns=110)
    assert done.status == 1
    assert "does not fit: failed to allocate MTL0 buffer of size 67108864" in done.out
    assert "fits: MTL0" not in done.out
    assert call("place", *KQ, *device, model, "-o", str(placed)).status == 1
    graphs = json.loads(call("check", str(placed), "--json").out)["graphs"]
    gauges = [g for graph in graphs for g in graph["gauges"] if g["key"] == "buffer_size"]
    assert (64 << 20, 32 << 20, "breached") in [(g["used"], g["of"], g["status"]) for g in gauges]
    swept = json.loads(call("sweep", *KQ, *device, model, "-ngl", "0..7", "--json").out)["placements"]
    assert [row["-ngl"] for row in swept if row["fits"]] == ["0", "1"]
    found = call("fit", *KQ, *device, model, "-j", "1", "--json")
    (best,) = json.loads(found.out)["candidates"]
    assert best["options"]["-ngl"] in ("0", "1")
    none = call("fit", *KQ, *device, model, "-ngl", "all", "-j", "1", columns=110)
    assert none.status == 1
    assert "nothing fits" in none.out


def test_a_tied_output_stays_on_the_cpu_where_a_vulkan_device_has_no_buffer_for_it(call: Call) -> None:
    """As llama-server places it on llvmpipe, whose buffers end at 128 MiB: 65.16 MiB there, 170 MiB in CPU_Mapped."""
    options = (str(real("gemma-270m")), "-c", "512", "--json")
    for fit in ((), ("--fit",)):
        small = json.loads(call("place", "--device", "Vulkan0:2GiB,max_size=128MiB", *fit, *options).out)["devices"]
        weights = {use["buft"]: use["weights"] for use in small if use["weights"]}
        assert {name: round(n / (1 << 20), 2) for name, n in weights.items()} == {"Vulkan0": 65.16, "CPU": 170.0}
    large = json.loads(call("place", "--device", "Vulkan0:2GiB", *options).out)["devices"]
    assert large[0]["weights"] > 200 << 20


def test_blocks_of_vulkan_and_memory_that_cannot_be_pinned_are_no_limits(call: Call) -> None:
    """A tensor above 1 GiB gets a block of its own, and host memory that is not pinned stands in for pinned memory."""
    options = (str(real("qwen3-30b-a3b")), "-fa", "off", "-ub", "512", "--device", "Vulkan0:80GiB")
    assert call("place", *options, "-c", "32768").status == 0
    done = call("place", *options, "-c", "65536", "--json")
    assert done.status == 0
    (host,) = (use for use in json.loads(done.out)["devices"] if use["buft"] == "Vulkan_Host")
    assert host["compute"] > 4 << 30


@pytest.mark.parametrize(
    "device", ["MTL0:8GiB,max_size=32MiB", "CUDA0:8GiB,max_size=16KiB", "Vulkan0:8GiB,max_size=1MiB"]
)
@pytest.mark.parametrize("layers", [0, 3, 7])
def test_many_placements_have_the_error_of_one(device: str, layers: int) -> None:
    options = CaptureOptions(n_ctx=8192, n_batch=512, flash_attn="off", phase="both")
    placer = Placer(load_spec(capture(cached("llama"), options).scenario), devices(device))
    place = PlaceOptions(n_gpu_layers=layers)
    alone = place_and_measure(placer, place)[1]
    among = Measurer(placer).needs(place)
    assert (among.error, among.short, among.uses) == (alone.error, alone.short, alone.uses)
