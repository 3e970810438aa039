"""A record has all of a history: what is read from its file is what was written, and no file does any harm."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

import ggmltool
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.samples import samples
from ggmltool.scenario.text.record import MAGIC, MAX_UNPACKED, VERSION
from ggmltool.state.story.history import History, record_history
from ggmltool.state.story.record import AREAS, EVENTS, open_history, record_bytes
from ggmltool.state.story.shadow import cells_of
from tests.state.story.randomly import random_scenarios

SMALL = [path for path in samples() if path.suffix == ".yaml"]
PAGE = (Path(ggmltool.__file__).parent / "docs" / "record.md").read_text("utf-8")


def written(history: History, folder: Path) -> Path:
    path = folder / "x.ggtrace"
    path.write_bytes(record_bytes(history))
    return path


def same(one: History, other: History) -> None:
    assert list(other.points) == list(one.points)
    assert list(other.changes) == list(one.changes)
    assert list(other.backends) == list(one.backends)
    assert (other.error, other.compute, other.release) == (one.error, one.compute, one.release)


@pytest.mark.parametrize("compute", [False, True], ids=["plan", "compute"])
@pytest.mark.parametrize("path", SMALL, ids=lambda p: p.name)
def test_what_is_written_is_read(path: Path, compute: bool, tmp_path: Path) -> None:
    history = record_history(ggmltool.load(path), compute)
    again = open_history(written(history, tmp_path))
    same(history, again)
    for at in range(0, len(history.points), 9):
        assert again.cells(at) == history.cells(at)
        assert again.stack(at) == history.stack(at)


@pytest.mark.parametrize("release", RELEASES)
def test_random_scenarios_are_recorded(release: str, tmp_path: Path) -> None:
    for scenario in random_scenarios(release, range(4)):
        history = record_history(scenario)
        again = open_history(written(history, tmp_path))
        same(history, again)
        run = again.scenario.start()
        run.run(step for step in run.model.steps if step.kind in (*run.plan_steps, "reset"))
        assert cells_of(run) == again.cells(len(again.points) - 1)


def test_a_name_that_is_no_utf8_survives(tmp_path: Path) -> None:
    spec = {
        "ggmltool": 1,
        "backends": ["CUDA0", "CPU"],
        "contexts": {"in": {"buft": "CPU", "tensors": {"x": {"type": "f32", "ne": [4], "name": "é" * 40}}}},
        "graphs": {"main": {"nodes": {"y": {"op": "sqr", "src": ["x"]}}}},
    }
    history = record_history(ggmltool.load(spec))
    assert any("udcc3" in str(cell) for cell in history.cells(len(history.points) - 1).values())
    same(history, open_history(written(history, tmp_path)))


def test_a_record_is_a_scenario_of_its_release(tmp_path: Path) -> None:
    path = written(record_history(ggmltool.load("versions-2026", ggml="0.20.2")), tmp_path)
    renamed = tmp_path / "graph.yaml"
    path.rename(renamed)
    scenario = ggmltool.load(renamed)
    assert scenario.model.release.name == "0.20.2"
    assert scenario.plan() == ggmltool.load("versions-2026", ggml="0.20.2").plan()


def test_it_is_small_and_the_page_says_what_is_in_it(tmp_path: Path) -> None:
    history = record_history(ggmltool.load("gemma-3-270m"))
    assert written(history, tmp_path).stat().st_size < 500_000
    areas = re.findall(r"^\| `(\w+)` \|", PAGE.partition("## Areas")[2].partition("##")[0], re.MULTILINE)
    assert areas == list(AREAS)
    events = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", PAGE.partition("## Events")[2].partition("## ")[0], re.MULTILINE)
    own: list[Any] = [(name, ", ".join(f"`{f}`" for f in kind._fields)) for name, kind in EVENTS.items()]
    assert [(name, fields.strip()) for name, fields in events] == own
    assert f"version {VERSION}" in PAGE


def map_of(raw: bytes) -> dict[str, Any]:
    out: dict[str, Any] = msgspec.msgpack.decode(zlib.decompress(raw[len(MAGIC) + 1 :]))
    return out


def file_of(value: object) -> bytes:
    return MAGIC + bytes([VERSION]) + zlib.compress(msgspec.msgpack.encode(value))


def test_fields_that_are_not_known_are_passed_over(tmp_path: Path) -> None:
    history = record_history(ggmltool.load("matmul"))
    value = map_of(record_bytes(history))
    value["run"]["later"] = value["more"] = [1, {"a": 2}]
    path = tmp_path / "x.ggtrace"
    path.write_bytes(file_of(value))
    same(history, open_history(path))


RAW = record_bytes(record_history(ggmltool.load("matmul")))
HOSTILE = {
    "newer": MAGIC + bytes([VERSION + 1]) + b"whatever",
    "no version": MAGIC,
    "version 0": MAGIC + b"\0",
    "cut off": RAW[:-7],
    "more": RAW + b"x",
    "no zlib": MAGIC + bytes([VERSION]) + b"whatever",
    "bomb": MAGIC + bytes([VERSION]) + zlib.compress(bytes(MAX_UNPACKED + 1)),
    "no map": file_of([1, 2]),
    "deep": MAGIC + bytes([VERSION]) + zlib.compress(b"\x91" * 1_000_000),
    "empty": file_of({}),
    "other release": file_of({**map_of(RAW), "release": "0.20.2"}),
    "no release": file_of({**map_of(RAW), "scenario": "{}"}),
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_record_is_refused_in_one_line(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.ggtrace"
    path.write_bytes(raw)
    with pytest.raises(ScenarioError) as refused:
        open_history(path)
    assert "\n" not in str(refused.value).strip()


RUNS: dict[str, object] = {
    "a step that is not there": {"points": [[7, "begins"]], "changes": [[]]},
    "no step": {"points": [["x", "begins"]], "changes": [[]]},
    "an event that is not there": {"points": [[0, "Invented"]], "changes": [[]]},
    "too few fields": {"points": [[0, "Allocated", "x"]], "changes": [[]]},
    "an area that is not there": {"points": [[0, "begins"]], "changes": [[["x", 1]]]},
    "a number for a text": {"points": [[0, "begins"]], "changes": [[["cause", 1, 2]]]},
    "a key of another kind": {"points": [[0, "begins"]], "changes": [[["id", "a", 2]]]},
    "no points": {"points": [], "changes": []},
    "more changes than points": {"points": [[0, "begins"]], "changes": [[], []]},
    "an area that is no text": {"points": [[0, "begins"]], "changes": [[[[], 1]]]},
    "an area that is a map": {"points": [[0, "begins"]], "changes": [[[{}, 1]]]},
    "an event that is no text": {"points": [[0, []]], "changes": [[]]},
    "rows of nothing": {"points": [[]], "changes": [[[]]]},
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_rows_that_say_nothing_are_refused(run: dict[str, object], tmp_path: Path) -> None:
    value = map_of(RAW)
    path = tmp_path / "x.ggtrace"
    path.write_bytes(file_of({**value, "run": {**value["run"], **run}}))
    with pytest.raises(ScenarioError, match="this record is damaged"):
        open_history(path)


def test_damage_anywhere_is_refused_or_harmless(tmp_path: Path) -> None:
    rng = Random(0)
    body = bytearray(zlib.decompress(RAW[len(MAGIC) + 1 :]))
    path = tmp_path / "x.ggtrace"
    for _ in range(300):
        changed = bytearray(body)
        for _ in range(rng.choice((1, 1, 2, 8))):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        path.write_bytes(MAGIC + bytes([VERSION]) + zlib.compress(bytes(changed), 1))
        try:
            history = open_history(path)
        except (ScenarioError, ggmltool.GgmlError):
            continue
        cursor = history.cursor(len(history.points) - 1)
        cursor.move_to(0)
