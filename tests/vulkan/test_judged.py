"""Vulkan of ggml 0.26 as the engine has it against the real backend. `python -m tests.vulkan` does more of the same."""

from __future__ import annotations

import pytest

import ggmltool
from ggmltool.ggml.devices.combinators import ALWAYS, NEVER
from ggmltool.ggml.devices.profile import make_buft, make_device
from ggmltool.ggml.op import VIEW_OPS, Op, keys_of
from ggmltool.ggml.releases.ggml_0_26.vulkan import FEATURES
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.oracle.vulkan import ASKED, Vulkan
from tests.conformance import captured
from tests.needs import library
from tests.vulkan.judged import RELEASE, GraphsJudged, OpsJudged, judge_scenario
from tests.vulkan.scheduled import names, random_scenarios, verified


@pytest.fixture(scope="module")
def random_ops(vulkan: Vulkan) -> OpsJudged:
    judged = OpsJudged(vulkan)
    judged.ask_random(10_000, seed=2)
    return judged


def test_random_ops_get_the_answers_and_sizes_of_the_real_device(random_ops: OpsJudged) -> None:
    assert random_ops.wrong == []
    assert random_ops.supported > 1_500


def test_the_random_ops_reach_yes_and_no_for_every_op_that_vulkan_has(random_ops: OpsJudged) -> None:
    rules = profiles_of(RELEASE)["Vulkan"].rules
    for op in set(Op) - VIEW_OPS - {Op.NONE}:
        rule = rules.get(keys_of(op.name.lower())[0], NEVER)
        # llvmpipe's subgroups have 8 lanes, of which DSV4_HC_COMB needs 16.
        assert (True in random_ops.answers[op]) == (rule is not NEVER) or op == Op.DSV4_HC_COMB, op.name
        assert rule is ALWAYS or False in random_ops.answers[op], op.name


def test_random_graphs_get_the_order_of_the_real_device_and_keep_what_it_keeps(vulkan: Vulkan) -> None:
    judged = GraphsJudged(vulkan)
    judged.judge_random(range(300))
    assert judged.wrong == []
    assert judged.reordered > 150
    assert judged.kept > 150


@pytest.mark.parametrize("name", ["gemma-3-270m", "transformer", "moe", "node-order"])
def test_a_samples_nodes_get_the_answers_and_the_order_of_the_real_device(name: str, vulkan: Vulkan) -> None:
    ops, graphs = OpsJudged(vulkan), GraphsJudged(vulkan)
    judge_scenario(ggmltool.load(name, ggml="0.26"), ops, graphs)
    assert ops.wrong == graphs.wrong == []
    assert ops.asked


@pytest.mark.skipif(not captured.names(), reason="the captured graphs are not beside this checkout")
def test_captured_graphs_get_the_answers_and_the_orders_of_the_real_device(vulkan: Vulkan) -> None:
    ops, graphs = OpsJudged(vulkan), GraphsJudged(vulkan)
    for name in captured.names()[::8]:
        judge_scenario(ggmltool.load({**captured.read(name), "ggml": "0.26"}), ops, graphs)
    assert ops.wrong == graphs.wrong == []
    assert graphs.reordered


SOME = names()[::24]


@pytest.mark.skipif(not SOME, reason="the captured graphs are not beside this checkout")
@pytest.mark.parametrize("name", SOME)
def test_a_captured_graph_is_planned_as_with_the_real_device(name: str, vulkan: Vulkan) -> None:
    library("0.26")
    found = verified(name)
    assert found.differences == []
    assert found.compared["nodes"] > 50


def test_random_scenarios_are_planned_as_with_the_real_device(vulkan: Vulkan) -> None:
    library("0.26")
    found = random_scenarios(range(20))
    assert found.wrong == []
    assert found.plans > 25


REASONS = {
    "fp16": "LIGHTNING_INDEXER needs half-precision arithmetic, which this driver has not",
    "subgroup_shuffle": "FLASH_ATTN_EXT shuffles the lanes of a subgroup, which this driver cannot",
    "subgroup_arithmetic": "CUMSUM adds up the lanes of a subgroup, which this driver cannot",
    "subgroup_16": "DSV4_HC_COMB needs subgroups of 16 lanes, which this driver has not",
    "memory_model": "without Vulkan's memory model it sorts 1024 elements at most, not 2048",
}


@pytest.mark.parametrize("missing", FEATURES)
def test_a_driver_without_a_feature_refuses_what_needs_it(missing: str) -> None:
    profile = profiles_of(RELEASES["0.26"])["Vulkan"]
    buft = make_buft(profile, "Vulkan0", "Vulkan0")
    whole = make_device(profile, "Vulkan0", buft)
    device = make_device(profile.but(has=profile.has - {missing}), "Vulkan0", buft)
    assert {name for name, op in ASKED.items() if whole.why_not(op()) is None} == set(FEATURES) == set(ASKED)
    assert device.why_not(ASKED[missing]()) == REASONS[missing]
    others = {name for name, op in ASKED.items() if name != missing and device.why_not(op()) is not None}
    # The lanes of a hyper-connection's matrix are shuffled, too.
    assert others == ({"subgroup_16"} if missing == "subgroup_shuffle" else set())


def test_an_indexer_takes_no_view_amid_an_aligned_block() -> None:
    profile = profiles_of(RELEASES["0.26"])["Vulkan"]
    op = ASKED["fp16"]()
    assert op.op == Op.LIGHTNING_INDEXER
    keys = op.src[1]
    assert keys is not None
    keys.view_offs = 32
    coarse, fine = (
        make_device(profile, "Vulkan0", make_buft(profile.but(alignment=n), "Vulkan0", "Vulkan0")) for n in (64, 16)
    )
    assert coarse.why_not(op) == "an operand of LIGHTNING_INDEXER begins at no multiple of 64 bytes"
    assert fine.why_not(op) is None
