"""Reading scenarios: formats, packing, standard input, bounds, places."""

from __future__ import annotations

import gzip
import io
import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.scenario.errors import Place, ScenarioError
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.text import text as text_module
from ggmltool.scenario.text.text import inside_string, parse_document, read_document
from tests.scenario.texts import load_text
from tests.scenarios import scenario_of

YAML = """\
ggmltool: 1
name: a # comment
contexts: {c: {tensors: {x: "f32[4]"}}}
graphs:
  main:
    nodes:
      h: sqr(x)
"""
VALUE = scenario_of({"x": "f32[4]"}, {"h": "sqr(x)"}, name="a")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", YAML),
        ("a.yml", YAML),
        ("a.YAML.gz", YAML),
        ("a.json", json.dumps(VALUE)),
        ("a.json.gz", json.dumps(VALUE, indent=1)),
        ("noname", YAML),
        ("noname", json.dumps(VALUE)),
        ("bom.yaml", "\ufeff" + YAML),
        ("bom.json", "\ufeff" + json.dumps(VALUE)),
    ],
)
def test_every_way_to_write_a_scenario_gives_the_same_model(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    raw = text.encode()
    path.write_bytes(gzip.compress(raw, mtime=0) if name.endswith(".gz") else raw)
    model = load_spec(path)
    assert model == load_spec(VALUE)
    assert (model.source, model.folder) == (str(path), tmp_path)


def test_a_packed_file_is_known_by_its_content_and_may_have_parts(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(gzip.compress(YAML[:20].encode()) + gzip.compress(YAML[20:].encode()))
    assert load_spec(path) == load_spec(VALUE)


@pytest.mark.parametrize("raw", [YAML.encode(), json.dumps(VALUE).encode(), gzip.compress(YAML.encode())])
def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, raw: bytes) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(raw)))
    model = load_spec("-")
    assert model == load_spec(VALUE)
    assert (model.source, model.folder) == ("<stdin>", tmp_path)


def test_yaml_tensors_and_nodes_have_their_places() -> None:
    document = parse_document(YAML, "a.yaml", "yaml", None)
    from ggmltool.scenario.load import load_document

    model = load_document(document)
    assert model.graphs["main"].nodes[0].place == Place(7, 7)
    assert model.contexts[0].tensors[0].place == Place(3, 26)


def test_plain_scalars_follow_yaml_1_2() -> None:
    text = "{a: 1e-6, b: on, c: 010, d: 0o10, e: 0x10, f: .5, g: .inf, h: ~, i: 1_000, j: 12:30, 1: x, null: y, k: -5}"
    assert read_value(text) == {
        "a": 1e-6, "b": "on", "c": 10, "d": 8, "e": 16, "f": 0.5, "g": float("inf"), "h": None, "i": "1_000",
        "j": "12:30", "1": "x", "null": "y", "k": -5,
    }  # fmt: skip


def test_anchors_aliases_and_merge_keys_work() -> None:
    assert read_value("a: &x {k: 1, l: 2}\nb: {<<: *x, l: 3}\nc: *x\nd: [&s t, *s]") == {
        "a": {"k": 1, "l": 2},
        "b": {"l": 3, "k": 1},
        "c": {"k": 1, "l": 2},
        "d": ["t", "t"],
    }


def read_value(text: str) -> object:
    return parse_document(text, "t.yaml", "yaml", None).value


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "utf-8-sig"])
def test_text_in_any_unicode_encoding_is_read(tmp_path: Path, codec: str) -> None:
    """What PowerShell writes, with a byte order mark and without."""
    text = "ggmltool: 1\nname: größer\ncontexts: {c: {tensors: {x: 'f32[4]'}}}\ngraphs: {g: {nodes: {y: exp(x)}}}\n"
    path = tmp_path / "g.yaml"
    path.write_bytes(text.encode(codec))
    assert load_spec(path).name == "größer"


def test_a_file_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_module, "MAX_BYTES", 1 << 20)
    path = tmp_path / "large.json"
    path.write_bytes(b" " * (2 << 20))
    with pytest.raises(ScenarioError, match="more than 1 MiB"):
        load_spec(path)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("abc", "abc"),
        ('"a\\tb\\u0041c"', "a\tbAc"),
        ("'it''s a'", "it's a"),
        ("a\n   b c", "a b c"),
        ("|\n  a\n  b", "a\nb"),
    ],
)
def test_places_inside_strings_are_found_however_they_are_written(raw: str, value: str) -> None:
    text = f"  k: {raw}"
    for i, c in enumerate(value):
        if c.isalpha():
            found = inside_string(text, 5, i)
            assert text[found] == c or text[found : found + 6] == "\\u0041"


@given(st.text(max_size=200))
def test_no_text_gives_another_exception(text: str) -> None:
    for name in ("t.json", "t.yaml"):
        try:
            parse_document(text, name, "json" if name == "t.json" else "yaml", None)
        except ScenarioError as e:
            assert e.source == name  # noqa: PT017


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(json_values, st.data())
def test_every_value_of_a_json_text_is_found_again(value: object, data: st.DataObject) -> None:
    text = json.dumps(value, indent=data.draw(st.sampled_from([None, 1])))
    document = parse_document(text, "t.json", "json", None) if value is not None else None
    path: list[str | int] = []
    while isinstance(value, dict | list) and value:
        key = data.draw(st.sampled_from(list(value) if isinstance(value, dict) else list(range(len(value)))))
        path.append(key)
        value = value[key]
    if document is not None and path:
        offset = text_module.find_in_json(text, path, on_key=False)
        assert json.JSONDecoder().raw_decode(text, offset)[0] == value


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=4))
def test_no_dict_gives_another_exception(value: dict[str, object]) -> None:
    for scenario in (value, {"ggmltool": 1, "graphs": {"g": {"nodes": value}}}, {"ggmltool": 1, "backends": [value]}):
        try:
            load_spec(scenario)
        except ScenarioError as e:
            assert e.place is None  # noqa: PT017


def test_a_dict_is_taken_as_it_is() -> None:
    assert read_document({"a": 1}).value == {"a": 1}


def test_a_line_of_thousands_of_nodes_is_read_in_a_moment() -> None:
    """The place of every node is known without looking at the line again."""
    nodes = ", ".join(f"n{i}: sqr(x)" for i in range(5000))
    text = f"{{ggmltool: 1, contexts: {{c: {{tensors: {{x: 'f32[4]'}}}}}}, graphs: {{main: {{nodes: {{{nodes}}}}}}}}}"
    start = time.process_time()
    model = load_text(text)
    assert time.process_time() - start < 3
    place = model.graphs["main"].nodes[4999].place
    assert place is not None
    assert text[place.column - 1 :].startswith("n4999: ")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "llama_model_loader: - kv  12: some.key str = value\n",
            "this is a log without graphs, not a scenario; `ggmltool",
        ),
        ("node #  0 (       ADD):    a (   2K) [  CPU   ]:\n", "this is a log of GGML_SCHED_DEBUG, not a scenario"),
        ("some words\n", "more than 2 MiB; a scenario starts with `ggmltool: 1`; `ggmltool import` shows what"),
        ("ggmltool: 1\n", "more than 2 MiB; put large data into npy or gguf files beside the scenario"),
    ],
)
def test_what_is_too_long_is_told_what_it_is(
    line: str, message: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log over 128 MiB got advice about npy files."""
    monkeypatch.setattr(text_module, "MAX_BYTES", 2 << 20)
    raw = (line * ((3 << 20) // len(line))).encode()
    with pytest.raises(ScenarioError) as caught:
        read_document("big.log", io.BytesIO(gzip.compress(raw, 1) if packed else raw))
    assert str(caught.value).startswith(f"big.log: {message}")
