"""Random scenarios with more of what is rare, on the engine and on the real library of each release."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

import ggmltool
from ggmltool.ggml.devices.profile import Memory
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.ggml.tensor import Tensor
from ggmltool.oracle import run
from tests.conformance.fuzz_wide import OWN_ORDER, wide_scenario
from tests.conformance.releases import seeds_of
from tests.conformance.run import outcomes
from tests.drawn import Drawn


def test_the_engine_does_what_the_real_library_does(release: str) -> None:
    failed = {o.seed: o.differences for o in outcomes(seeds_of(release, 60), release, kind="wide") if o.differences}
    assert failed == {}


def test_devices_that_pad_are_refused_as_ggml_refuses_them(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices ask for more than a result's bytes for three ops: for which of them they may is up to the release."""
    profiles = profiles_of(RELEASES[release])
    for name in OWN_ORDER:
        monkeypatch.setitem(profiles._made, name, replace(profiles[name], alloc_size=_padded))
    results = list(outcomes(seeds_of(release, 30), release, kind="wide"))
    assert {o.seed: o.differences for o in results if o.differences} == {}


def _padded(_: Memory) -> Callable[[Tensor], int]:
    return lambda t: t.nbytes + (96 if t.op in (Op.MUL_MAT, Op.SQR, Op.CLAMP) else 0)


def test_a_seed_always_gives_the_same_scenario() -> None:
    assert [wide_scenario(seed) for seed in range(40)] == [wide_scenario(seed) for seed in range(40)]


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
