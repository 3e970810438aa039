"""A spec as a scenario in the long form: `load_spec(dump(spec)) == spec`."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any

from ggmltool.ggml.devices.profile import Profile
from ggmltool.ggml.op import FIRST_GLU_KEY, FIRST_UNARY_KEY, KEY_NAMES, N_OP_KEYS, Op
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.ggml.tensor import FLAGS, cut_name
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.scenario.devices.rates import OwnRates, dump_rates
from ggmltool.scenario.devices.supports import dump_answers, dump_supports
from ggmltool.scenario.past import dump_past
from ggmltool.scenario.spec import (
    FORMAT,
    BackendKeys,
    BackendSpec,
    BufferTypeSpec,
    ContextSpec,
    ScenarioSpec,
    SchedulerSpec,
    Step,
    TensorSpec,
)
from ggmltool.scenario.values import key_names
from ggmltool.scenario.versions import has_no_flags, without_unknown

_FAMILIES = {int(Op.UNARY): range(FIRST_UNARY_KEY, FIRST_GLU_KEY), int(Op.GLU): range(FIRST_GLU_KEY, N_OP_KEYS)}


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
        scheduler = model.scheduler
        out["scheduler"] = _given(scheduler, "parallel", "op_offload", "graph_size")
        if scheduler.copy_callback:
            out["scheduler"]["copy_callback"] = scheduler.copy_callback
        if scheduler.past is not None:
            out["scheduler"]["past"] = dump_past(scheduler.past)
    out["contexts"] = {c.name: _context(c) for c in model.contexts}
    out["graphs"] = {}
    for name, g in model.graphs.items():
        out["graphs"][name] = {"nodes": {t.id: dump_tensor(t) for t in g.nodes}, "expand": list(g.expand)}
        if g.uncomputed:
            out["graphs"][name]["uncomputed"] = [e for e in g.expand if e in g.uncomputed]
    out["steps"] = [_step(s) for s in model.steps]
    if model.cpu_base_misalign:
        out["cpu_base_misalign"] = model.cpu_base_misalign
    if model.release is DEFAULT:
        return out
    out, _ = without_unknown(out, model.release)
    if has_no_flags(model.release):
        contexts, graphs = out["contexts"].values(), out["graphs"].values()
        for tensors in (*(c["tensors"] for c in contexts), *(g["nodes"] for g in graphs)):
            for t in tensors.values():
                if "param" in t.pop("flags", ()):
                    t["flags"] = ["param"]
    return out


def dump_backend(spec: BackendSpec) -> dict[str, Any]:
    """A backend as a map, with what the file overrides."""
    out: dict[str, Any] = {}
    for key in key_names(BackendKeys):
        match key, getattr(spec, key):
            case "offload_min_batch", None if spec.never_offloads:
                out[key] = None
            case (_, None) | ("engine", "auto"):
                pass
            case "supports", supports:
                out[key] = dump_supports(supports, op_names)
            case "features", features:
                out[key] = sorted(features)
            case "rates", OwnRates() as rates:
                out[key] = dump_rates(rates)
            case "answers", answers:
                out[key] = dump_answers(answers)
            case _, value:
                out[key] = list(value) if isinstance(value, tuple) else value
    return out


def device_map(spec: BackendSpec, profile: Profile) -> dict[str, Any]:
    """A backend as a map of a scenario with everything said that its profile would say; sizes are bytes."""
    said: dict[str, Any] = {"type": profile.type}
    if (spec.buft or profile.buft or spec.name) == spec.name:
        said |= {"alignment": profile.alignment, "row_padding": profile.row_padding, "host": profile.host}
        if profile.max_size != SIZE_MAX:
            said["max_size"] = profile.max_size
    else:
        said["buft"] = profile.buft
    said["offload_min_batch"] = "never" if profile.offload_min_batch is None else profile.offload_min_batch
    said["events"] = profile.events
    if profile.features:
        said["features"] = [feature for feature in profile.features if feature in profile.has]
    if profile.graph_optimize is not None:
        said["graph_optimize"] = True
    if profile.max_tensor_size != SIZE_MAX:
        said["max_tensor_size"] = profile.max_tensor_size
    given = dump_backend(spec)
    if spec.never_offloads:
        given["offload_min_batch"] = "never"
    return {"name": given.pop("name"), "profile": given.pop("profile"), **said, **given}


def op_names(keys: Iterable[int]) -> list[str]:
    """The names that stand for these op keys; a family's name stands for all of it."""
    left = set(keys)
    for op, members in _FAMILIES.items():
        if op in left and not left.issuperset(members):
            left.discard(op)
        elif op in left:
            left.difference_update(members)
    return [KEY_NAMES[key] for key in sorted(left)]


def _given(spec: object, *keys: str) -> dict[str, Any]:
    """Those of a spec's fields that are not None."""
    return {key: value for key in keys if (value := getattr(spec, key)) is not None}


def _buffer_type(spec: BufferTypeSpec) -> dict[str, Any]:
    out = _given(spec, "device", "alignment", "row_padding", "host", "max_size")
    return out if spec.ops is None else out | {"ops": op_names(spec.ops)}


def _context(spec: ContextSpec) -> dict[str, Any]:
    return _given(spec, "buft", "tallocr", "usage", "size") | {"tensors": {t.id: dump_tensor(t) for t in spec.tensors}}


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
    out |= _given(spec, "backend")
    if spec.within is not None:
        out["in"] = spec.within
    out |= _given(spec, "at")
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
