"""`python -m tests.vulkan --ops 50000 --graphs 20000`: the engine's Vulkan of ggml 0.26 against the real one.

Random ops (answers and alloc sizes), random graphs (orders, and what is kept), all nodes of the captured graphs, and
these graphs and random scenarios on the real scheduler with the real device. The exit status is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import ggmltool
from ggmltool.oracle.vulkan import VulkanUnavailable, vulkan
from tests.conformance import captured
from tests.vulkan.judged import GraphsJudged, OpsJudged, judge_scenario
from tests.vulkan.scheduled import names, random_scenarios, verified

_SHOWN = 10


def main() -> int:
    """Judge what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.vulkan", description=__doc__)
    parser.add_argument("--ops", type=int, default=50_000, metavar="N", help="random ops (default: 50000)")
    parser.add_argument("--graphs", type=int, default=20_000, metavar="N", help="random graphs (default: 20000)")
    parser.add_argument("--scenarios", type=int, default=300, metavar="N", help="random scenarios (default: 300)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="where the seeds begin")
    options = parser.parse_args()
    try:
        device = vulkan()
    except VulkanUnavailable as missing:
        parser.error(str(missing))
    print(device.description)
    ops, graphs = OpsJudged(device), GraphsJudged(device)
    ops.ask_random(options.ops, options.seed)
    wrong = _told(f"{ops.asked} random ops, of which it runs {ops.supported}", ops.wrong)
    graphs.judge_random(range(options.seed, options.seed + options.graphs))
    moved = f"{graphs.reordered} reordered, {graphs.kept} tensors kept"
    wrong += _told(f"{graphs.judged} random graphs, {moved}", graphs.wrong)
    wrong += _captured(OpsJudged(device), GraphsJudged(device))
    wrong += _scheduled()
    found = random_scenarios(range(options.seed, options.seed + options.scenarios))
    plans = f"{found.scenarios} random scenarios on the real scheduler, {found.plans} plans"
    return 1 if wrong + _told(plans, found.wrong) else 0


def _captured(ops: OpsJudged, graphs: GraphsJudged) -> int:
    for name in captured.names():
        judge_scenario(ggmltool.load({**captured.read(name), "ggml": "0.26"}), ops, graphs)
    moved = f"{graphs.reordered} reordered, {graphs.kept} tensors kept"
    wrong = _told(f"{ops.asked} nodes of captured graphs, of which it runs {ops.supported}", ops.wrong)
    return wrong + _told(f"{graphs.judged} captured graphs, {moved}", graphs.wrong)


def _scheduled() -> int:
    found = {name: verified(name) for name in names()}
    nodes = sum(verified.compared["nodes"] for verified in found.values())
    wrong = [f"{name}: {difference}" for name, verified in found.items() for difference in verified.differences]
    return _told(f"{len(found)} captured graphs on the real scheduler, plans with {nodes} nodes", wrong)


def _told(what: str, wrong: Sequence[str]) -> int:
    """Print how many there were and the first that differ; how many do."""
    print(f"{what}: {len(wrong)} differ")
    for line in wrong[:_SHOWN]:
        print(f"  {line}")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
