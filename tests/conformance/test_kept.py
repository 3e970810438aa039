"""What devices keep in memory until a node has been computed (add_alloc_dep), against the real library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import ggmltool
from ggmltool.ggml.device import Keep
from ggmltool.ggml.events import KeptUntil
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.ggml.tensor import Tensor
from tests.conformance.judged import judged
from tests.conformance.run import outcomes
from tests.needs import library

RELEASE = next(release for release in RELEASES.values() if release.rules.copies_leafs_last)
"""A ggml whose graph_optimize gets params, for which there is a library."""


def keeps_much(nodes: list[Tensor], _: Callable[[Tensor], int], keep: Keep) -> list[Tensor]:
    """Keeps sources, nodes and views; some of them twice, some until a node that keeps more than ten."""
    n = len(nodes)
    for i, node in enumerate(nodes):
        if (n * 31 + i * 7) % 5 == 0:
            until = nodes[min(i + 3, n - 1)]
            for t in (node, *node.src, node):
                if t is not None:
                    keep(t, until)
        if (n + i) % 11 == 0:
            for kept in nodes[max(0, i - 14) : i]:
                keep(kept, node)
    return nodes


def keeps_until_a_source(nodes: list[Tensor], _: Callable[[Tensor], int], keep: Keep) -> list[Tensor]:
    source = nodes[0].src[0]
    assert source is not None
    keep(nodes[0], source)
    return nodes


@pytest.fixture
def keeping() -> Release:
    """The release, if its library is here."""
    library(RELEASE.name)
    return RELEASE


def let(monkeypatch: pytest.MonkeyPatch, release: Release, optimize: object) -> None:
    """Devices that are no CPU have this graph_optimize."""
    profiles = profiles_of(release)
    for name, profile in profiles.items():
        if name not in ("CPU", "BLAS"):
            monkeypatch.setitem(profiles._made, name, replace(profile, graph_optimize=optimize))  # type: ignore[arg-type]


def test_what_devices_keep_is_kept_as_ggml_keeps_it(monkeypatch: pytest.MonkeyPatch, keeping: Release) -> None:
    let(monkeypatch, keeping, keeps_much)
    failed = {o.seed: o.differences for o in outcomes(range(60), keeping.name) if o.differences}
    assert failed == {}


SCENARIO = {
    "ggmltool": 1,
    "ggml": RELEASE.name,
    "backends": ["CUDA0", "CPU"],
    "contexts": {"c": {"tensors": {"x": "f32[64, 8]"}}, "w": {"buft": "CUDA0", "tensors": {"w": "f32[64, 64]"}}},
    "graphs": {"main": {"nodes": {"a": "mul_mat(w, x)", "b": "sqr(a)", "c": "sqr(b)", "d": "sqr(c)"}}},
}


def test_a_kept_tensor_keeps_its_memory_and_says_so(monkeypatch: pytest.MonkeyPatch, keeping: Release) -> None:
    def keep_first(nodes: list[Tensor], _: Callable[[Tensor], int], keep: Keep) -> list[Tensor]:
        keep(nodes[0], nodes[-2])
        return nodes

    before = judged(RELEASE.name, SCENARIO)
    let(monkeypatch, keeping, keep_first)
    after = judged(RELEASE.name, SCENARIO)
    assert before.offset("b") == before.offset("a")
    assert after.offset("b") != after.offset("a")
    assert set(after.of(KeptUntil)) == {KeptUntil("CUDA0", "a", "c")}


def test_lifetime_tells_until_when_a_device_keeps_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep_many(nodes: list[Tensor], _: Callable[[Tensor], int], keep: Keep) -> list[Tensor]:
        for node in nodes[:12]:
            keep(node, nodes[12])
        return nodes

    let(monkeypatch, RELEASE, keep_many)
    chain = {f"n{i}": f"sqr(n{i - 1})" for i in range(1, 16)}
    scenario = {**SCENARIO, "graphs": {"main": {"nodes": {"n0": "mul_mat(w, x)", **chain, "y": "add(n15, n11)"}}}}
    found = ggmltool.load(scenario).lifetime("n2")
    (life,) = found.as_dict()["tensors"]
    assert life["kept_until"] == [{"at": 12, "node": "n12", "backend": "CUDA0"}]
    assert [reader["node"] for reader in life["readers"]] == ["n3"]
    assert "asks to keep it (add_alloc_dep) until node 12 n12 (CUDA0)" in " ".join(found.text().split())
    assert ggmltool.load(scenario).lifetime("n14").as_dict()["tensors"][0]["kept_until"] == []


def test_until_must_be_a_node(monkeypatch: pytest.MonkeyPatch, keeping: Release) -> None:
    let(monkeypatch, keeping, keeps_until_a_source)
    error = judged(RELEASE.name, SCENARIO).error()
    assert "n_dep_nodes_added == n_dep_nodes" in (error["condition"] or "")


def moe(experts_on: str, n_tokens: int = 4) -> dict[str, Any]:
    """A mixture of experts as llama.cpp writes it: two of eight experts, whose weights are on one backend."""
    n = n_tokens
    nodes = {
        "x": "sqr(in)",
        "logits": "mul_mat(router, x)",
        "probs": "soft_max(logits)",
        "probs3": f"reshape(probs, ne=[1, 8, {n}])",
        "order": "argsort(probs, desc)",
        "ids": f"view(order, ne=[2, {n}], nb=[32])",
        "weights": "get_rows(probs3, ids)",
        "y": "mul_mat_id(up, in3, ids)",
        "weighted": "mul(y, weights)",
        "first": f"view(weighted, ne=[64, {n}], nb=[512])",
        "second": f"view(weighted, ne=[64, {n}], nb=[512], offset=256)",
        "sum": "add(first, second)",
        "out": {"op": "sqr", "src": ["sum"], "flags": ["output"]},
    }
    return {
        "ggmltool": 1,
        "ggml": RELEASE.name,
        "backends": ["CUDA0", "CPU"],
        "contexts": {
            "gpu": {"buft": "CUDA0", "usage": "weights", "tensors": {"router": "f32[32, 8]"}},
            "experts": {"buft": experts_on, "usage": "weights", "tensors": {"up": "q8_0[32, 64, 8]"}},
            "inputs": {"tensors": {"in": f"f32[32, {n}]", "in3": f"f32[32, 1, {n}]"}},
        },
        "graphs": {"main": {"nodes": nodes, "expand": ["weights", "out"]}},
    }


@pytest.mark.usefixtures("keeping")
@pytest.mark.parametrize(("experts_on", "until"), [("CUDA0", "CUDA0"), ("CPU", "CPU")])
def test_cuda_keeps_what_its_kernels_for_experts_read(experts_on: str, until: str) -> None:
    j = judged(RELEASE.name, moe(experts_on))
    kept = {(e.tensor, e.until) for e in j.of(KeptUntil)}
    choice = {(t, "y") for t in ("logits", "probs", "probs3", "order", "ids", "weights")}
    total = {(t, "sum") for t in ("y", "weights")} if experts_on == "CUDA0" else set()
    assert kept == choice | total
    assert j.backend("y") == until
    plain = moe(experts_on)
    plain["backends"][0] = {"name": "CUDA0", "graph_optimize": False}
    assert judged(RELEASE.name, plain).of(KeptUntil) == []


@pytest.mark.usefixtures("keeping")
def test_experts_for_a_long_prompt_are_planned_as_the_real_library_plans_them() -> None:
    for experts_on in ("CUDA0", "CPU"):
        judged(RELEASE.name, moe(experts_on, 512))
