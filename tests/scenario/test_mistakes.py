"""Mistakes in scenarios: one message each, with its place and what would have been right."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import ggmltool
from ggmltool.scenario.devices.texts import read_devices
from ggmltool.scenario.errors import Mistake, Place, ScenarioError, nearest, quoted
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.nodes.short_form import parse_call
from ggmltool.sources.llama.errors import CaptureError
from ggmltool.sources.llama.model_file import check_gguf
from ggmltool.sources.sched_log.stream import open_log
from tests.scenario.test_measured_run import document as measured
from tests.scenario.test_recorded import source as recorded
from tests.scenario.test_support_rules import scenario as supporting
from tests.scenario.test_versions import of
from tests.scenario.texts import BASE, load_text

MISTAKES: list[tuple[str, str, str]] = []
"""The rows of `mistakes.txt` with their kind, and those that no file should hold."""
for _line in Path(__file__).with_name("mistakes.txt").read_text("utf-8").splitlines():
    if _line.startswith("[") and " => " not in _line:
        _kind = _line.strip("[]")
    elif " => " in _line and not _line.startswith("# "):
        _text, _, _said = _line.partition(" => ")
        MISTAKES.append((_kind, _text.replace("⏎", "\n"), _said))
TOO_DEEP = "this is nested too deeply; a scenario has at most ten levels"
MISTAKES += [
    ("nodes", f"{'n' * 1001}: add(x, x)", f'21:7: id "{"n" * 60}…" has 1001 characters; at most 1000 are allowed'),
    ("file", "a: " + "[" * 1_000_000, f"2:53: {TOO_DEEP}"),
    ("file", "a: " + "{a: " * 1_000, f"2:200: {TOO_DEEP}"),
    ("file", "a: \0", "2:4: this is not YAML: control characters are not allowed"),
    ("json", '{"ggmltool": 1, "a": ' + "[" * 1_000_000, f"1:221: {TOO_DEEP}"),
    ("json", '{"ggmltool": 1' + "0" * 5000 + "}", "1:14: this number is too long"),
    ("supports", f"rules: [{', '.join(['{op: add}'] * 1001)}]", "there are 1001 rules; at most 1000 are allowed"),
    ("meta", "{a: .nan}", "not the number nan"),
    ("meta", f"a: {'x' * 10_001}", "at most 10000"),
    ("meta", f"{{{', '.join(f'k{i}: {i}' for i in range(1001))}}}", "at most 1000"),
]
HEAD: dict[str, Any] = {"ggmltool": 1}
SCENARIOS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "supports": supporting,
    "recorded": recorded,
    "past": lambda past: recorded({}, scheduler={"past": past}),
    "meta": lambda meta: {**HEAD, "meta": meta},
    "measured": lambda change: measured(**change),
    "rates": lambda rates: {**HEAD, "backends": [{"name": "CUDA0", "rates": rates}, "CPU"]},
    "backend": lambda backend: {**HEAD, "backends": [backend, *([] if backend["name"] == "CPU" else ["CPU"])]},
    "devices of the scheduler": lambda part: {**HEAD, "backends": ["CUDA0", "CPU"], **part},
    "march 2025": lambda node: of({"z": node}, ggml="2025-03"),
}
"""A scenario with a value of each kind."""


def read(kind: str, text: str) -> object:
    """Whatever reads a text of this kind."""
    match kind:
        case "nodes":
            return load_text(BASE + textwrap.indent(text, " " * 6))
        case "file" | "whole":
            return load_text("ggmltool: 1\n" * (kind == "file") + text)
        case "json":
            return load_text(text, "t.json")
        case "devices":
            return read_devices([text])
        case "call":
            return parse_call(text)
        case _:
            return ggmltool.load(SCENARIOS[kind](yaml.safe_load(text)))


def said(kind: str, text: str) -> str:
    """What is said to a mistake."""
    with pytest.raises((ScenarioError, Mistake)) as caught:
        read(kind, text)
    error = caught.value
    if isinstance(error, ScenarioError):
        return str(error)
    return f"{error.message}; {error.expected}" if kind == "devices" else f"{error.offset}: {error.message}"


@pytest.mark.parametrize(("kind", "text", "message"), MISTAKES, ids=lambda text: text[:60])
def test_a_mistake_is_told(kind: str, text: str, message: str) -> None:
    found = said(kind, text)
    if kind in ("nodes", "file", "whole", "json"):
        assert found == f"t.{'json' if kind == 'json' else 'yaml'}:{message}"
    else:
        assert message.replace('"', "").replace("\\", "") in found.replace('"', "").replace("\\", "")
        assert "\x1b" not in found


AS_DICT: list[tuple[dict[Any, Any], str]] = [
    ({1: 2}, "[1]: a scenario has a key that is not text: the number 1"),
    (
        HEAD | {"contexts": {"c": {"tensors": {"x": {"type": "f32", "ne": [-1]}}}}},
        "contexts.c.tensors.x.ne[0]: ne[0] must be at least 0, not -1",
    ),
    (
        HEAD | {"contexts": {"c": {"tensors": {"x": {"type": "f32", "ne": [10**400]}}}}},
        "contexts.c.tensors.x.ne[0]: ne[0] must be at most 9223372036854775807, not a number of 1329 bits",
    ),
    (
        HEAD | {"graphs": {"g": {"nodes": {"x": object()}}}},
        "graphs.g.nodes.x: a node must be text or a map, not a object; for example mul_mat(a, x)",
    ),
    (
        HEAD | {"graphs": {"g": {"nodes": {"\x1b[31m": "f32[1]"}}}},
        'graphs.g.nodes."\\x1b[31m": id "\\x1b[31m" has a control character; names are printable text',
    ),
]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("ggmltool: 1\nbackends:\n\t- CPU\n", "3:1"),
        ("ggmltool: 1\n\tname: x\n", "2:1"),
        ("ggmltool: 1\nbackends:\n-\tCPU\n- CPU\n", "3:2"),
        ("name: |\n\tx\n", "2:1"),
    ],
)
def test_a_tab_that_indents_is_named(text: str, place: str) -> None:
    assert said("whole", text) == f"t.yaml:{place}: tabs cannot indent YAML; use spaces"


@pytest.mark.parametrize(("document", "message"), AS_DICT, ids=[m[:40] for _, m in AS_DICT])
def test_a_mistake_in_a_dict_says_its_path(document: dict[Any, Any], message: str) -> None:
    with pytest.raises(ScenarioError) as e:
        load_spec(document)
    assert str(e.value) == f"<dict>: {message}"


def test_the_line_of_a_mistake_comes_with_it() -> None:
    with pytest.raises(ScenarioError) as e:
        load_text(BASE + "      h: add(x, y)\n")
    assert (e.value.line_text, e.value.place) == ("      h: add(x, y)", Place(21, 17))


def test_the_nearest_name_is_found_among_many_and_whatever_the_case() -> None:
    names = [f"blk.{i}.attn_q.weight" for i in range(5000)]
    assert nearest("blk.77.attn_q.weigth", names) == "blk.77.attn_q.weight"
    assert nearest("CPU", ["gpu", "cpu"]) == "cpu"
    assert nearest("xyz", ["abc"]) is None


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("matmul", "mul_mat"),
        ("MatMul_ID", "mul_mat_id"),
        ("softmax", "soft_max"),
        ("rmsnorm", "rms_norm"),
        ("mull", "mul"),
    ],
)
def test_the_words_of_a_name_may_be_in_any_order(name: str, meant: str) -> None:
    """matmul was taken for mul."""
    ops = ["mul", "mul_mat", "mul_mat_id", "soft_max", "norm", "rms_norm", "get_rows", "set_rows", "max"]
    assert nearest(name, ops) == meant


def test_a_file_that_is_not_there_names_the_one_that_was_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "npu.yaml").write_text("name: NPU0")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(Mistake) as mistake:
        read_devices(["npu.yam"])
    assert mistake.value.expected == 'did you mean "npu.yaml"?'
    for read in (lambda: read_devices(["nqu.yaml"]), lambda: ggmltool.load("nqu.yaml")):
        with pytest.raises(ScenarioError, match=r'did you mean "npu.yaml"'):
            read()
    with pytest.raises(ScenarioError, match=r'did you mean "notes.txt"'), open_log("note.txt", "note.txt"):
        pass
    with pytest.raises(CaptureError, match=r'there is no such file; did you mean "npu.yaml"'):
        check_gguf(Path("npu.yml"))
    assert [spec.name for spec in read_devices(["NPU0"])] == ["NPU0"]


def test_names_are_shown_short_and_harmless() -> None:
    assert quoted('a"b\x1b\n') == '"a\\"b\\x1b\\n"'
    assert quoted("n" * 100) == f'"{"n" * 60}…"'
