"""The splits of captured graphs, as a backend's graph_optimize gets them in a scheduler, with a judge's answers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ggmltool.ggml.device import Keep, SplitNodes
from ggmltool.ggml.tensor import Tensor
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import LoadedScenario
from tests.ggml.devices.judges.asking import GraphAnswer, Question, ask_graphs
from tests.ggml.devices.judges.families import Hardware

UseCount = Callable[[Tensor], int]
Compare = Callable[[list[Question], list[GraphAnswer | None]], None]


def ask_captured(path: Path, ggml: str, hardware: Hardware, judge: Path, compare: Compare) -> None:
    """Plan a captured graph with GPUs of a profile, and ask the judge about each split of theirs before it changes."""
    run = LoadedScenario(load_spec(_on_gpus(path, ggml, hardware.profile))).start()
    for backend in run.start().backends:
        if backend.device.graph_optimize is not None:
            backend.device.graph_optimize = _asking(backend.device.graph_optimize, judge, hardware.told, compare)
    for name in run.model.graphs:
        run.alloc(name)


def _asking(
    optimize: Callable[[SplitNodes, UseCount, Keep], list[Tensor]], judge: Path, told: str, compare: Compare
) -> Callable[[SplitNodes, UseCount, Keep], list[Tensor]]:
    def optimize_and_ask(nodes: SplitNodes, use_count: UseCount, keep: Keep) -> list[Tensor]:
        question = Question(nodes, use_count)
        compare([question], ask_graphs(judge, told, [question]))
        return optimize(nodes, use_count, keep)

    return optimize_and_ask


def _on_gpus(path: Path, ggml: str, profile: str) -> dict[str, Any]:
    """The scenario with the devices of a release in place of those that it describes."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        scenario: dict[str, Any] = json.load(file)
    scenario["ggml"] = ggml
    for backend in scenario["backends"]:
        if backend["name"] != "CPU":
            name = backend["name"]
            backend.clear()
            backend |= {"name": name, "profile": profile}
    return scenario


def paths(folder: Path) -> Iterator[Path]:
    """Those with a GPU."""
    for path in sorted(folder.glob("*.json.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            if len(json.load(file)["backends"]) > 1:
                yield path
