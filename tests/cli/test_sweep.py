"""`sweep`: many placements side by side, and the largest that fits."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SAMPLES, Call

pytestmark = pytest.mark.usefixtures("warmed")

GEMMA = "gemma-3-270m"


def test_every_placement_is_that_of_place(call: Call) -> None:
    options = ("--device", "CUDA0:1764MiB", "--no-op-offload", "--json")
    swept = json.loads(call("sweep", "-ngl", "0..19:5", "-ot", "none", "-ot", "ffn=CPU", *options, GEMMA).out)
    for row in swept["placements"]:
        override = ("-ot", row["-ot"]) if row["-ot"] else ()
        placed = json.loads(call("place", "-ngl", row["-ngl"], *override, *options, GEMMA).out)
        (graph,) = placed["graphs"]
        assert (row["splits"], row["copied"], row["fits"]) == (graph["splits"], graph["copied"], placed["fits"])
        needs = {d["device"]: 0 for d in placed["devices"]}
        for d in placed["devices"]:
            needs[d["device"]] += d["total"]
        assert row["needs"] == needs
        assert row["left"] == {"CUDA0": placed["devices"][0]["left"]}


def test_the_largest_that_fits_is_named_with_the_command_that_shows_it(call: Call) -> None:
    out = call("sweep", "--device", "CUDA0:1764MiB", GEMMA).out.splitlines()
    at = out.index("largest that fits: -ngl 11")
    assert out[at + 1].startswith("  122 splits, ")
    assert out[-2].startswith("  margin: 1 GiB stays free ")
    _, *command = shlex.split(out[-1])
    assert call(*command).status == 0
    larger = [word if word != "11" else "12" for word in command]
    assert call(*larger).status == 1


def test_more_processes_change_nothing(call: Call) -> None:
    options = ("-ngl", "0..19", "-ts", "1,2", "-ts", "2,1", GEMMA)
    one, three = (call("sweep", "-j", n, *options) for n in (1, 3))
    assert one == three
    assert one.status == 0


def test_captures_of_several_ubatches_are_compared(call: Call) -> None:
    document: dict[str, Any] = json.loads(gzip.decompress((SAMPLES / f"{GEMMA}.json.gz").read_bytes()))
    for n in (512, 256):
        document["meta"] = {**document.get("meta", {}), "n_ubatch": n}
        Path(f"ub{n}.json").write_text(json.dumps(document), "utf-8")
    rows = list(
        csv.DictReader(io.StringIO(call("sweep", "-ngl", "0,all", "-f", "csv", "ub512.json", "ub256.json").out))
    )
    assert [(row["file"], row["-ub"], row["-ngl"]) for row in rows] == [
        ("ub512.json", "512", "0"),
        ("ub512.json", "512", "19"),
        ("ub256.json", "256", "0"),
        ("ub256.json", "256", "19"),
    ]


def test_on_a_terminal_a_bar_shows_how_far_it_is(call: Call) -> None:
    result = call("sweep", "-ngl", "0..9", "-j", "1", GEMMA, tty=True, slow=True)
    assert "placing" in result.err
    assert call("sweep", "-ngl", "0..9", "-j", "1", "-q", GEMMA, tty=True, slow=True).err == ""


def test_a_range_beyond_all_layers_ends_with_all(call: Call) -> None:
    for option in (("-ngl", "18..999999"), ("-ngl", "18,77,all")):
        rows = json.loads(call("sweep", *option, "--json", GEMMA).out)["placements"]
        assert [row["-ngl"] for row in rows] == ["18", "19"]
    assert len(json.loads(call("sweep", "-ngl", "1", "-ncmoe", "0..999999:6", "--json", GEMMA).out)["placements"]) == 4
