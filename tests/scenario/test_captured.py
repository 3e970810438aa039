"""Captured graphs: what was seen before is not worked out again, and nothing else changes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from ggmltool.ggml import ops
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.registry import BY_OP
from ggmltool.ggml.tensor import MAX_SRC
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.nodes.captured import Seen, is_described
from ggmltool.scenario.nodes.long_form import _ELSEWHERE, KEYS
from ggmltool.scenario.scenario import LoadedScenario

ops.load()

GRAPHS = Path(__file__).parents[3] / "shared" / "graphs"
SAMPLE = Path(__file__).parents[2] / "sample_graphs" / "gemma-3-270m.json.gz"


def gemma() -> dict[str, Any]:
    with gzip.open(SAMPLE) as stream:
        scenario: dict[str, Any] = json.load(stream)
    return scenario


def nodes_of(scenario: dict[str, Any]) -> dict[str, Any]:
    nodes: dict[str, Any] = next(iter(scenario["graphs"].values()))["nodes"]
    return nodes


def paths() -> list[Path]:
    return [SAMPLE, *(sorted(GRAPHS.glob("*.json.gz"))[::10] if GRAPHS.exists() else [])]


@pytest.mark.parametrize("path", [p for p in paths() if p.name != "expected.json.gz"], ids=lambda p: p.name)
def test_a_graph_loads_the_same_when_every_node_is_worked_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = load_spec(path)
    monkeypatch.setattr(Seen, "find", lambda *args: None)
    assert load_spec(path) == fast


def test_a_captured_graph_is_what_it_says() -> None:
    scenario = gemma()
    assert is_described(nodes_of(scenario))
    model = load_spec(scenario)
    for spec in next(iter(model.graphs.values())).nodes:
        written = nodes_of(scenario)[spec.id]
        assert (list(spec.ne), list(spec.nb), list(spec.src)) == (written["ne"], written["nb"], written["src"])
        assert (spec.view_src, spec.view_offs) == (written.get("view_src"), written.get("view_offs", 0))
        assert spec.name == written.get("name", spec.id)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("ne", [1, 2, 3, 4], r"ne is \[1, 2, 3, 4\], but reshape gives"),
        ("nb", [4, 4, 4, 4], r"nb is \[4, 4, 4, 4\], but reshape gives"),
        ("type", "f16", "type is f16, but reshape gives f32"),
        ("view_src", "inp_scaled", 'view_src is "inp_scaled", but reshape gives'),
        ("view_offs", 64, "view_offs is 64, but reshape gives 0"),
        ("view_offs", "x", "view_offs must be an integer"),
        ("src", ["nobody"], 'source "nobody" does not exist'),
        ("src", 5, "src must be a list"),
        ("op_params", [[]], r"op_params\[0\] must be an integer"),
        ("flags", ["outpt"], "a flag cannot be"),
    ],
)
def test_a_mistake_is_found_in_a_node_like_others(key: str, value: object, message: str) -> None:
    scenario = gemma()
    nodes = nodes_of(scenario)
    id = [i for i, n in nodes.items() if n["op"] == "reshape"][-1]
    nodes[id] = {**nodes[id], key: value}
    if key == "ne":
        message = r"ne is \[1, 2, 3, 4\], but"
        nodes[id].pop("view_src")
        nodes[id]["op"] = "permute"
        nodes[id]["op_params"] = [0, 1, 2, 3]
    with pytest.raises(ScenarioError, match=message):
        load_spec(scenario)


def captured(op: str, src: list[Any], ne: list[int] | None = None, **more: Any) -> dict[str, Any]:
    """A graph of one node as captured graphs have it, over a matrix `a` in the first device's memory."""
    node = {"op": op, "src": src, "type": "f32", "ne": ne or [8, 8, 1, 1], **more}
    return {
        "ggmltool": 1,
        "backends": ["CUDA0", "Vulkan0", "Metal", "SYCL0", "CANN0", "OpenCL", "CPU"],
        "contexts": {"w": {"buft": "CUDA0", "tensors": {"a": "f32[8, 8]"}}},
        "graphs": {"main": {"nodes": {"y": node}}},
    }


@pytest.mark.parametrize("op", [op for op in BY_OP if BY_OP[op].n_required_sources], ids=lambda op: op.name.lower())
def test_the_sources_of_a_captured_node_are_counted(op: Op) -> None:
    c = BY_OP[op]
    name = op.name.lower()
    needed = len([slot for slot in c.slots if slot in c.sources[: c.n_required_sources]] or range(c.n_required_sources))
    for n in range(min(needed, *_ELSEWHERE.get(op, (needed,)))):
        with pytest.raises(ScenarioError, match=rf"{name} takes [\d to]+ sources?, not {n}"):
            load_spec(captured(name, ["a"] * n))
    with pytest.raises(ScenarioError, match=f"{name} cannot be null|{name} takes"):
        load_spec(captured(name, [None, *["a"] * max(needed - 1, 1)]))
    if len(c.sources) < MAX_SRC and op not in _ELSEWHERE:
        with pytest.raises(ScenarioError, match=rf"{name} takes [\d to]+ sources?, not {MAX_SRC}"):
            load_spec(captured(name, ["a"] * MAX_SRC))


@pytest.mark.parametrize(("op", "n"), [(op, n) for op, counts in _ELSEWHERE.items() for n in counts])
def test_a_captured_node_may_have_the_sources_of_another_release(op: Op, n: int) -> None:
    assert LoadedScenario(load_spec(captured(Op(op).name.lower(), ["a"] * n))).plan().ok


@pytest.mark.parametrize("op", ["mul", "flash_attn_back", "view", "scale"])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", [[1.5], {"a": 1}, [[1]], {}, 1.5], ids=str)
def test_a_value_of_the_wrong_kind_is_a_mistake_at_its_place(op: str, key: str, value: object) -> None:
    sources = ["a"] if op in ("view", "scale") else ["a", "a"]
    view = {"view_src": "a"} if op == "view" else {}
    with pytest.raises(ScenarioError, match=key):
        load_spec(captured(op, sources, **view) | _with(op, sources, view, key, value))


def _with(op: str, src: list[str], view: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    """The graphs with another value of one key, after a node that is right."""
    right = {"op": op, "src": src, "type": "f32", "ne": [8, 8, 1, 1], **view}
    return {"graphs": {"main": {"nodes": {"h": right, "y": right | {key: value}}}}}
