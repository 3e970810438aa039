"""The questions of those who put a model on devices, asked as they would ask them: margins, splits, --fit, PCIe."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Call, call
from tests.sources.library import needs_library
from tests.sources.models import cached
from tests.sources.real_models import real

__all__ = ["call"]

pytestmark = [needs_library, pytest.mark.usefixtures("warmed")]

QUICK = ("--margin", "0", "-c", "2048", "-ub", "512", "-j", "1")


def squeezed(text: str) -> str:
    return " ".join(text.split())


def test_a_card_with_a_few_mib_left_is_no_fit(call: Call) -> None:
    """llama.cpp's --fit keeps 1 GiB free, for what no plan has; so do place and fit, unless another margin is named."""
    options = (cached("llama"), "-c", "2048", "-ngl", "all", "--device", "CUDA0:16MiB")
    short = call("place", *options, columns=110)
    assert short.status == 1
    assert "CUDA0 does not fit: 1 GiB short of its margin" in short.out
    assert "margin: 1 GiB stays free for the driver's context, runtime pools" in short.out
    assert call("place", *options, "--margin", "512KiB").status == 0
    none = call("fit", *options, "-ub", "512", columns=110)
    assert none.status == 1
    assert "nothing fits" in none.out
    assert "what would help: a smaller --margin" in none.out
    found = call("fit", *options, "-ub", "512", "--margin", "512KiB", "--json")
    left = json.loads(found.out)["candidates"][0]["devices"][0]["left"]
    assert left >= 512 << 10


def test_shares_of_an_uneven_model_are_found(call: Call) -> None:
    """llama.cpp 12654: equal shares of a 49B overflow one of two cards of 19 GiB; -ts auto leaves 4 GiB on each."""
    options = (real("nemotron-49b"), "-c", "8192", "-ngl", "all", "--device", "CUDA0:19GiB,CUDA1:19GiB")
    half = call("place", *options, "-ts", "40,41", "--margin", "0", columns=110)
    assert half.status == 1
    assert re.search(r"CUDA0 does not fit: \d+ MiB short", half.out)
    found = call("place", *options, "-ts", "auto", columns=110)
    assert found.status == 0
    assert "-ts 31,50" in found.out
    assert "fits: CUDA0, CUDA1" in found.out


def test_of_equals_the_largest_that_fits_is_the_most_useful(call: Call) -> None:
    """Of placements with equally many layers on GPUs: the largest ubatch, and the rule is told."""
    devices = ("--device", "CUDA0:13MiB,CUDA1:13MiB")
    out = call("sweep", cached("llama"), "-c", "2048", "-ngl", "all", "-ts", "auto", "-ub", "256,512", *devices,
               "--margin", "0", columns=110).out  # fmt: skip
    assert "largest that fits: -ub 512 -ngl 7 -ts 3,4" in out
    assert "the largest -ub, the most memory left" in squeezed(out)
    assert " -ts 3,4 --margin 0 -c 2048 -ub 512" in out


def test_the_least_n_cpu_moe_for_a_card_of_6_gb(call: Call) -> None:
    """llama.cpp 27501, ik_llama.cpp 1302: before the model is loaded, for this card, and the line to paste.

    The experts of 39 layers are the least; a part of one more costs less than 1 %, and leaves more room.
    """
    model, *options = (str(real("qwen3-30b-a3b")), "-c", "8192", "-ub", "512", "-ngl", "all", "--device", "CUDA0:6GiB")
    found = json.loads(call("fit", model, *options, "-j", "1", "--json").out)
    (best,) = found["candidates"]
    rules = best["options"]["-ot"].split(",")
    layers = "|".join(map(str, range(39)))
    assert rules == [
        r"blk\.39\.ffn_down_(ch|)exps=CPU", rf"blk\.({layers})\.ffn_(down|gate|gate_up|up)_(ch|)exps=CPU",
    ]  # fmt: skip
    assert best["devices"][0]["left"] >= 1 << 30
    words = shlex.split(found["lines"]["llama-server"])
    assert words[words.index("-ot") + 1] == ",".join(rules)
    assert [call("place", model, *options, "-ncmoe", n).status for n in ("38", "39")] == [1, 0]


def test_prompts_with_experts_on_the_cpu_wait_for_pcie(call: Call) -> None:
    """llama.cpp 25859: the seconds of copies and of computing, with pinned pages instead, and on the CPU instead."""
    options = ("-c", "2048", "-ngl", "all", "--cpu-moe", "--margin", "0", "--device", "RTX 3090:1GiB")
    assert call("place", cached("llama-moe"), *options, "-o", "placed.json").status == 0
    out = call("splits", "--seconds", "placed.json", columns=110).out
    assert re.search(r"^copies \d+ µs \(.*\), computes \d+ µs", out, re.MULTILINE)
    assert "weights in pinned memory (--no-mmap): " in out
    assert "without op offload: " in out
    told = json.loads(call("splits", "--seconds", "--json", "placed.json").out)
    assert told["with_pinned_weights"]["mid"] < told["seconds"]["mid"]


def test_fit_gives_up_with_cpu_moe(call: Call) -> None:
    """llama.cpp 27872: --fit stops at -ot in its own words; `fit` goes on, and what it finds fits."""
    options = ("--cpu-moe", "-c", "2048", "--margin", "0", "--device", "CUDA0:12MiB")
    placed = call("place", cached("llama-moe"), "--fit", *options, columns=110)
    assert placed.status == 1
    assert "model_params::tensor_buft_overrides already set by user, abort" in squeezed(placed.out)
    assert re.search(r"CUDA0 does not fit: [\d.]+ MiB short", placed.out)
    found = call("fit", cached("llama-moe"), *options, "-ub", "512", "-j", "1", columns=110)
    assert found.status == 0
    assert "fits: CUDA0" in found.out
    assert "already set by user, abort" in squeezed(found.out)


def test_more_is_allocated_than_is_free(call: Call) -> None:
    """llama.cpp 19437: how much is missing, and the placement that has what is free."""
    device = ("--device", "CUDA0:12MiB", "--margin", "0", "-c", "2048")
    assert re.search(
        r"CUDA0 does not fit: [\d.]+ MiB short", call("place", cached("llama"), "-ngl", "all", *device).out
    )
    found = json.loads(call("fit", cached("llama"), *QUICK, "--device", "CUDA0:12MiB", "--json").out)
    _, *place = shlex.split(found["again"])
    assert "fits: CUDA0" in call(*place).out


def test_rows_of_matrices_on_each_card(call: Call, tmp_path: Path) -> None:
    """llama.cpp 13661, 21404: today's llama.cpp refuses -sm row, in its words; why, and what to take instead."""
    model = shutil.copy(cached("llama"), tmp_path / "model.gguf")
    result = call("place", model, "-c", "512", "-ngl", "all", "-sm", "row", "--device", "CUDA0:1GiB,CUDA1:1GiB")
    assert result.status == 1
    assert "model.gguf: error loading model: device CUDA0 does not support split buffers" in result.err
    assert "Use -sm layer" in result.err


def test_what_split_mode_tensor_makes_of_the_shares(call: Call) -> None:
    """llama.cpp 28506: tensors are cut at whole blocks and heads, so that shares drift from -ts."""
    options = ("-c", "512", "-ngl", "all", "-sm", "tensor", "-ts", "3,1", "--device", "CUDA0:1GiB,CUDA1:1GiB")
    out = call("place", cached("llama"), *options, "--margin", "0", columns=110).out
    shares = re.search(r"cut tensors: CUDA0 ([\d.]+)% \(-ts 75\.0%\), CUDA1 ([\d.]+)% \(-ts 25\.0%\)", out)
    assert shares is not None
    first, second = map(float, shares.groups())
    assert first < 75 < 75 + second
    assert first + second == pytest.approx(100, abs=0.2)


def test_the_pipeline_is_left_out_where_its_copies_do_not_fit(call: Call) -> None:
    """llama.cpp 16748: llama.cpp tries again without, and a placement that fits so counts as one that fits."""
    options = (cached("llama"), *QUICK, "-ngl", "all", "--device", "CUDA0:18MiB,CUDA1:18MiB")
    found = call("fit", *options, columns=110)
    assert found.status == 0
    assert "pipeline copies do not fit; llama.cpp retries without them" in squeezed(found.out)
    assert "fits: CUDA0, CUDA1" in found.out
