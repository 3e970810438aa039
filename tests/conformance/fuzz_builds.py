"""Random steps over several builds of several graphs: `builds_scenario(seed)` is always the same for the same seed."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.conformance.fuzz import Generator, Spec


class Builds(Generator):
    """Two to four graphs and steps that go back to older builds of them."""

    def make_graphs(self) -> Spec:
        rng = self.rng
        graphs: Spec = {}
        for i in range(rng.choice((2, 2, 3, 4))):
            if graphs and self.chance(0.3):
                graphs[f"g{i}"] = self.mutated(rng.choice(list(graphs.values())))
            else:
                graphs[f"g{i}"] = self.make_graph(rng.choice((1, 2, 3, 5, 12, 25)))
        return graphs

    def make_computing_steps(self, graphs: Spec) -> list[Any]:
        rng = self.rng
        steps: list[Any] = []
        built: dict[str, bool] = {}
        allocated = False
        for _ in range(rng.choice((4, 6, 9, 12, 16))):
            name = rng.choice(list(built)) if built and self.chance(0.4) else rng.choice(list(graphs))
            kind = rng.choices(("reserve", "alloc", "compute", "reset", "set", "get"), (2, 5, 5, 3, 2, 3))[0]
            if kind == "alloc" and allocated and self.chance(0.97):
                steps.append("reset")
            if kind == "reset":
                steps.append("reset")
                allocated = False
            elif kind in ("set", "get"):
                steps += self._access(kind, graphs, built)
            else:
                steps.append(f"{kind} {name}")
                if kind != "compute" or not allocated:
                    built[name] = kind != "reserve"
                allocated = kind != "reserve"
        return steps

    def _access(self, kind: str, graphs: Spec, built: dict[str, bool]) -> list[Any]:
        nodes = [id for name, has_memory in built.items() for id in graphs[name]["nodes"] if has_memory]
        given = {id: t for c in self.contexts.values() for id, t in c["tensors"].items() if t["type"] == "f32"}
        if kind == "set" and given:
            id = self.rng.choice(list(given))
            return [{"set": {id: {"uniform": {"seed": self.rng.randrange(100), "low": -1, "high": 1}}}}]
        known = nodes if nodes and self.chance(0.9) else [*nodes, *given]
        return [{"get": self.rng.sample(known, min(len(known), self.rng.randint(1, 3)))}] if known else []


def builds_scenario(seed: int, inputs_anywhere: bool = False) -> Spec:
    """The scenario of a seed."""
    out = Builds(Random(f"builds {seed}"), True, True, inputs_anywhere).scenario(seed)
    out["name"] = f"builds {seed}"
    return out
