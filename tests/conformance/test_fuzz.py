"""Random scenarios: the generator itself, and the engine against the real library on a few hundred of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import ggmltool
from ggmltool.ask.ops.record import op_facts
from ggmltool.ggml.devices.profile import SizeFacts
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import Op, keys_of, op_key
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.ggml.tensor import FLAGS, Tensor, contiguous_nb
from ggmltool.oracle import OracleRun, run, run_many
from tests.conformance.compare import compare, compare_runs
from tests.conformance.fuzz import Spec, scenario
from tests.conformance.fuzz_rare import rare_scenario
from tests.conformance.fuzz_wide import OWN_ORDER, builds_scenario, wide_scenario
from tests.conformance.releases import seeds_of
from tests.conformance.run import engine_run, outcomes
from tests.conformance.values import compare_values, judge
from tests.drawn import Drawn

BLOCK = 50
JUDGED = [("usual", range(i, i + BLOCK)) for i in range(0, 150, BLOCK)] + [("wide", range(60)), ("rare", range(12, 39))]
"""Kinds of scenarios, and which of the seeds of a release; those that are rare are the same for all releases."""
MAKERS = [scenario, wide_scenario, rare_scenario, builds_scenario]


@pytest.mark.parametrize(("kind", "which"), JUDGED, ids=[f"{kind}-{seeds[0]}" for kind, seeds in JUDGED])
def test_the_engine_does_what_the_real_library_does(kind: str, which: range, release: str) -> None:
    own = which if kind == "rare" else seeds_of(release, 150 if kind == "usual" else 60)[which.start : which.stop]
    assert {o.seed: o.differences for o in outcomes(own, release, kind) if o.differences} == {}


@pytest.mark.parametrize("make", MAKERS)
def test_a_seed_always_gives_the_same_scenario(make: Callable[[int], Spec]) -> None:
    assert [make(seed) for seed in range(30)] == [make(seed) for seed in range(30)]
    assert make(1) != make(2)


def test_scenarios_reach_all_ends_and_shapes() -> None:
    seen: Counter[str] = Counter()
    for seed in (drawn := Drawn(range(150), 1)):
        loaded = ggmltool.load(scenario(seed, short_forms=False))
        for plan in engine_run(loaded, loaded.model, debug=False)[0]:
            seen["refused"] += not plan["ok"]
            seen["split often"] += len(plan["splits"]) > 3
            seen["pipeline copies"] += 10 * any(copy["copy"] == 3 for copy in plan["copies"])
            seen["all chunks"] += 10 * any(node["chunk"] == 15 for node in plan["nodes"])
            seen["many inputs"] += 10 * any(len(split["inputs"]) >= 30 for split in plan["splits"])
        drawn.found = min(seen.values()) >= 10


def test_a_comparison_names_the_field_that_differs(release: str) -> None:
    (run,) = run_many([ggmltool.load(scenario(3), ggml=release).model], debug=0)
    plan = run.plans[0]
    assert plan["ok"]
    other = {**plan, "nodes": [{**plan["nodes"][0], "offset": -1}, *plan["nodes"][1:]]}
    assert compare(plan, plan) == []
    assert compare(other, plan) == [f"nodes[0].offset: -1, not {plan['nodes'][0]['offset']!r}"]
    assert compare_runs([plan], [plan, plan]) == ["the engine made 1 plans, the library 2"]


def test_the_generated_long_forms_mean_to_the_loader_what_they_say() -> None:
    for seed in range(60):
        source = scenario(seed, short_forms=False)
        model = ggmltool.load(source).model
        written = [*source["contexts"].values(), *source["graphs"].values()]
        read = [*(c.tensors for c in model.contexts), *(g.nodes for g in model.graphs.values())]
        for group, tensors in zip(written, read, strict=True):
            told = group["tensors"] if "tensors" in group else group["nodes"]
            assert list(told) == [t.id for t in tensors]
            for t, entry in zip(tensors, told.values(), strict=True):
                ne = (*entry["ne"], 1, 1, 1)[:4]
                nb = tuple(entry["nb"]) if "nb" in entry else contiguous_nb(TYPES[entry["type"]], ne)
                assert (t.type.name, t.ne, t.nb) == (entry["type"], ne, nb)
                assert (list(t.src), t.view_src, t.view_offs) == (
                    entry.get("src", []), entry.get("view_src"), entry.get("view_offs", 0),
                )  # fmt: skip
                assert t.flags == sum(FLAGS[name] for name in set(entry.get("flags", ())))
                if "op" in entry:
                    assert op_key(t.op, t.op_params) in keys_of(entry["op"])


def test_the_engine_computes_what_the_real_library_computes(release: str) -> None:
    results = list(outcomes(seeds_of(release, 40), release, kind="values"))
    assert {o.seed: o.differences for o in results if o.differences} == {}
    assert sum(o.n for o in results) > 20


def test_what_no_rule_settles_is_no_difference_and_all_else_is_one() -> None:
    """The sign of a NaN of f16 in words that are read as f32, and rounding no larger than the engine's own."""
    ours, theirs = (np.array([nan, 0x3F80_0000], np.uint32).view(np.float32) for nan in (0x7E00_7E00, 0xFE00_FE00))
    assert list(compare_values(ours, theirs, 1e-6)) == []
    assert list(compare_values(ours, theirs * np.float32(1.01), 1e-6)) == ["NMSE 9.8e-05"]
    assert list(compare_values(ours[1:], theirs[:1], 1e-6)) != []
    run = OracleRun([], [], values=[{"y": np.float32([1, 2])}])
    mine = [{"y": np.float32([1.1, 2])}]
    assert judge(([], mine, []), run, 1e-6) == ["get 0: y: NMSE 2.0e-03"]
    assert judge(([], mine, []), run, 1e-6, [{"y": np.float32([1.05, 2])}]) == []
    assert judge(([], mine, []), run, 1e-6, [{"y": np.float32([1.099, 2])}]) != []


def test_devices_that_pad_are_refused_as_ggml_refuses_them(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices ask for more than a result's bytes for three ops: for which of them they may is up to the release."""
    profiles = profiles_of(RELEASES[release])
    for name in OWN_ORDER:
        monkeypatch.setitem(profiles._made, name, replace(profiles[name], alloc_size=_padded))
    results = list(outcomes(seeds_of(release, 30), release, kind="wide"))
    assert {o.seed: o.differences for o in results if o.differences} == {}


def _padded(_: SizeFacts) -> Callable[[Tensor], int]:
    return lambda t: t.nbytes + (96 if t.op in (Op.MUL_MAT, Op.SQR, Op.CLAMP) else 0)


def test_scenarios_have_what_is_rare(release: str) -> None:
    seen: Counter[str] = Counter()
    for seed in (drawn := Drawn(range(100), 1)):
        loaded = ggmltool.load({**wide_scenario(seed), "ggml": release})
        model = loaded.model
        nodes = [n for graph in model.graphs.values() for n in graph.nodes]
        seen["outside"] += any(b.device not in {d.name for d in model.backends} for b in model.buffer_types)
        seen["clamp"] += sum(n.op == Op.CLAMP for n in nodes) > 1
        seen["assigned"] += sum(n.backend is not None for n in nodes) > 2
        seen["computed"] += any(step.kind == "compute" for step in model.steps)
        plans = loaded.run()
        seen["many inputs"] += any(len(split["inputs"]) >= 30 for plan in plans for split in plan["splits"])
        seen["pipeline copies"] += any(copy["copy"] == 3 for plan in plans for copy in plan["copies"])
        seen["good"] += bool(plans) and plans[-1]["ok"]
        drawn.found = min(seen.values()) > 5 and seen["good"] > 50


def test_a_device_that_pads_what_it_must_not_stops_ggml(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles = profiles_of(RELEASES[release])
    monkeypatch.setitem(profiles._made, "Vulkan", replace(profiles["Vulkan"], alloc_size=_padded))
    source = {
        "ggmltool": 1, "ggml": release, "backends": ["Vulkan0", "CPU"],
        "contexts": {"w": {"buft": "Vulkan0", "tensors": {"w": "f32[64, 64]"}}},
        "graphs": {"main": {"nodes": {"a": "mul_mat(w, w)", "b": "sqr(a)"}}},
    }  # fmt: skip
    loaded = ggmltool.load(source)
    (ours,), (theirs,) = (
        loaded.run(["alloc main"]),
        run(replace(loaded.model, steps=loaded.steps(["alloc main"])), 0).plans,
    )
    rule = RELEASES[release].rules.expanding_ops
    assert ours["ok"] == theirs["ok"] == (rule is None)
    if rule is not None:
        assert ours["error"]["condition"] == theirs["error"]["condition"]
        assert "ggml_op_alloc_size_may_expand" in str(ours["error"]["condition"])


def test_scenarios_have_all_ops_types_and_keys() -> None:
    words: Counter[str] = Counter()
    keys: Counter[str] = Counter()
    for seed in range(150):
        made = rare_scenario(seed)
        contexts, graphs = made["contexts"].values(), made["graphs"].values()
        nodes = [n for g in graphs for n in g["nodes"].values() if isinstance(n, dict)]
        words.update(n["op"] for n in nodes)
        words.update(t["type"] for t in (*nodes, *(t for c in contexts for t in c["tensors"].values())))
        for part in (made, *contexts, *graphs, *nodes, *made["backends"], made.get("scheduler", {})):
            keys.update(list(part) if isinstance(part, dict) else ())
    names = {f.name.lower() for f in op_facts() if f.function_of is None} - {"none", "flash_attn_back"}
    assert {name for name in names if not words[name]} == set()
    assert {name for name in TYPES if not words[name]} == set()
    wanted = ("in", "at", "size", "uncomputed", "copy_callback", "graph_size", "supports", "backend", "max_size")
    assert {key for key in wanted if not keys[key]} == set()
