"""`place`: where a captured model's tensors go, what every device needs, memory that really is there, and devices as
people have them: what tools print is read, anything else is refused with what to do.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import ggmltool
from ggmltool.inspect.gauges import Checked, LimitWatch, _all
from ggmltool.scenario.devices.texts import listed_devices, read_devices
from ggmltool.sources.llama.capture import capture as capturing
from ggmltool.sources.llama.place.measurer import Measurer
from ggmltool.sources.llama.place.needs import margins_of, measure, place_and_measure
from ggmltool.sources.llama.place.options import PlaceOptions
from ggmltool.sources.llama.place.place import Placer
from ggmltool.sources.llama.search.sweep import best_split
from tests.cli.conftest import SAMPLES, Call
from tests.sources.library import needs_library
from tests.sources.models import cached

GEMMA = SAMPLES / "gemma-3-270m.json.gz"


def test_the_sum_of_a_device_is_that_of_its_parts_and_of_the_plan(call: Call) -> None:
    document = json.loads(call("place", "-ngl", "9", "--device", "CUDA0:2GiB", "--json", GEMMA).out)
    call("place", "-ngl", "9", "--device", "CUDA0:2GiB", "-o", "placed.json.gz", GEMMA)
    plan = ggmltool.load("placed.json.gz").plan(step="reserve")
    assert [(g["graph"], g["splits"]) for g in document["graphs"]] == [("main", len(plan.splits))]
    bufts = dict(plan.backends)
    assert bufts == {"CUDA0": "CUDA0", "CPU": "CUDA_Host"}  # as llama.cpp, which logs "CUDA_Host compute buffer size"
    sizes = {bufts[backend]: size for backend, size in plan.buffer_sizes}
    assert {d["buft"]: d["compute"] for d in document["devices"] if d["compute"]} == sizes
    for device in document["devices"]:
        parts = [device[part] for part in ("weights", "cache", "compute", "output")]
        assert device["total"] == sum(parts)
        mine = [t for t in document["tensors"] if t["buft"] == device["buft"]]
        assert sum(t["nbytes"] for t in mine if t["kind"] == "cache") == device["cache"]
        weights = sum(t["nbytes"] for t in mine if t["kind"] == "weight")
        assert weights <= device["weights"] <= weights * 1.1  # rows are padded, tensors aligned
    gpu = document["devices"][0]
    assert gpu["left"] == gpu["memory"] - gpu["total"] == 2**31 - gpu["total"]
    assert document["fits"] is True


def test_the_placed_scenario_is_one_for_all_other_commands(call: Call) -> None:
    written = call("place", "-ngl", "9", "-o", "placed.json.gz", GEMMA)
    assert (written.status, written.out, written.err) == (0, "", "Wrote placed.json.gz\n")
    piped = call("place", "-ngl", "9", "-f", "scenario", GEMMA)
    assert piped.out == gzip.decompress(Path("placed.json.gz").read_bytes()).decode()
    assert json.loads(piped.out)["meta"]["placed"] == "-ngl 9"
    splits = call("splits", "placed.json.gz")
    assert splits.status == 0
    assert call("splits", "-", stdin=piped.out.encode()).out == splits.out
    assert call("place", "-ngl", "9", "--json", GEMMA, "-o", "numbers.json").status == 0
    assert json.loads(Path("numbers.json").read_text("utf-8"))["kind"] == "placement"


def test_a_scenario_that_does_not_fit_is_written_and_said_so(call: Call) -> None:
    result = call("place", "-ngl", "9", "--device", "CUDA0:700MiB", "-o", "placed.json", GEMMA)
    assert (result.status, result.out) == (1, "")
    assert "CUDA0 does not fit: " in result.err
    assert Path("placed.json").exists()


def test_a_second_placement_forgets_the_first(call: Call) -> None:
    call("place", "-ngl", "4", "--device", "CUDA0", "--device", "CUDA1", "-o", "placed.json", GEMMA)
    again = json.loads(call("place", "-ngl", "9", "--device", "CUDA0", "--json", "placed.json").out)
    direct = json.loads(call("place", "-ngl", "9", "--device", "CUDA0", "--json", GEMMA).out)
    assert again["devices"] == direct["devices"]
    assert again["graphs"] == direct["graphs"]


def test_experts_stay_on_the_cpu(call: Call) -> None:
    tensors = {f"blk.{il}.ffn_{name}_exps.weight": "q4_0[256, 32, 8]" for il in range(3) for name in ("up", "down")}
    scenario = {
        "ggmltool": 1,
        "contexts": {
            "weights": {"buft": "CPU", "usage": "weights", "tensors": tensors},
            "inputs": {"tensors": {"x": {"type": "f32", "ne": [256, 1, 8], "flags": ["input"]}, "ids": "i32[2, 8]"}},
        },
        "graphs": {
            "main": {"nodes": {f"y-{il}": f"mul_mat_id(blk.{il}.ffn_up_exps.weight, x, ids)" for il in range(3)}}
        },
    }

    def on_cpu(*options: str) -> list[str]:
        result = call("place", *options, "--device", "CUDA0", "--json", "-", stdin=json.dumps(scenario).encode())
        return [t["name"] for t in json.loads(result.out)["tensors"] if t["buft"] == "CPU"]

    assert on_cpu() == []
    assert on_cpu("--cpu-moe") == list(tensors)
    assert on_cpu("--n-cpu-moe", "2") == list(tensors)[:4]
    assert on_cpu("-ngl", "0") == list(tensors)
    assert on_cpu("-ot", r"\.[1]\.=CPU", "-ot", "exps=CUDA0") == list(tensors)[2:4]


def test_a_pattern_that_would_search_forever_is_given_up(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggmltool.sources.llama.place.options.SECONDS", 0.2)
    scenario = {
        "ggmltool": 1,
        "contexts": {"w": {"buft": "CPU", "usage": "weights", "tensors": {"a" * 40 + "!": "f32[8, 8]"}}},
        "graphs": {"main": {"nodes": {"y": f"sqr({'a' * 40}!)"}}},
    }
    scenario["graphs"] = {"main": {"nodes": {"y": {"op": "sqr", "src": ["a" * 40 + "!"]}}}}
    result = call("place", "-ot", "(a+)+$=CPU", "-", stdin=json.dumps(scenario).encode())
    assert (result.status, result.out) == (2, "")
    assert "the patterns of -ot search for longer than" in result.err


@pytest.mark.parametrize(
    ("devices", "says"),
    [
        ("CUDA0:24GiB,CUDA1:8GiB", "error loading model: device CUDA0 does not support split buffers"),
        ("SYCL0:24GiB,SYCL1:8GiB", "in a buffer (SYCL_Split) that cannot run the operation (NONE)"),
    ],
)
@pytest.mark.parametrize("command", [["place"], ["sweep", "-ngl", "1..3"]])
def test_rows_end_as_llama_cpp_does(call: Call, command: list[str], devices: str, says: str) -> None:
    ran = call(*command, "-sm", "row", "--device", devices, "gemma-3-270m")
    assert ran.status == 1
    assert says in ran.err
    assert "Use -sm layer" in ran.err
    assert not ran.out


def test_a_placement_on_all_gpus_is_a_scenario_of_one_device(call: Call) -> None:
    command = ("place", "-sm", "tensor", "-ts", "3,1", "--device", "CUDA0:2GiB,CUDA1:2GiB", GEMMA)
    document = json.loads(call(*command, "--json").out)
    assert call(*command, "-o", "placed.json.gz").status == 0
    plan = ggmltool.load("placed.json.gz").plan(step="reserve")
    assert dict(plan.buffer_sizes)["Meta(CUDA0,CUDA1)"] == document["devices"][0]["compute"]
    assert {d["device"]: d["compute"] for d in document["devices"][:2]} == dict.fromkeys(
        ("CUDA0", "CUDA1"), document["devices"][0]["compute"]
    )
    assert [(s["gpu"], s["asked"]) for s in document["shares"]] == [("CUDA0", 0.75), ("CUDA1", 0.25)]


def test_a_fit_is_written_as_the_placement_that_it_chose(call: Call) -> None:
    call("place", "--fit", "-fitt", "900", "--device", "CUDA0:1600MiB", "-o", "placed.json.gz", GEMMA)
    shown = json.loads(call("place", "--fit", "-fitt", "900", "--device", "CUDA0:1600MiB", "--json", GEMMA).out)
    meta = ggmltool.load("placed.json.gz").opened.model.meta
    assert f"-ngl {shown['fit']['n_gpu_layers']} " in f"{meta['placed']} "
    assert shown["options"]["n_gpu_layers"] == shown["fit"]["n_gpu_layers"]


def test_python_asks_for_it_as_auto() -> None:
    found = ggmltool.load(GEMMA).place("auto", device="CUDA0:1600MiB", margin="900MiB")
    assert found.as_dict()["fit"]["status"] == "success"


def test_what_is_too_much_is_refused(call: Call) -> None:
    many = call("sweep", "-ngl", "0..19", *(f"-ts=1,{n}" for n in range(1, 1002)), GEMMA)
    assert (many.status, "20020 placements are too many" in many.err) == (2, True)


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


GIB = 1 << 30
MIB = 1 << 20
LISTINGS: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("listings.yaml").read_text("utf-8"))
SMI, LISTED = (row["text"] for row in LISTINGS[:2])


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda row: row["text"].strip()[:20])
def test_what_programs_print_of_devices_is_read(listing: dict[str, Any]) -> None:
    found = listed_devices(listing["text"])
    assert [[d["name"], d.get("rates"), d.get("memory")] for d in found] == listing["devices"]


def test_a_saved_listing_or_a_line_of_it_stands_for_the_devices(tmp_path: Path, call: Call) -> None:
    for i, given in enumerate((SMI, LISTED)):
        (tmp_path / f"{i}.txt").write_text(given)
    for device in (str(tmp_path / "0.txt"), str(tmp_path / "1.txt"), LISTED.splitlines()[1], SMI):
        done = call("place", "--device", device, "gemma-3-270m", "--json")
        assert done.status == 0, done.err
        assert json.loads(done.out)["devices"][0]["device"] == "CUDA0"
        assert "is not a known device" not in done.err


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("smi.txt", '"smi.txt" is neither a device nor a file'),
        ("{file}", "is a file without devices; save what nvidia-smi"),
        ("12 cats", "is not a known device"),
        (",".join(f"CUDA{i}:8GiB" for i in range(3000)), "3000 devices are too many"),
    ],
)
@pytest.mark.parametrize("command", ["place", "sweep", "fit"])
@needs_library
def test_a_wrong_device_is_refused_before_the_capture(
    command: str, device: str, said: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(capturing, "capture_many", never)
    monkeypatch.setattr(capturing, "capture", never)
    (tmp_path / "notes.txt").write_text("nothing here\n")
    done = call(command, "--device", device.format(file=tmp_path / "notes.txt"), str(cached("llama")))
    assert done.status == 2
    assert said in done.err


@pytest.mark.parametrize("command", ["place", "sweep", "fit", "capture", "plan"])
@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("lfs.gguf", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        ("page.gguf", "<!DOCTYPE html>\n<html></html>", "an HTML page"),
        ("page.yaml", "\n<html></html>", "an HTML page"),
        ("junk.gguf", "hello", "not a GGUF file: it does not begin with GGUF"),
        ("ggml-org/gemma-3-270m-GGUF", None, "models are not downloaded here"),
        ("ggml-org/gemma-3-270m-GGUF:Q4_K_M", None, "models are not downloaded here"),
        ("https://example.com/model.gguf", None, "download it first"),
        ("nowhere/model.gguf", None, "no such file\n"),
    ],
)
def test_what_is_no_model_is_told_with_what_to_do(
    command: str, name: str, content: str | None, said: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_text(content)
    done = call(command, name)
    assert done.status == 2
    assert said in done.err
    assert "must be a map" not in done.err
