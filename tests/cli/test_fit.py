"""`fit`: what fits best, what was given up, what to paste; and every number is that of `capture` and `place`."""

from __future__ import annotations

import json
import shlex
import shutil
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.conftest import Call
from tests.sources.library import needs_library
from tests.sources.models import cached

pytestmark = pytest.mark.usefixtures("warmed")

GEMMA = "gemma-3-270m"
SMALL = ("--margin", "0", "-ub", "64", "-j", "1")


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(shutil.copy(cached("llama"), tmp_path / "model.gguf"))


@pytest.fixture
def experts(tmp_path: Path) -> str:
    return str(shutil.copy(cached("llama-moe"), tmp_path / "experts.gguf"))


def test_the_line_that_shows_a_placement_has_its_numbers(call: Call) -> None:
    devices = ("--device", "CUDA0:1600MiB,CUDA1:900MiB", "--margin", "0")
    found = json.loads(call("fit", *devices, "-ncffn", "0", "-ngl", "10", "-j", "1", "--json", GEMMA).out)
    _, *place = shlex.split(found["again"])
    placed = json.loads(call(*place, "--json").out)
    assert placed["fits"] is found["fits"] is True
    assert placed["devices"] == found["devices"]
    assert placed["tensors"] == found["tensors"]
    by_device: dict[str, int] = {}
    for use in placed["devices"]:
        by_device[use["device"]] = by_device.get(use["device"], 0) + use["total"]
    assert by_device == {row["device"]: row["total"] for row in found["candidates"][0]["devices"]}
    assert placed["graphs"] == found["candidates"][0]["graphs"]


@needs_library
def test_a_model_is_captured_with_each_setting_and_the_lines_are_whole(call: Call, model: str) -> None:
    result = call("fit", *SMALL, "-c", "512..2048", "-ctk", "f16,q8_0", "--device", "CUDA0:3MiB", "--json", model)
    assert result.status == 0
    found = json.loads(result.out)
    contexts = {row["options"]["-c"] for row in found["candidates"]}
    assert contexts <= {"512", "1024", "2048"}
    words = shlex.split(found["lines"]["llama-server"])
    best = found["candidates"][0]["options"]
    assert words[:3] == ["llama-server", "-m", model]
    for name, value in best.items():
        short = {"--n-cpu-ffn": "-ncffn", "--n-cpu-moe": "-ncmoe"}.get(name, name)
        assert words[words.index(short) + 1] == value
    assert words[words.index("-np") + 1] == "1"
    assert words[-2:] == ["-fit", "off"]
    _, *place = shlex.split(found["again"])
    placed = json.loads(call(*place, "--json").out)
    assert [u["total"] for u in placed["devices"] if u["buft"] == "CUDA0"] == [
        row["total"] for row in found["candidates"][0]["devices"] if row["device"] == "CUDA0"
    ]


@needs_library
def test_the_longest_context_is_taken_before_speed(call: Call, model: str) -> None:
    def context(objective: str) -> int:
        options = ("-c", "512,4096", "--objective", objective, "--device", "CUDA0:5MiB", "--json")
        return int(json.loads(call("fit", *SMALL, *options, model).out)["candidates"][0]["n_ctx"])

    assert context("longest") == 4096
    assert context("fastest") in (512, 4096)


@needs_library
def test_what_is_named_is_kept(call: Call, experts: str) -> None:
    options = ("-c", "512", "-ngl", "all", "-ncmoe", "2", "-ot", "attn_q=CPU", "--device", "CUDA0:1GiB", "--json")
    (row,) = json.loads(call("fit", *SMALL, *options, experts).out)["candidates"]
    assert row["options"] == {"-c": "512", "-ub": "64", "-ngl": "5", "--n-cpu-moe": "2", "-ot": "attn_q=CPU"}


@needs_library
def test_the_best_is_written_as_a_scenario_and_a_chart(call: Call, model: str) -> None:
    options = (*SMALL, "-c", "512,1024", "--device", "CUDA0:2GiB", model)
    assert call("fit", *options, "-o", "placed.json.gz").err.splitlines()[-1] == "Wrote placed.json.gz"
    plan = json.loads(call("plan", "--step", "reserve", "--json", "placed.json.gz").out)
    assert {backend["name"] for backend in plan["backends"]} == {"CUDA0", "CPU"}
    assert call("fit", *options, "-o", "chart.svg").status == 0
    texts = [element.text or "" for element in ElementTree.parse("chart.svg").iter() if element.tag.endswith("text")]
    assert "context, tokens" in texts
    assert sum("-ngl" in text for text in texts) == 2


@needs_library
def test_a_chart_without_speeds_is_of_what_tells_placements_apart(call: Call, model: str) -> None:
    """N22: where all have their layers on the GPU, layers were a flat line."""
    options = (*SMALL, "-c", "512,1024", "-ngl", "all", "-ncffn", "0", "--device", "XPU0:2GiB", model)
    assert call("fit", *options, "-o", "chart.svg").status == 0
    picture = list(ElementTree.parse("chart.svg").iter())
    assert any("MiB left on the fullest device" in (element.text or "") for element in picture)
    assert len({element.get("cy") for element in picture if element.tag.endswith("circle")}) == 2


@needs_library
def test_nothing_is_written_where_nothing_fits(call: Call, model: str) -> None:
    options = ("-c", "512", "-ngl", "all", "-ncffn", "0", "--device", "CUDA0:1MiB", *SMALL, model)
    result = call("fit", *options, "-o", "placed.json")
    assert result.status in (1, 2)
    assert "nothing fits" in result.err
    assert not Path("placed.json").exists()
    text = call("fit", *options)
    assert text.status == 1
    assert "CUDA0 is " in text.out
    assert "what would help: fewer layers on GPUs" in text.out


@needs_library
def test_what_is_found_is_kept_and_not_searched_again(call: Call, model: str) -> None:
    options = ("fit", *SMALL, "-c", "512,1024", "--device", "CUDA0:5MiB", "--resume", "found.json", model)
    first = call(*options)
    assert (first.status, Path("found.json").exists()) == (0, True)
    again = call(*options)
    assert again.out == first.out
    other = call(*options, "-ngl", "3")
    assert other.status == 2
    assert "found.json is of another search" in other.err


@needs_library
@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (("-ot", "a=CUDA7"), 2, "model.gguf: -ot a=CUDA7: there is no CUDA7; there are CUDA0, CUDA1, CPU"),
        (("-sm", "row"), 1, "device CUDA0 does not support split buffers"),
        (("--resume", "none/found.json"), 2, "Error: the folder none does not exist; make it first"),
        (("--resume", "model.gguf"), 2, "Error: model.gguf is not what a search has saved"),
    ],
)
def test_what_is_wrong_once_the_model_is_open_ends_without_a_trace(
    call: Call, model: str, options: tuple[str, ...], status: int, said: str
) -> None:
    threads = threading.active_count()
    result = call("fit", *SMALL, *options, "--device", "CUDA0:4MiB,CUDA1:4MiB", "model.gguf")
    assert (result.status, result.out) == (status, "")
    assert said in result.err
    assert threading.active_count() == threads


def test_a_folder_without_a_model_is_told(call: Call) -> None:
    Path("folder").mkdir()
    for command in ("fit", "place", "sweep"):
        result = call(command, "folder")
        assert result.status == 2
        assert "folder is a folder without config.json and safetensors; name a GGUF file in it" in result.err


@needs_library
def test_what_llama_cpp_would_choose_stands_below(call: Call, model: str) -> None:
    out = call("fit", *SMALL, "-c", "512", "--device", "CUDA0:4MiB", model, columns=160).out
    assert any(line.strip().startswith("--fit  ") for line in out.splitlines())
    out = call("fit", *SMALL, "-c", "512", "-ngl", "3", "--device", "CUDA0:4MiB", model, columns=160).out
    assert not any(line.strip().startswith("--fit  ") for line in out.splitlines())


@needs_library
def test_another_quantization_is_fitted_and_made_before_it_runs(call: Call, model: str) -> None:
    found = json.loads(call("fit", *SMALL, "-c", "512", "--as", "q8_0", "--device", "CUDA0:9MiB", "--json", model).out)
    made, served = (shlex.split(found["lines"][tool]) for tool in ("llama-quantize", "llama-server"))
    assert made == ["llama-quantize", model, model.replace(".gguf", "-Q8_0.gguf"), "Q8_0"]
    assert served[2] == made[2]
    _, *place = shlex.split(found["again"])
    assert json.loads(call(*place, "--json").out)["devices"] == found["devices"]
