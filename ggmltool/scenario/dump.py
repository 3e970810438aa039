"""A spec as a scenario in the long form: `load_spec(dump(spec)) == spec`."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any

from ggmltool.ggml.op import FIRST_GLU_KEY, FIRST_UNARY_KEY, KEY_NAMES, N_OP_KEYS, Op
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.ggml.tensor import FLAGS, cut_name
from ggmltool.scenario.devices.rates import dump_rates
from ggmltool.scenario.devices.recorded import dump_answers
from ggmltool.scenario.devices.supports import dump_supports
from ggmltool.scenario.past import dump_past
from ggmltool.scenario.spec import (
    FORMAT,
    BackendSpec,
    BufferTypeSpec,
    ContextSpec,
    GraphSpec,
    ScenarioSpec,
    SchedulerSpec,
    Step,
    TensorSpec,
)
from ggmltool.scenario.versions import has_no_flags, without_unknown

_FAMILIES = {
    int(Op.UNARY): range(FIRST_UNARY_KEY, FIRST_GLU_KEY),
    int(Op.GLU): range(FIRST_GLU_KEY, N_OP_KEYS),
}


def dump(model: ScenarioSpec) -> dict[str, Any]:
    """The scenario, everything explicit, of plain values only (as JSON and YAML have them).

    What the model's release knows nothing of is left out.
    """
    out: dict[str, Any] = {"ggmltool": FORMAT}
    if model.release is not DEFAULT:
        out["ggml"] = model.ggml
    if model.name:
        out["name"] = model.name
    if model.meta:
        out["meta"] = _plain(dict(model.meta))
    out["backends"] = [dump_backend(b) for b in model.backends]
    if model.buffer_types:
        out["buffer_types"] = {b.name: _buffer_type(b) for b in model.buffer_types}
    if model.scheduler != SchedulerSpec():
        out["scheduler"] = _scheduler(model.scheduler)
    out["contexts"] = {c.name: _context(c) for c in model.contexts}
    out["graphs"] = {name: _graph(g) for name, g in model.graphs.items()}
    out["steps"] = [_step(s) for s in model.steps]
    if model.cpu_base_misalign:
        out["cpu_base_misalign"] = model.cpu_base_misalign
    return out if model.release is DEFAULT else _known_to(model, out)


def _known_to(model: ScenarioSpec, out: dict[str, Any]) -> dict[str, Any]:
    known, _ = without_unknown(out, model.release)
    if has_no_flags(model.release):
        for tensors in (
            *(c["tensors"] for c in known["contexts"].values()),
            *(g["nodes"] for g in known["graphs"].values()),
        ):
            for t in tensors.values():
                if "param" in t.pop("flags", ()):
                    t["flags"] = ["param"]
    return known


def dump_backend(spec: BackendSpec) -> dict[str, Any]:
    """A backend as a map, with what the file overrides."""
    out: dict[str, Any] = {"name": spec.name, "profile": spec.profile}
    for key in ("type", "buft", "alignment", "max_size", "row_padding", "host", "events", "memory"):
        value = getattr(spec, key)
        if value is not None:
            out[key] = value
    if spec.supports is not None:
        out["supports"] = dump_supports(spec.supports, op_names)
    if spec.supports_bufts is not None:
        out["supports_bufts"] = list(spec.supports_bufts)
    if spec.offload_min_batch is not None or spec.never_offloads:
        out["offload_min_batch"] = spec.offload_min_batch
    if spec.engine != "auto":
        out["engine"] = spec.engine
    if spec.features is not None:
        out["features"] = sorted(spec.features)
    for key in ("graph_optimize", "max_tensor_size", "copies_async", "sets_async", "like"):
        if getattr(spec, key) is not None:
            out[key] = getattr(spec, key)
    if spec.rates is not None:
        out["rates"] = spec.rates if isinstance(spec.rates, str) else dump_rates(spec.rates)
    if spec.answers is not None:
        out["answers"] = dump_answers(spec.answers)
    return out


def op_names(keys: Iterable[int]) -> list[str]:
    """The names that stand for these op keys; a family's name stands for all of it."""
    left = set(keys)
    for op, members in _FAMILIES.items():
        if op in left and not left.issuperset(members):
            left.discard(op)
        elif op in left:
            left.difference_update(members)
    return [KEY_NAMES[key] for key in sorted(left)]


def _buffer_type(spec: BufferTypeSpec) -> dict[str, Any]:
    out: dict[str, Any] = {
        "device": spec.device,
        "alignment": spec.alignment,
        "row_padding": spec.row_padding,
        "host": spec.host,
    }
    if spec.max_size is not None:
        out["max_size"] = spec.max_size
    if spec.ops is not None:
        out["ops"] = op_names(spec.ops)
    return out


def _scheduler(spec: SchedulerSpec) -> dict[str, Any]:
    out: dict[str, Any] = {"parallel": spec.parallel, "op_offload": spec.op_offload}
    if spec.graph_size is not None:
        out["graph_size"] = spec.graph_size
    if spec.copy_callback:
        out["copy_callback"] = spec.copy_callback
    if spec.past is not None:
        out["past"] = dump_past(spec.past)
    return out


def _context(spec: ContextSpec) -> dict[str, Any]:
    out: dict[str, Any] = {} if spec.buft is None else {"buft": spec.buft}
    if spec.tallocr is not None:
        out["tallocr"] = spec.tallocr
    out["usage"] = spec.usage
    if spec.size is not None:
        out["size"] = spec.size
    out["tensors"] = {t.id: dump_tensor(t) for t in spec.tensors}
    return out


def _graph(spec: GraphSpec) -> dict[str, Any]:
    out = {"nodes": {t.id: dump_tensor(t) for t in spec.nodes}, "expand": list(spec.expand)}
    if spec.uncomputed:
        out["uncomputed"] = [e for e in spec.expand if e in spec.uncomputed]
    return out


def dump_tensor(spec: TensorSpec) -> dict[str, Any]:
    """A tensor or node in long form."""
    out: dict[str, Any] = {"type": spec.type.name, "ne": list(spec.ne), "nb": list(spec.nb)}
    if spec.op:
        out["op"] = Op(spec.op).name.lower()
        out["src"] = list(spec.src)
        out["op_params"] = list(spec.op_params)
    if spec.view_src is not None:
        out["view_src"] = spec.view_src
        out["view_offs"] = spec.view_offs
    if spec.name != cut_name(spec.id):
        out["name"] = spec.name
    if spec.flags:
        out["flags"] = [name for name, bit in FLAGS.items() if spec.flags & bit]
    if spec.backend is not None:
        out["backend"] = spec.backend
    if spec.within is not None:
        out["in"] = spec.within
    if spec.at is not None:
        out["at"] = spec.at
    if spec.data is not None:
        out["data"] = _plain(spec.data.written())
    return out


def _step(step: Step) -> str | dict[str, Any]:
    if step.graph is not None:
        return f"{step.kind} {step.graph}"
    match step.kind:
        case "set":
            return {"set": {id: _plain(data.written()) for id, data in step.data}}
        case "get":
            return {"get": list(step.tensors)}
    return step.kind


def _plain(value: Any) -> Any:
    """What is infinite or no number as the word for it, which every reader of JSON takes."""
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
