"""User assignments that can be seen no more: the scheduler's own stand where they stood, once a graph is split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ggmltool.attach.names import listed
from ggmltool.attach.written import GRAPH, Written
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import Scenario

_ONE_BY_ONE = 16
"""Assignments that are tried alone; what differs then is assigned at once."""


def with_assignments(written: Written, decided: Mapping[str, Any]) -> Written:
    """The scenario of a graph that was allocated already, with the user assignments that make its plan what was
    decided: a tensor that would be on another backend is taken as assigned, the first one first, since it may have
    taken others with it. The tensors are named in the notes.
    """
    assigned: list[str] = []
    for attempt in range(_ONE_BY_ONE + 1):
        elsewhere = _elsewhere(written.document, decided)
        if not elsewhere:
            break
        some = list(elsewhere.items()) if attempt == _ONE_BY_ONE else list(elsewhere.items())[:1]
        for id, backend in some:
            if id in assigned:
                return written
            _tensor(written.document, id)["backend"] = backend
            assigned.append(id)
    if not assigned:
        return written
    note = f"taken as assigned by the program (ggml_backend_sched_set_tensor_backend): {listed(assigned)}"
    return replace(written, notes=(*written.notes, note))


def _elsewhere(document: dict[str, Any], decided: Mapping[str, Any]) -> dict[str, str]:
    """The tensors that a plan has on another backend than was decided: nodes in their order, then leafs."""
    plan = Scenario(load_spec(document)).plan(GRAPH, "alloc").as_dict()
    if not plan["ok"]:
        return {}
    out: dict[str, str] = {}
    for rows in ("nodes", "leafs"):
        ours = {row["id"]: row["backend"] for row in plan[rows]}
        for row in decided[rows]:
            if row["backend"] is not None and ours.get(row["id"], row["backend"]) != row["backend"]:
                out[row["id"]] = row["backend"]
    return out


def _tensor(document: dict[str, Any], id: str) -> dict[str, Any]:
    """What a scenario says of a tensor."""
    found: dict[str, Any] = next(
        tensors[id]
        for tensors in (
            document["graphs"][GRAPH]["nodes"],
            *(context["tensors"] for context in document["contexts"].values()),
        )
        if id in tensors
    )
    return found
