"""Vulkan of ggml 0.26 as the engine has it against the real backend. `python -m tests.vulkan` does more of the same."""

from __future__ import annotations

import pytest

import ggmltool
from ggmltool.ggml.devices.combinators import ALWAYS, NEVER
from ggmltool.ggml.op import VIEW_OPS, Op, keys_of
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.oracle.vulkan import Vulkan
from tests.conformance import captured
from tests.vulkan.judged import RELEASE, GraphsJudged, OpsJudged, judge_scenario


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
