"""A program's graph as a scenario, with its devices' answers; what its scheduler decided; what others may see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

from msgspec import structs

from ggmltool.attach.devices.answered import SnapshotQuestions, orders_of, recorded
from ggmltool.attach.state import Answers, Snapshot, past_of
from ggmltool.attach.write.graph import (
    VIEWS,
    ProcessWriter,
    ScenarioNames,
    backends_of,
    buffer_types_of,
    clean,
    listed,
    names_of,
    unique,
)
from ggmltool.ggml.devices.recorded import RecordedAnswers
from ggmltool.ggml.errors import Error
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.sched.plans import rows_of
from ggmltool.ggml.tensor import cut_name
from ggmltool.ggml.version import SCHED_MAX_COPIES
from ggmltool.scenario.devices.supports import dump_answers
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.past import dump_past
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import FORMAT
from ggmltool.sources.graph_writer import without_controls
from ggmltool.sources.llama.capture.capture import scenario_text
from ggmltool.state.errors import AttachError

GRAPH = "main"
"""What the graph of a program is called."""


@dataclass(frozen=True, slots=True)
class Written:
    """A scenario document with what ties it to the process: `ids` by the address of a tensor, the `names` of backends
    and buffer types, the `step` that stands for the call ("reserve" or "alloc"), `notes` in words."""

    document: dict[str, Any]
    ids: Mapping[int, str]
    names: ScenarioNames
    step: str
    notes: tuple[str, ...] = ()


def written(
    before: Snapshot, answers: Answers | None, after: Snapshot | None = None, later: Answers | None = None
) -> Written:
    """The scenario of a snapshot from before a call of the scheduler, with what its devices answered (None: they were
    not asked). `later` is what they answered `after` it, of the sizes of copies; then there is also seen in which order
    they left the nodes. Raises AttachError for a graph that no scenario can say: an op, a type or a result that is not
    known."""
    names = names_of(before)
    writer = ProcessWriter(before, names)
    ids = writer.graph(GRAPH)
    step = "reserve" if "reserve" in (before.function or "") else "alloc"
    backends = backends_of(before, names, answers)
    contexts = _contexts(writer)
    meta: dict[str, Any] = {"source": "attach", "ggml_version": clean(before.version)}
    if before.function:
        meta["function"] = before.function
    for backend, device in ((b, before.devices.get(b.device)) for b in before.backends):
        if device is not None and device.description:
            meta[f"device of {clean(backend.name or '?')}"] = clean(device.description)
    used = {b["buft"] for b in backends if "buft" in b}
    used |= {name for b in backends for name in b.get("supports_bufts", ())}
    used |= {c["buft"] for c in contexts.values() if "buft" in c}
    document: dict[str, Any] = {
        "ggmltool": FORMAT,
        "ggml": before.release,
        "name": f"a graph at {before.function or 'a moment of the program'}",
        "meta": meta,
        "backends": backends,
    }
    further = buffer_types_of(before, names, used, answers)
    if further:
        document["buffer_types"] = further
    document |= {
        "scheduler": _scheduler(before, names, ids),
        "contexts": contexts,
        "graphs": writer.graphs,
        "steps": [f"{step} {GRAPH}"],
    }
    if answers is not None:
        said_of = recorded(SnapshotQuestions(before, names.bufts, writer.given, writer.originals), answers)
        if after is not None and later is not None:
            sizes = recorded(SnapshotQuestions(after, names.bufts, writer.given), later)
            said_of = [
                RecordedAnswers(a.ops, {buft: {**b.sizes.get(buft, {}), **own} for buft, own in a.sizes.items()})
                for a, b in zip(said_of, sizes, strict=True)
            ]
        split = before if writer.is_allocated else after
        orders = ((),) * len(backends) if split is None else orders_of(writer.nodes, split, ids)
        for entry, said, order in zip(backends, said_of, orders, strict=True):
            entry["answers"] = dump_answers(replace(said, orders=order))
    if before.lacks_cpu:
        backends.append({"name": unique("CPU", "", {*names.backends, *names.bufts.values()}), "profile": "CPU"})
    notes = [f"not read: {what}" for what in before.unread]
    if answers is not None and answers.left_out:
        notes.append(
            f"not asked for want of time: {answers.left_out} questions to the devices; known devices answer them"
        )
    if writer.is_allocated:
        notes.append("the graph was allocated before: user assignments cannot be told from the scheduler's own")
    return Written(document, ids, names, step, tuple(notes))


def scenario_file(document: dict[str, Any], folder: Path | None = None) -> bytes:
    """The text of a scenario that was loaded from it, with the files that it names in a folder. Raises AttachError."""
    data = scenario_text(document).encode()
    try:
        load_spec(Path("scenario.json"), folder, BytesIO(data))
    except Error as error:
        raise AttachError(
            f"not written: the scenario of this graph cannot be loaded ({error}). This is a defect of ggmltool's: "
            "please report it"
        ) from None
    return data


def _contexts(writer: ProcessWriter) -> dict[str, Any]:
    """The contexts, views that lie in those of others last; tensors of weights in the order of their making."""
    made = dict(sorted(writer.contexts.items(), key=lambda item: (item[0] == VIEWS, item[0] == writer.inputs)))
    for context in made.values():
        if context.get("usage") == "weights":
            tensors = context["tensors"]
            # By where a tensor lies, a view behind what it views.
            roots = {id: tensors.get(t.get("view_src", id), t) for id, t in tensors.items()}
            order = sorted(tensors, key=lambda id: (roots[id].get("at", 0), "view_src" in tensors[id]))
            context["tensors"] = {id: tensors[id] for id in order}
    return made


def _scheduler(before: Snapshot, names: ScenarioNames, ids: Mapping[int, str]) -> dict[str, Any]:
    sched = before.sched
    if sched.n_copies not in (1, SCHED_MAX_COPIES):
        raise AttachError(
            f"the scheduler keeps {sched.n_copies} copies of every input, and ggmltool plans {SCHED_MAX_COPIES}: "
            "that ggml was built with another GGML_SCHED_MAX_COPIES"
        )
    out: dict[str, Any] = {"graph_size": sched.graph_size}
    if sched.n_copies > 1:
        out["parallel"] = True
    if not sched.op_offload:
        out["op_offload"] = False
    if sched.callback_copy:
        out["copy_callback"] = "used_experts"
    if sched.galloc.node_allocs or sched.galloc.leaf_allocs or sched.node_backend_ids or sched.splits:
        out["past"] = dump_past(past_of(before, names.backends, ids))
    return out


_ONE_BY_ONE = 16
"""Assignments that are tried alone; what differs then is assigned at once."""


def with_assignments(written: Written, decided: Mapping[str, Any]) -> Written:
    """The scenario of a graph that was allocated already, with the user assignments that make its plan what was
    decided: a tensor that would be on another backend is taken as assigned, the first one first, since it may have
    taken others with it. The tensors are named in the notes."""
    document, assigned = written.document, list[str]()
    tensors = dict(document["graphs"][GRAPH]["nodes"])
    for context in document["contexts"].values():
        tensors |= context["tensors"]
    for attempt in range(_ONE_BY_ONE + 1):
        elsewhere = _elsewhere(document, decided)
        if not elsewhere:
            break
        some = list(elsewhere.items()) if attempt == _ONE_BY_ONE else list(elsewhere.items())[:1]
        for id, backend in some:
            if id in assigned:
                return written
            tensors[id]["backend"] = backend
            assigned.append(id)
    if not assigned:
        return written
    note = f"taken as assigned by the program (ggml_backend_sched_set_tensor_backend): {listed(assigned)}"
    return replace(written, notes=(*written.notes, note))


def _elsewhere(document: dict[str, Any], decided: Mapping[str, Any]) -> dict[str, str]:
    """The tensors that a plan has on another backend than was decided: nodes in their order, then leafs."""
    plan = LoadedScenario(load_spec(document)).plan(GRAPH, "alloc").as_dict()
    if not plan["ok"]:
        return {}
    out: dict[str, str] = {}
    for rows in ("nodes", "leafs"):
        ours = {row["id"]: row["backend"] for row in plan[rows]}
        for row in decided[rows]:
            if row["backend"] is not None and ours.get(row["id"], row["backend"]) != row["backend"]:
                out[row["id"]] = row["backend"]
    return out


def decided(
    after: Snapshot, ids: Mapping[int, str], names: ScenarioNames, step: str = "alloc", answers: Answers | None = None
) -> dict[str, Any]:
    """What was decided, after a call of the scheduler, as `Plan.as_dict` has it. Raises AttachError. `ids` are those of
    the scenario by address, `names` its backends and buffer types; tensors have as much of their names as a scenario
    keeps. `alloc_size` is None where it was not asked."""
    state = after.state(ids)
    tensors = {a: structs.replace(t, name=cut_name(without_controls(t.name))) for a, t in state.tensors.items()}

    def size_of(address: int) -> int | None:
        buffer = after.buffers.get(after.tensors[address].buffer)
        return None if answers is None or buffer is None else answers.sizes.get((address, buffer.buft))

    backends = tuple((name, names.bufts[b]) for name, b in zip(names.backends, after.sched.bufts, strict=True))
    try:
        rows = rows_of(structs.replace(state, tensors=tensors), names.backends, names.bufts, size_of)
    except KeyError as missing:
        (address,) = missing.args
        raise AttachError(f"the scheduler names a tensor at {address:#x}, where nothing can be read") from None
    return Plan(None, step, True, backends, *rows, ggml=after.release).as_dict()


_TENSOR = ("type", "ne", "nb", "op", "op_params", "view_offs", "flags", "backend", "at")
"""What a tensor keeps; its id, its name and its values go."""
_META = ("source", "ggml_version", "function")


class Redaction:
    """Renames the tensors of a scenario as they come, t0001, t0002, …, always the same way. `names` are the new ids by
    the old ones. Numbers of blocks go with the names: where layers repeat shows the graph."""

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
