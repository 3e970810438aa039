"""A program's scenario for others: the graph with all it is planned by, without names, values and descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TENSOR = ("type", "ne", "nb", "op", "op_params", "view_offs", "flags", "backend", "at")
"""What a tensor keeps; its id, its name and its values go."""
_META = ("source", "ggml_version", "function")


class Redaction:
    """Renames the tensors of a scenario as they come, t0001, t0002, …, always the same way.

    `names` are the new ids by the old ones. Numbers of blocks go with the names: where layers repeat shows the graph.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        ids = [id for context in document["contexts"].values() for id in context["tensors"]]
        ids += [id for graph in document["graphs"].values() for id in graph["nodes"]]
        self.names = {id: f"t{i:04}" for i, id in enumerate(dict.fromkeys(ids), 1)}
        self._contexts = {name: f"c{i}" for i, name in enumerate(document["contexts"], 1)}

    def document(self) -> dict[str, Any]:
        """The scenario, as it may be shown to others."""
        given, names = self._document, self.names
        out = {key: given[key] for key in ("ggmltool", "ggml", "backends", "buffer_types", "scheduler") if key in given}
        # The orders of a backend's splits name nodes, and tensors or copies that it kept.
        out["backends"] = [
            {**backend, "answers": {**backend["answers"], "orders": list(map(self._order, orders))}}
            if (orders := backend.get("answers", {}).get("orders"))
            else backend
            for backend in given["backends"]
        ]
        scheduler = dict(given.get("scheduler") or {})
        if "copies" in scheduler.get("past", {}):
            copies = {names[id]: of for id, of in scheduler["past"]["copies"].items() if id in names}
            scheduler["past"] = {**scheduler["past"], "copies": copies}
        out["scheduler"] = scheduler
        out["name"] = "a redacted graph"
        out["meta"] = {key: given["meta"][key] for key in _META if key in given.get("meta", {})}
        out["contexts"] = {
            self._contexts[name]: {
                **{key: context[key] for key in ("buft", "usage", "size") if key in context},
                "tensors": {names[id]: self._tensor(t) for id, t in context["tensors"].items()},
            }
            for name, context in given["contexts"].items()
        }
        out["graphs"] = {
            name: {
                "nodes": {names[id]: self._tensor(t) for id, t in graph["nodes"].items()},
                **{key: [names[id] for id in graph[key]] for key in ("expand", "uncomputed") if key in graph},
            }
            for name, graph in given["graphs"].items()
        }
        out["steps"] = [step for step in given.get("steps", ()) if isinstance(step, str)]
        return out

    def _order(self, order: Mapping[str, Any]) -> dict[str, Any]:
        out: dict[str, Any] = {"nodes": [self.names[id] for id in order["nodes"]]}
        if "kept" in order:
            out["kept"] = {
                self.names[until]: [self._kept(t) for t in tensors] for until, tensors in order["kept"].items()
            }
        return out

    def _kept(self, name: str) -> str:
        """A tensor, or a copy of one: BACKEND#TENSOR#NUMBER."""
        backend, _, rest = name.partition("#")
        of, _, number = rest.rpartition("#")
        return self.names.get(name) or f"{backend}#{self.names.get(of, '?')}#{number}"

    def _tensor(self, tensor: Mapping[str, Any]) -> dict[str, Any]:
        out = {key: tensor[key] for key in _TENSOR if key in tensor}
        if "src" in tensor:
            out["src"] = [None if s is None else self.names[s] for s in tensor["src"]]
        if "view_src" in tensor:
            out["view_src"] = self.names[tensor["view_src"]]
        if "in" in tensor:
            out["in"] = self._contexts[tensor["in"]]
        return out


def redacted(document: Mapping[str, Any]) -> dict[str, Any]:
    """A scenario as it may be shown to others; its plan is the same but for names."""
    return Redaction(document).document()
