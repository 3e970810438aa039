"""`run --watch` and `run --dump`: nodes as they are computed, on the screen and in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import ggmltool
from ggmltool.cli.dump import MANIFEST, file_name
from tests.cli.conftest import SAMPLES, Call
from tests.golden import check_golden

GOLDEN = Path(__file__).parent / "golden"
SAMPLE = SAMPLES / "wrong-kernel.yaml"
TRANSFORMER = SAMPLES / "transformer.yaml"

VALUES: dict[str, Any] = {
    "ggmltool": 1,
    "contexts": {
        "in": {
            "tensors": {
                "x": {"type": "f32", "ne": [4], "data": [1, float("nan"), float("-inf"), 3]},
                "none": {"type": "f32", "ne": [2], "data": [float("nan"), float("inf")]},
                "q": {"type": "q8_0", "ne": [32, 2], "data": {"fill": 2}, "flags": ["input"]},
            }
        }
    },
    "graphs": {
        "main": {
            "nodes": {
                "y": "dup(x)",
                "order": "argsort(y, order=asc)",
                "bad": "dup(none)",
                "turned": "transpose(q)",
                "part": "view(y, ne=[2], offset=8)",
                "half": "cast(y, type=f16)",
            },
            "expand": ["order", "bad", "turned", "part", "half"],
        }
    },
}


def files(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def test_values_that_are_not_finite_are_counted(call: Call) -> None:
    text = yaml.safe_dump(VALUES, sort_keys=False).encode()
    result = call("run", "--watch", "*", "-", stdin=text, columns=100)
    assert result.status == 0
    check_golden(GOLDEN / "watch_values.txt", result.out)
    watched = {w["id"]: w for w in json.loads(call("run", "--watch", "*", "--json", "-", stdin=text).out)["watched"]}
    assert list(watched) == ["y", "order", "bad", "turned", "part", "half"]
    assert watched["y"] | {"src": []} == {
        "step": 3, "graph": "main", "id": "y", "op": "DUP", "op_desc": "DUP", "type": "f32",
        "ne": [4, 1, 1, 1], "src": [],
        "backend": "CPU", "min": 1.0, "max": 3.0, "mean": 2.0, "nan": 1, "inf": 1,
        "first": [1.0, "NaN", "-Infinity"], "last": ["NaN", "-Infinity", 3.0],
    }  # fmt: skip
    assert (watched["bad"]["min"], watched["bad"]["nan"], watched["bad"]["inf"]) == (None, 1, 1)
    assert watched["order"]["type"] == "i32"
    assert "first" not in watched["turned"]


def test_nodes_are_shown_in_the_order_they_are_computed_each_when_it_is(call: Call) -> None:
    result = call("run", "--watch", "*", "--json", TRANSFORMER)
    scenario = ggmltool.load(TRANSFORMER)
    assert [w["id"] for w in json.loads(result.out)["watched"]] == [n.id for n in scenario.plan().nodes]
    assert "watched" not in json.loads(call("run", "--json", TRANSFORMER).out)


def test_the_whole_output_can_go_to_a_file(call: Call) -> None:
    shown = call("run", "--watch", "act", SAMPLE)
    assert call("run", "--watch", "act", "-o", "out.txt", SAMPLE).out == ""
    assert Path("out.txt").read_text("utf-8") == shown.out


def test_all_nodes_but_views_are_dumped_with_their_values(call: Call) -> None:
    result = call("run", "--dump", "tensors", TRANSFORMER)
    assert (result.status, result.err) == (0, "Wrote 23 tensors to tensors\n")
    manifest = json.loads(Path("tensors", MANIFEST).read_text())
    assert len(manifest["tensors"]) == 23
    assert files("tensors") == sorted([MANIFEST, *(t["file"] for t in manifest["tensors"])])
    ids = [t["id"] for t in manifest["tensors"]]
    values = ggmltool.load(TRANSFORMER).compute(outputs=ids)
    for t in manifest["tensors"]:
        array = np.load(Path("tensors", t["file"]), allow_pickle=False)
        assert (list(array.shape), str(array.dtype), t["ne"]) == (t["shape"], t["dtype"], t["shape"][::-1])
        np.testing.assert_array_equal(array, values[t["id"]])


def test_only_what_is_watched_is_dumped_views_too(call: Call) -> None:
    text = yaml.safe_dump(VALUES, sort_keys=False).encode()
    assert call("run", "--dump", "d", "--watch", "part", "--watch", "order", "-", stdin=text).status == 0
    assert files("d") == [MANIFEST, "order.npy", "part.npy"]
    assert np.load("d/order.npy").dtype == np.int32
    assert np.load("d/part.npy").ravel().tolist() == [-np.inf, 3.0]


def test_files_of_several_compute_steps_say_their_step(call: Call) -> None:
    text = yaml.safe_dump({**VALUES, "steps": ["alloc main", "compute main", "compute main"]}, sort_keys=False).encode()
    result = call("run", "--dump", "d", "--watch", "y", "-", stdin=text, columns=100)
    assert result.status == 0
    assert files("d") == [MANIFEST, "step2-y.npy", "step3-y.npy"]
    assert "CPU · step 2" in result.out


def test_files_that_are_there_are_kept_unless_forced(call: Call) -> None:
    Path("d").mkdir()
    Path("d/act.npy").write_text("mine")
    result = call("run", "--dump", "d", SAMPLE)
    assert (result.status, result.out) == (2, "")
    assert "d/act.npy exists; --force overwrites" in result.err
    assert files("d") == ["act.npy"]
    assert call("run", "--dump", "d", "--force", SAMPLE).status == 0
    assert np.load("d/act.npy").shape == (1, 1, 4, 32)


def test_a_link_in_the_folder_is_replaced_not_followed(call: Call) -> None:
    Path("d").mkdir()
    Path("outside.npy").write_text("mine")
    Path("d/act.npy").symlink_to("../outside.npy")
    assert call("run", "--dump", "d", SAMPLE).status == 2
    assert call("run", "--dump", "d", "--force", SAMPLE).status == 0
    assert Path("outside.npy").read_text() == "mine"
    assert not Path("d/act.npy").is_symlink()


NAMES = [
    "../../up",
    "/etc/x",
    ".",
    "..",
    "a/b",
    "a b",
    "new\nline",
    "\x1b[31m",
    "é" * 40,
    "z" * 200,
    "C:\\x",
    "%2F",
    "~",
]


def test_names_of_files_stay_in_the_folder_and_apart() -> None:
    made = [file_name(name) for name in [*NAMES, "z" * 201, "é" * 41, "A" * 149]]
    assert len(set(made)) == len(made)
    for name in made:
        assert len(name) < 200
        assert name.isascii()
        assert Path(name).name == name
        assert not name.startswith(".")
        assert "/" not in name
        assert "\\" not in name


def test_hostile_names_are_written_inside_the_folder_and_escaped_on_the_screen(call: Call) -> None:
    nodes: dict[str, Any] = {}
    names = [name for name in NAMES if name.isprintable()]
    for i, name in enumerate(names):
        nodes[name] = {"op": "sqr", "src": ["x"], "name": f"n{i}"}
    source = {
        "ggmltool": 1,
        "contexts": {"in": {"tensors": {"x": {"type": "f32", "ne": [2], "data": [1, 2]}}}},
        "graphs": {"main": {"nodes": nodes}},
    }
    result = call("run", "--watch", "*", "--dump", "d", "-", stdin=json.dumps(source).encode())
    assert result.status == 0
    assert "\x1b" not in result.out
    assert files(".") == ["d"]
    assert len(files("d")) == len(names) + 1


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--watch", "akt"), 'no computed node is called "akt"; did you mean "act"?'),
        (("--watch", "x"), "x is never computed; `run -t x` shows it"),
        (("--watch", "q*"), 'no computed node is called "q*'),
        (("--watch", "act", "--no-compute"), "leave out --no-compute"),
        (("--dump", "d", "--no-compute"), "leave out --no-compute"),
        (("--dump", "no/d"), "the folder no does not exist"),
        (("--dump", "file"), "file is not a folder"),
        (("--dump", "d", "-t", "nope"), 'no tensor is called "nope'),
    ],
)
def test_wrong_use_is_answered_before_anything_is_done(call: Call, arguments: tuple[str, ...], hint: str) -> None:
    Path("file").write_text("")
    result = call("run", *arguments, SAMPLE)
    assert (result.status, result.out) == (2, "")
    assert hint in result.err
    assert not Path("d").exists()


def test_nothing_is_written_where_nothing_is_computed(call: Call) -> None:
    result = call("run", "--dump", "d", SAMPLES / "preallocated.yaml")
    assert (result.status, result.err) == (1, "")
    assert not Path("d").exists()


def test_what_was_computed_before_ggml_refused_is_kept(call: Call) -> None:
    text = yaml.safe_dump({**VALUES, "steps": ["alloc main", "compute main", "alloc main"]}, sort_keys=False).encode()
    result = call("run", "--dump", "d", "--watch", "y", "-", stdin=text)
    assert result.status == 1
    assert "!sched->is_alloc" in result.out
    assert files("d") == [MANIFEST, "y.npy"]
