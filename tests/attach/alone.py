"""A program that computes without a scheduler: random graphs with a graph allocator alone.

    python -m tests.attach.alone --ggml 0.26 --seeds 0:3

It prints where each tensor of each graph lies. Every other seed is on the CPU, the others on a device of their own.
"""

from __future__ import annotations

import ctypes
import json
from typing import Any

import ggmltool
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.oracle.lib import load
from ggmltool.oracle.mock import World
from ggmltool.oracle.run import Emit, Runner, ScenarioRun
from ggmltool.oracle.structs import CGraphStruct, Tensor
from ggmltool.scenario.spec import ScenarioSpec, Step
from tests.attach.on_library import random_scenario, read_seeds, say, seeds_parser
from tests.conformance.run import planning_only


class AloneRun(ScenarioRun):
    """One scenario whose graphs are allocated by a graph allocator over the first backend's buffers."""

    def start(self) -> None:
        """Makes the allocator, too."""
        bufts = (ctypes.c_void_p * 1)(self.world.order[0].buft.address)
        self.gallocr = self.lib.ggml_gallocr_new_n(bufts, 1)
        super().start()

    def close(self) -> None:
        """Frees everything."""
        self.lib.ggml_gallocr_free(self.gallocr)
        for buffer in self.buffers:
            self.lib.ggml_backend_buffer_free(buffer)
        self.builder.close()

    def _new_scheduler(self) -> None:
        """There is none."""

    def step(self, step: Step, emit: Emit) -> bool:
        """Reserves or allocates a graph."""
        if step.graph is None or step.kind not in ("reserve", "alloc"):
            return True
        graph = self._build(step.graph)
        act = self.lib.ggml_gallocr_reserve if step.kind == "reserve" else self.lib.ggml_gallocr_alloc_graph
        ok = act(self.gallocr, graph)
        g = CGraphStruct.from_address(graph)
        emit("places", [ok, *(Tensor.from_address(node).buffer is not None for node in g.nodes[: g.n_nodes])])
        return True


class AloneRunner(Runner):
    """Runs them."""

    def run(self, model: ScenarioSpec, emit: Emit) -> None:
        """Runs all steps of the model."""
        run = AloneRun(self, model, World(self.callbacks, model, False))
        run.start()
        for step in model.steps:
            run.step(step, emit)
        run.close()


def alone_scenario(seed: int, wide: bool = False) -> dict[str, Any]:
    """The scenario of a seed with all on one backend."""
    found = random_scenario(seed, wide)
    first = found["backends"][0]
    own = seed % 2 == 1 and isinstance(first, dict) and "buft" not in first
    device = {k: v for k, v in first.items() if k not in ("supports", "supports_bufts")} if own else "CPU"
    name = first["name"] if own else "CPU"
    out = {**found, "backends": [device, "CPU"] if own else ["CPU"]}
    out.pop("buffer_types", None)
    out.pop("scheduler", None)
    for context in out["contexts"].values():
        if "buft" in context:
            context["buft"] = name
    tensors = [c["tensors"] for c in out["contexts"].values()] + [g["nodes"] for g in out["graphs"].values()]
    for tensor in (t for of in tensors for t in of.values() if isinstance(t, dict)):
        tensor.pop("backend", None)
    return out


def main() -> None:
    options = seeds_parser(__doc__, "0:3").parse_args()
    runner = AloneRunner(load(RELEASES[options.ggml]), values=False, debug=0)
    for seed in read_seeds(options.seeds):
        loaded = ggmltool.load(alone_scenario(seed, options.wide), ggml=options.ggml)
        say(f"seed {seed}")
        runner.run(planning_only(loaded), lambda _, value: say(json.dumps(value)))


if __name__ == "__main__":
    main()
