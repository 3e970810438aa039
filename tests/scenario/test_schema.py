"""The schema of scenarios: samples are valid, an editor finds what it needs, and the loader agrees on mutated files."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.ops.registry import CONSTRUCTORS
from ggmltool.scenario.nodes.long_form import KEYS
from ggmltool.scenario.samples import samples
from ggmltool.scenario.schema import scenario_schema
from ggmltool.scenario.text.text import read_document
from tests.batches import in_batches
from tests.cli.conftest import Call
from tests.fuzz import bases
from tests.fuzz.schema import case, difference, refusal, rule_broken, validator

SCHEMA = scenario_schema()
RECORDED = [
    path
    for path in sorted((bases.ROOT / "tests" / "conformance").glob("plans_*/*.json.gz"))
    if path.stat().st_size < 10_000
]
X: dict[str, Any] = {"contexts": {"c": {"tensors": {"x": {"type": "f32", "ne": [4]}}}}}


def of_node(node: object) -> dict[str, Any]:
    return {"ggmltool": 1, **X, "graphs": {"g": {"nodes": {"y": node}}}}


def with_rule(rule: dict[str, Any]) -> dict[str, Any]:
    return {"backends": [{"name": "G", "supports": {"rules": [rule]}}, "CPU"]}


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", samples(), ids=lambda path: path.stem)
def test_every_sample_is_valid(path: Path) -> None:
    assert rule_broken(read_document(path).value) == ""


@in_batches("name", sorted(bases.texts()))
def test_every_example_of_an_op_is_valid(name: str) -> None:
    assert rule_broken(bases._parsed(name)) == ""


@in_batches("path", RECORDED)
def test_every_recorded_scenario_of_older_releases_is_valid(path: Path) -> None:
    scenario = json.loads(gzip.decompress(path.read_bytes()))["scenario"]
    assert rule_broken(scenario if isinstance(scenario, dict) else bases._read(scenario)) == ""


@pytest.mark.parametrize("seeds", range(12))
def test_the_loader_agrees(seeds: int) -> None:
    """What the loader takes is valid, and what is valid it refuses only for what no schema can say."""
    told = {seed: difference(case(seed)) for seed in range(seeds * 100, seeds * 100 + 100)}
    assert {seed: what for seed, what in told.items() if not what.startswith("=")} == {}


@pytest.mark.parametrize(
    "node",
    [
        "mul_mat(x, x", "mulmat(x, x)", "sqr(sqr(x))", "f33[4]", "f32[4, 3, 2, 1, 1]", "f32[-1]", 5, None, ["sqr(x)"],
        {"op": "sqrr", "src": ["x"]}, {"op": "sqr", "scr": ["x"]}, {"op": "sqr", "src": [5]},
        {"op": "rope", "src": ["x", "x"], "n_dims": "four", "mode": 0}, {"op": "rope", "src": ["x", "x"], "eps": 1},
        {"op": "rope", "src": ["x", "x"]}, {"op": "scale", "src": ["x"], "op_params": [1 << 40]},
        {"op": "sqr", "src": ["x"], "flags": ["outputs"]}, {"op": "sqr", "src": ["x"], "data": [1]},
        {"op": "sqr", "src": ["x"], "inplace": 3}, {"op": "unary", "src": ["x"]}, {"type": "f32"},
    ],
)  # fmt: skip
def test_a_wrong_node_breaks_it(node: object) -> None:
    assert rule_broken(of_node(node)) != ""


@pytest.mark.parametrize(
    "node",
    [
        "mul_mat(x, x)", " sqr( x ) ", "SQR_inplace(x)".lower(), "rope(x, null, n_dims=4, mode=neox)", "Q4_k[256]",
        "reshape(x, ne=[2, 2])", 'add("x", \'x\')', {"op": "rope", "src": ["x", None], "n_dims": 4, "mode": "neox"},
        {"op": "sqr", "src": "x", "name": None}, {"op": "tri", "src": ["x"], "type": "lower"}, "f32[0x10, 2e3]",
        {"type": "f32", "ne": 4, "op": "none"}, {"view_src": "x"},
    ],
)  # fmt: skip
def test_a_right_node_does_not(node: object) -> None:
    assert rule_broken(of_node(node)) == ""


@pytest.mark.parametrize(
    "change",
    [
        {"ggml": "2024-1"}, {"backends": []}, {"backends": [{"nam": "G"}]}, {"backends": [{"name": "G", "host": 3}]},
        {"steps": ["alloc"]}, {"steps": ["measure g"]}, {"steps": [{"alloc": "g", "get": "y"}]}, {"steps": ["reset g"]},
        {"ggml": "2024-01", "steps": ["alloc g"]}, {"meta": {"a": [1]}}, {"scheduler": {"graph_size": 0}},
        {"backends": [{"name": "G", "supports": {"only": ["mulmat"]}}]}, {"backends": [{"name": "G", "supports": {}}]},
        {"backends": [{"name": "G", "supports": {"only": [], "except": []}}]}, {"ggmltool": 2}, {"zzz": 1},
        {"backends": [{"name": "G", "memory": "24Gigs"}]}, {"buffer_types": {"B": {}}}, {"steps": [{"set": {}}]},
        {"steps": [{"set": {"x": {"fill": 1, "npy": "x.npy"}}}]}, {"steps": [{"set": {"x": {"npy": 5}}}]},
        {"contexts": {"c": {"buft": "CPU", "tallocr": "CPU"}}},
    ],
)  # fmt: skip
def test_a_wrong_key_or_value_breaks_it(change: dict[str, Any]) -> None:
    valid = of_node("sqr(x)")
    assert rule_broken(valid) == ""
    assert rule_broken(copy.deepcopy(valid) | change) != ""


def test_an_editor_is_told_what_keys_mean() -> None:
    assert "highest priority first" in SCHEMA["properties"]["backends"]["description"]
    for definition in ("op_node", "leaf", "backend", "supports", "scheduler", "data", "step"):
        keys = SCHEMA["$defs"][definition]["properties"]
        assert [key for key, schema in keys.items() if "description" not in schema] == [], definition


def test_tensors_and_nodes_have_the_keys_that_the_loader_knows() -> None:
    assert set(SCHEMA["$defs"]["leaf"]["properties"]) == set(SCHEMA["$defs"]["op_node"]["properties"]) == set(KEYS)


def test_an_editor_can_complete_ops_types_and_parameters() -> None:
    assert set(CONSTRUCTORS) <= set(SCHEMA["$defs"]["op_node"]["properties"]["op"]["enum"])
    assert SCHEMA["$defs"]["type"]["anyOf"][0]["enum"] == list(TYPES)
    of_rope = next(d for name, d in SCHEMA["$defs"].items() if name == "op_rope")
    assert {p.name for p in CONSTRUCTORS["rope"].params} == set(of_rope["properties"]) - set(KEYS)
    assert "neox" in of_rope["properties"]["mode"]["anyOf"][0]["enum"]


def test_the_command_prints_it(call: Call) -> None:
    assert json.loads(call("schema", "scenario").out) == SCHEMA
    assert "scenario " in call("schema").out


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"backends": [{"name": None}]}, "a backend needs a name"),
        ({"contexts": {"c": {"tensors": {"x": {"type": "f32", "ne": [0, 1, 1, 1 << 63]}}}}}, "must be at most"),
        (with_rule({"op": "add", "src": {"contiguous": 0}}), "must be text"),
    ],
)  # fmt: skip
def test_what_the_schema_rejects_is_refused(change: dict[str, Any], told: str) -> None:
    scenario = {"ggmltool": 1} | change
    assert rule_broken(scenario) != ""
    assert told in str(refusal(scenario))


def test_contiguous_may_be_the_word_true() -> None:
    scenario = {"ggmltool": 1, **with_rule({"op": "add", "src": {"contiguous": "true"}})}
    assert difference(scenario) == "=both take it"


def test_every_definition_is_used() -> None:
    text = str(SCHEMA)
    assert [name for name in SCHEMA["$defs"] if f"'#/$defs/{name}'" not in text] == []
    assert validator().schema is not None
