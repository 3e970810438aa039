"""One scenario on the engine and on the real library, everything compared, then handed to the test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ggmltool
from ggmltool.ask.splits.sched_debug import sched_debug
from ggmltool.ggml.events import Event, Freed, NotReused, Reused
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.releases.release import Rules
from ggmltool.oracle import OracleRun
from ggmltool.oracle import run as run_on_library
from ggmltool.scenario.run.run import Run
from tests.conformance.compare import calls_of, is_crash, trace_of
from tests.conformance.run import judge
from tests.invariants import Violation, check_plan, violations

GPU: dict[str, Any] = {"name": "CUDA0", "profile": "custom"}
"""A device that runs everything, aligned to 128 bytes; the library's stand-in knows no CUDA."""


@dataclass
class Judged:
    """What both did; `plans` are the engine's, of every reserve and alloc step, `events` those of the whole run."""

    run: Run
    plans: list[Plan]
    texts: list[str]
    events: list[Event]
    real: OracleRun
    values: dict[str, Any]

    @property
    def last(self) -> Plan:
        return self.plans[-1]

    def of(self, kind: type) -> list[Any]:
        return [e for e in self.events if isinstance(e, kind)]

    def backend(self, id: str, plan: int = -1) -> str | None:
        return self.row(id, plan).backend

    def cause(self, id: str, plan: int = -1) -> str | None:
        return self.row(id, plan).cause

    def place(self, id: str, plan: int = -1) -> tuple[str | None, int | None, int | None]:
        """Buffer type, chunk and offset of a node, leaf or copy."""
        row = self.row(id, plan)
        return row.buffer, row.chunk, row.offset

    def offset(self, id: str, plan: int = -1) -> int | None:
        return self.row(id, plan).offset

    def row(self, id: str, plan: int = -1) -> Any:
        p = self.plans[plan]
        rows = {r.id: r for r in (*p.nodes, *p.leafs)} | {c.name: c for c in p.copies}
        return rows[id]

    def sizes(self, plan: int = -1) -> dict[str, int]:
        return dict(self.plans[plan].buffer_sizes)

    def splits(self, plan: int = -1) -> list[tuple[str, list[str], list[str]]]:
        """Backend, inputs and nodes of every split."""
        p = self.plans[plan]
        return [(s.backend, list(s.inputs), [n.id for n in p.nodes[s.i_start : s.i_end]]) for s in p.splits]

    def trace(self) -> list[str]:
        """The calls on the devices that computing and copying made."""
        return trace_of(self.events, lambda buft: buft != "CPU")

    @property
    def rules(self) -> Rules:
        """The rules of the release."""
        return self.run.model.release.rules

    def error(self) -> dict[str, str | None]:
        assert self.last.error is not None
        return dict(self.last.error)

    def on(self, id: str) -> tuple[str | None, str | None]:
        """The backend of a tensor, and the label of the rule that gave it."""
        return self.backend(id), self.cause(id)

    def figure(self, what: str) -> Any:
        """What a table of figures names: `sizes`, `splits`, `leafs`, `error KEY`, or something of tensors, which
        a method here or a field of their rows has: `offset x y` is a list, `offset x` a value."""
        name, *ids = what.split()
        if name == "error":
            return self.error()[ids[0]]
        if name == "leafs":
            return [leaf.id for leaf in self.last.leafs]
        if name == "reused":
            return self.of(Reused)
        if name == "not_reused":
            return list(dict.fromkeys(self.of(NotReused)))
        if name == "freed":
            return list(dict.fromkeys(e.tensor for e in self.of(Freed)))
        if name == "hazards":
            return [v.kind for v in hazards(self)]
        if not ids:
            return getattr(self, name)()
        found = [getattr(self, name)(id) if hasattr(self, name) else getattr(self.row(id), name) for id in ids]
        return found if len(ids) > 1 else found[0]

    def check(self, figures: Mapping[str, Any]) -> None:
        """Compares all that a table expects."""
        found = {what: self.figure(what) for what in figures}
        assert found == dict(figures), {what: is_ for what, is_ in found.items() if is_ != figures[what]}


Judging = Callable[..., "Judged"]
"""`judged` for one release."""


def judged(
    release: str,
    source: Mapping[str, Any],
    steps: Sequence[Any] | None = None,
    *,
    debug: bool = True,
    hazards: bool = False,
) -> Judged:
    """Runs a scenario on both, as a release, and compares all plans, the debug text, and the calls on the devices.

    Every allocated plan is checked by `tests.invariants` as well, unless ggml's own hazards are what is tested.
    """
    document = {"ggmltool": 1, **source}
    if steps is not None:
        document["steps"] = list(steps)
    loaded = ggmltool.load(document, ggml=release)
    events: list[Event] = []
    computing = any(step.kind in ("compute", "set", "get") for step in loaded.model.steps)
    run = loaded.start(events.append, debug=debug, values=computing)
    values: dict[str, Any] = {}
    for step in loaded.model.steps:
        result = run.step(step)
        if isinstance(result, dict):
            values.update(result)
        if run.plans and not run.plans[-1].ok:
            break
    texts = [sched_debug(record, 2, causes=False) for record in run.debug_records]
    real = run_on_library(loaded.model, 2 if debug else 0)
    assert not any(is_crash(plan) for plan in real.plans), real.plans[-1]["error"]
    raw = [text.encode("utf-8", "surrogateescape") for text in texts]
    assert judge([p.as_dict() for p in run.plans], raw, real) == []
    out = Judged(run, run.plans, texts, events, real, values)
    if computing and out.last.ok:
        assert out.trace() == calls_of(real.trace)
    if not hazards:
        for plan in run.plans:
            if plan.ok and plan.step == "alloc":
                check_plan(loaded.model, plan)
    return out


def hazards(of: Judged, plan: int = -1) -> list[Violation]:
    """What `tests.invariants` finds in a plan, the known hazards among it."""
    return violations(of.run.model, of.plans[plan])
