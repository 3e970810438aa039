"""Memory that really is there: margins, host memory, pipeline copies that do not fit, devices on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ggmltool
from ggmltool.inspect.gauges import Checked, _all
from ggmltool.inspect.limit_watch import LimitWatch
from ggmltool.scenario.devices.texts import read_devices
from ggmltool.sources.llama.layers import PlaceOptions
from ggmltool.sources.llama.measurer import Measurer
from ggmltool.sources.llama.needs import margins_of, measure, place_and_measure
from ggmltool.sources.llama.place import Placer
from ggmltool.sources.llama.search.split import best_split
from tests.cli.conftest import SAMPLES, Call

GEMMA = SAMPLES / "gemma-3-270m.json.gz"
MIB = 1 << 20
TWO = ("--device", "CUDA0:2GiB,CUDA1:2GiB")


def placed(call: Call, *words: str) -> dict[str, Any]:
    """What `place` says as data."""
    document: dict[str, Any] = json.loads(call("place", *words, "--json", GEMMA).out)
    return document


def needs(document: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in document["devices"]:
        found[row["device"]] = found.get(row["device"], 0) + row["total"]
    return found


def placer(*devices: str) -> Placer:
    return Placer(ggmltool.load(GEMMA).model, read_devices(devices))


@pytest.mark.parametrize("options", [("-ngl", "9"), ("-ngl", "all"), ("-ngl", "12", "-ts", "1,3")])
def test_check_plan_and_place_agree_on_the_bytes_of_a_device(call: Call, options: tuple[str, ...]) -> None:
    """U2: CUDA_Host is host memory, whichever GPU has pinned it."""
    devices = (*TWO, "--device", "CPU:8GiB")
    document = placed(call, *options, *devices, "--margin", "0")
    assert call("place", *options, *devices, "-o", "two.json", GEMMA).status == 0
    plan = ggmltool.load("two.json").plan(step="reserve")
    run = ggmltool.load("two.json").start()
    assert run.reserve("main").ok
    checked = Checked(LimitWatch(), run.backends, run.sched, buffers=run.buffers)
    gauges = {gauge.where: gauge for gauge in _all(checked) if gauge.key == "device_memory"}
    for device, total in needs(document).items():
        mine = [row for row in document["devices"] if row["device"] == device]
        # The buffer of outputs is llama.cpp's own, not the scheduler's.
        assert gauges[device].used == total - sum(row["output"] for row in mine)
        compute = sum(row["compute"] for row in mine)
        assert dict(gauges[device].of)["compute buffers"] == compute == dict(plan.buffer_sizes)[device]
    said = json.loads(call("check", "--step", "reserve", "--json", "two.json").out)
    (fullest,) = (g for g in said["graphs"][0]["gauges"] if g["key"] == "device_memory")
    assert fullest["used"] == max(gauges.values(), key=lambda gauge: gauge.share).used


def test_a_margin_is_what_fit_keeps(call: Call) -> None:
    """U4: 1 GiB on each GPU as common_params_fit_impl has it; exactly that much is enough, a byte less is not."""
    total = needs(placed(call, "-ngl", "9", "--device", "CUDA0"))["CUDA0"]
    enough = total + 1024 * MIB
    assert placed(call, "-ngl", "9", "--device", f"CUDA0:memory={enough}")["short"] == {}
    assert placed(call, "-ngl", "9", "--device", f"CUDA0:memory={enough - 1}")["short"] == {"CUDA0": 1}
    result = call("place", "-ngl", "9", "--device", f"CUDA0:memory={enough - 1}", GEMMA)
    assert result.status == 1
    assert "CUDA0 does not fit: 1 B short of its margin (1 GiB left)" in result.out
    assert "margin: 1 GiB stays free" in result.out
    assert call("place", "-ngl", "9", "--device", f"CUDA0:memory={total}", "--margin", "0", GEMMA).status == 0
    below = call("place", "-ngl", "9", "--device", f"CUDA0:memory={total - 1}", "--margin", "0", GEMMA)
    assert below.status == 1
    assert "CUDA0 does not fit: 1 B short\n" in below.out
    assert "margin:" not in below.out


def test_margins_are_of_gpus_and_of_the_cpu_where_it_is_alone() -> None:
    """U4: as --fit-target: one for all GPUs, or one for each."""
    assert margins_of(["A", "B"], "CPU", (5,)) == {"A": 5, "B": 5}
    assert margins_of(["A", "B", "C"], "CPU", (5, 7)) == {"A": 5, "B": 7, "C": 7}
    assert margins_of([], "CPU", (5,)) == {"CPU": 5}


@pytest.mark.parametrize(
    ("margin", "said"),
    [("512", "512 has no unit: 512MiB, or 0 for no margin"), ("much", "'much' is not a size, e.g. 1GiB or 512MiB")],
)
@pytest.mark.parametrize("command", ["place", "sweep"])
def test_a_margin_is_a_size(call: Call, command: str, margin: str, said: str) -> None:
    """U4"""
    result = call(command, "--margin", margin, GEMMA)
    assert (result.status, result.out) == (2, "")
    assert said in result.err


def test_pipeline_copies_that_do_not_fit_are_left_out() -> None:
    """U9: as llama_context::sched_reserve retries; both figures stay."""
    loose = placer("CUDA0", "CUDA1")
    options = PlaceOptions()
    with_copies, without = (measure(loose.place(PlaceOptions(parallel=p))) for p in (True, False))
    most = {d: with_copies.of(d) for d in ("CUDA0", "CUDA1")}
    least = {d: without.of(d) for d in ("CUDA0", "CUDA1")}
    assert least["CUDA0"] < most["CUDA0"]

    def fit(memory: int, **more: Any) -> tuple[bool, Any]:
        tight = placer(f"CUDA0:memory={memory}", "CUDA1:memory=8589934592")
        placement, found = place_and_measure(tight, PlaceOptions(tensor_split=(1.0, 1.0), **more), (0,))
        return placement.model.scheduler.parallel, found

    assert options.parallel is None
    halves = {
        p: measure(loose.place(PlaceOptions(tensor_split=(1.0, 1.0), parallel=p))).of("CUDA0") for p in (True, False)
    }
    parallel, found = fit(halves[True])
    assert (parallel, found.short, found.with_copies) == (True, {}, {})
    parallel, found = fit(halves[True] - 1)
    assert (parallel, found.short) == (False, {})
    assert found.with_copies["CUDA0"] == halves[True]
    assert found.of("CUDA0") == halves[False]
    parallel, found = fit(halves[False] - 1)
    assert (parallel, found.short) == (False, {"CUDA0": 1})
    # With --pipeline, and where not even the weights fit, llama.cpp does not come to try again.
    assert fit(halves[True] - 1, parallel=True)[1].short == {"CUDA0": 1}
    assert fit(1 * MIB)[0]


def test_both_figures_of_pipeline_copies_are_shown(call: Call) -> None:
    """U9: by `place`, and by `sweep` how many."""
    least = needs(placed(call, "-ts", "1,1", "--device", "CUDA0,CUDA1", "--no-pipeline"))
    words = ("-ts", "1,1", "--device", f"CUDA0:memory={least['CUDA0']}", "--device", "CUDA1:2GiB", "--margin", "0")
    result = call("place", *words, GEMMA)
    assert result.status == 0
    assert "pipeline copies do not fit; llama.cpp retries without them: CUDA0 " in result.out
    assert "fits: CUDA0, CUDA1" in result.out
    assert placed(call, *words)["with_pipeline_copies"]["CUDA0"] > least["CUDA0"]
    assert "1 placement whose pipeline copies do not fit" in call("sweep", "-ngl", "all", *words, GEMMA).out


def test_the_search_finds_what_trying_all_splits_finds() -> None:
    """U18: -ts auto leaves the fullest GPU most memory, with as few plans as it takes."""
    for devices in (("CUDA0:1GiB", "CUDA1:1GiB"), ("CUDA0:2GiB", "CUDA1:700MiB")):
        tight = placer(*devices)
        for n_gpu_layers in (7,):
            n = PlaceOptions(n_gpu_layers).n_gpu(tight.parts.n_layer)
            rooms = {}
            for first in range(n + 1):
                split = (float(first), float(n - first))
                room = place_and_measure(tight, PlaceOptions(n_gpu_layers, tensor_split=split))[1].room
                rooms[first, n - first] = min(room.values())
            found, fit = best_split(Measurer(tight), PlaceOptions(n_gpu_layers))
            assert min(fit.room.values()) == max(rooms.values()) == rooms[found[0], found[1]]
            on = [*fit.layers.layers, fit.layers.output]
            assert (on.count("CUDA0"), on.count("CUDA1")) == found


def test_the_split_that_was_found_is_shown_and_can_be_asked_for(call: Call) -> None:
    """U18: by `sweep` with its command, and by `place`."""
    devices = ("--device", "CUDA0:1GiB,CUDA1:1200MiB", "--margin", "0")
    out = call("sweep", "-ngl", "all", "-ts", "auto", *devices, GEMMA).out.splitlines()
    command = out[-1].split()
    split = command[command.index("-ts") + 1]
    assert split != "auto"
    assert call("place", "-ts", "auto", *devices, GEMMA).out == call("place", "-ts", split, *devices, GEMMA).out
    result = call("sweep", "-ts", "auto", "--device", "CUDA0,CUDA1", GEMMA)
    assert (result.status, result.out) == (2, "")
    assert "-ts auto needs the memory of each GPU: --device CUDA0:24GiB" in result.err


def test_of_as_many_layers_the_larger_ubatch_and_then_the_room_decides(call: Call) -> None:
    """U18: and the table says "yes (best)"; the command is there for several files too."""
    import gzip

    document: dict[str, Any] = json.loads(gzip.decompress(GEMMA.read_bytes()))
    for n in (256, 512):
        document["meta"]["n_ubatch"] = n
        Path(f"ub{n}.json").write_text(json.dumps(document), "utf-8")
    words = ("-ngl", "all", "-ts", "1,3", "-ts", "1,1", "-ts", "3,1", "--device", "CUDA0:2GiB,CUDA1:2GiB")
    out = call("sweep", *words, "ub256.json", "ub512.json", columns=200).out
    best = json.loads(call("sweep", *words, "--json", "ub256.json", "ub512.json").out)
    row = best["placements"][best["best"]]
    alike = [r for r in best["placements"] if r["-ub"] == "512"]
    assert row["-ub"] == "512"
    assert min(row["left"].values()) == max(min(r["left"].values()) for r in alike)
    assert out.count("yes (best)") == 1
    assert "of 6 with equally many layers on GPUs: the most weights there" in out
    assert f"ggmltool place ub512.json --device CUDA0:2GiB,CUDA1:2GiB -ngl 19 -ts {row['-ts']}\n" in out


def test_csv_and_json_have_what_each_device_needs_memory_for(call: Call) -> None:
    """U19"""
    words = ("-ngl", "9", "--device", "CUDA0:2GiB", GEMMA)
    (row,) = json.loads(call("sweep", *words, "--json").out)["placements"]
    rows = {r["buft"]: r for r in placed(call, "-ngl", "9", "--device", "CUDA0:2GiB")["devices"]}
    assert row["parts"]["CUDA0"] == {part: rows["CUDA0"][part] for part in ("weights", "cache", "compute", "output")}
    assert row["needs"]["CUDA0"] == rows["CUDA0"]["total"] == sum(row["parts"]["CUDA0"].values())
    header, line = call("sweep", *words, "-f", "csv").out.splitlines()
    values = dict(zip(header.split(","), line.split(","), strict=True))
    assert [int(values[f"parts.CUDA0.{part}"]) for part in row["parts"]["CUDA0"]] == list(
        row["parts"]["CUDA0"].values()
    )
    assert "CUDA0 compute" in call("sweep", *words, columns=80).out


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("CUDA0:24", '"CUDA0:24": 24 has no unit; did you mean CUDA0:24GiB? (CUDA0:memory=24 is bytes)'),
        ("CUDA0:8192", "did you mean CUDA0:8192MiB?"),
        ("CUDA0:25769803776", "in bytes it is CUDA0:memory=25769803776"),
        ("24GiB", '"24GiB" is a memory without a device; for example CUDA0:24GiB'),
        ("24", "for example CUDA0:24GiB"),
        ("none,CUDA0", "none cannot be combined with other devices"),
        ("CUDA0:1GiB,2GiB", '"CUDA0" has memory twice'),
    ],
)
@pytest.mark.parametrize("command", ["place", "sweep", "backends"])
def test_a_device_that_cannot_be_meant_is_an_error(call: Call, command: str, device: str, said: str) -> None:
    """U21"""
    result = call(command, "--device", device, *([] if command == "backends" else [GEMMA]))
    assert (result.status, result.out) == (2, "")
    assert f"--device: {said}" in result.err or said in result.err


def test_devices_by_commas_are_those_of_several_options(call: Call) -> None:
    """U21: as llama.cpp's --device takes them; none is no GPU."""
    together = placed(call, "--device", "CUDA0:1GiB,CUDA1:2GiB")
    apart = placed(call, "--device", "CUDA0:1GiB", "--device", "CUDA1:2GiB")
    assert together == apart
    none = placed(call, "--device", "none")
    assert {row["device"] for row in none["devices"]} == {"CPU"}
    assert none["no_pipeline_because"] == "there is no GPU"
    assert [(b.name, b.events) for b in read_devices(["CUDA0:memory=1GiB,events=false,RPC0[a,b:1]:2GiB"])] == [
        ("CUDA0", False),
        ("RPC0[a,b:1]", None),
    ]
