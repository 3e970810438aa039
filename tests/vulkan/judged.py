"""The engine's Vulkan of ggml 0.26 and the real one: what they say of ops and of graphs, and where they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from ggmltool.ggml.device import Backend, Device
from ggmltool.ggml.devices.profile import make_buft, make_device
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.ggml.tensor import Tensor
from ggmltool.oracle.vulkan import Vulkan, VulkanAnswer, hardware_of
from ggmltool.scenario.run.placed import OneBackendGraph
from ggmltool.scenario.scenario import LoadedScenario
from tests.vulkan.graphs import graph
from tests.vulkan.ops import VulkanCases

RELEASE = RELEASES["0.26"]
_BATCH = 2000


def same_device(vulkan: Vulkan) -> Device:
    """The engine's device with the hardware of the real one."""
    hardware = hardware_of(vulkan)
    profile = profiles_of(RELEASE)["Vulkan"].but(has=hardware.features, max_tensor_size=hardware.max_tensor_size)
    buft = make_buft(profile.but(alignment=vulkan.alignment, max_size=vulkan.max_size), "Vulkan0", "Vulkan0")
    return make_device(profile, "Vulkan0", buft)


class OpsJudged:
    """Ops asked of both: how many, how many run, for each op which answers there were, and what differs."""

    def __init__(self, vulkan: Vulkan) -> None:
        self.vulkan = vulkan
        self.device = same_device(vulkan)
        self.asked = 0
        self.supported = 0
        self.answers: dict[Op, set[bool]] = {}
        self.wrong: list[str] = []

    def ask(self, ops: Sequence[Tensor]) -> None:
        """Ask of these ops."""
        for op, real in zip(ops, self.vulkan.answers(ops), strict=True):
            self.asked += 1
            self.supported += real.runs
            self.answers.setdefault(Op(op.op), set()).add(real.runs)
            device = self.device
            here = VulkanAnswer(device.supports_op(op), device.buft.get_alloc_size(op), device.offload_op(op))
            if here != real:
                self.wrong.append(f"{described(op)}: {real}, here {here}, {device.why_not(op)}")

    def ask_random(self, count: int, seed: int) -> None:
        """Ask of random ops."""
        cases = iter(VulkanCases(seed))
        while count > 0:
            self.ask(list(islice(cases, min(count, _BATCH))))
            count -= _BATCH


class GraphsJudged:
    """Graphs whose order both made: how many were reordered, how much was to be kept, and what differs."""

    def __init__(self, vulkan: Vulkan) -> None:
        self.vulkan = vulkan
        self.device = same_device(vulkan)
        self.judged = 0
        self.reordered = 0
        self.kept = 0
        self.wrong: list[str] = []

    def judge(self, name: str, nodes: Sequence[Tensor], use_count: Callable[[Tensor], int]) -> None:
        """Let both order the nodes of a split."""
        assert self.device.graph_optimize is not None
        kept: list[tuple[Tensor, Tensor]] = []
        ordered = self.device.graph_optimize(list(nodes), use_count, lambda t, until: kept.append((t, until)))
        real, really_kept = self.vulkan.order(nodes, use_count)
        self.judged += 1
        self.reordered += any(a is not b for a, b in zip(real, nodes, strict=True))
        self.kept += len(really_kept)
        if list(map(id, ordered)) != list(map(id, real)):
            at = next(i for i, (a, b) in enumerate(zip(ordered, real, strict=True)) if a is not b)
            self.wrong.append(f"{name}: node {at} is {real[at].name}, here {ordered[at].name}")
        elif [*_ids(kept)] != [*_ids(really_kept)]:
            told = [(t.name, until.name) for t, until in really_kept]
            self.wrong.append(f"{name}: ggml keeps {told}, here {[(t.name, until.name) for t, until in kept]}")

    def judge_random(self, seeds: range) -> None:
        """Random graphs."""
        for seed in seeds:
            g = graph(seed)
            self.judge(f"graph {seed}", g.nodes, g.use_count)


def judge_scenario(loaded: LoadedScenario, ops: OpsJudged, graphs: GraphsJudged) -> None:
    """Ask of all nodes of a scenario's graphs, and let both order each graph as if it were one split."""
    for name in loaded.model.graphs:
        graph = OneBackendGraph(loaded.compiled, name, Backend("Vulkan0", ops.device), None).graph
        ops.ask(graph.nodes)
        graphs.judge(f"{loaded.model.source} {name}", graph.nodes, graph.use_count)


def _ids(kept: Sequence[tuple[Tensor, Tensor]]) -> Iterator[tuple[int, int]]:
    return ((id(t), id(until)) for t, until in kept)


def described(t: Tensor) -> str:
    """An op with what it is asked about."""
    operands = [(s.type.name, s.ne, s.nb) if s is not None else None for s in (t, *t.src)]
    return f"{Op(t.op).name} {operands} {t.op_params}"
