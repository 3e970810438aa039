"""A direct reading of long-form scenario dicts, every shape explicit, independent of the loader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import FIRST_GLU_KEY, FIRST_UNARY_KEY, KEY_NAMES, Op, keys_of
from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from ggmltool.ggml.tensor import FLAGS, contiguous_nb
from ggmltool.scenario.spec import (
    BackendSpec,
    BufferTypeSpec,
    ContextSpec,
    GraphSpec,
    OwnSupports,
    ScenarioSpec,
    SchedulerSpec,
    Step,
    TensorSpec,
)

PROFILES = ("CPU", "BLAS")


def model_of(source: Mapping[str, Any], steps: list[str] | None = None, release: str = DEFAULT.name) -> ScenarioSpec:
    """The model of a long-form scenario as a release; `steps` (as the file writes them) replaces its own."""
    graphs = {name: _graph(name, graph) for name, graph in source["graphs"].items()}
    first = next(iter(graphs), "")
    written = steps or source.get("steps") or [f"reserve {first}", f"alloc {first}"]
    scheduler = source.get("scheduler") or {}
    return ScenarioSpec(
        name=source.get("name", ""),
        backends=[_backend(b) for b in source["backends"]],
        buffer_types=[_buffer_type(name, b) for name, b in (source.get("buffer_types") or {}).items()],
        contexts=[
            ContextSpec(name, c.get("buft"), c.get("usage", "any"), [_tensor(i, t) for i, t in c["tensors"].items()])
            for name, c in (source.get("contexts") or {}).items()
        ],
        graphs=graphs,
        steps=[_step(s) for s in written],
        scheduler=SchedulerSpec(
            scheduler.get("graph_size"), scheduler.get("parallel", False), scheduler.get("op_offload", True)
        ),
        release=RELEASES[release],
    )


def _step(text: str) -> Step:
    kind, _, graph = text.partition(" ")
    return Step(kind, graph or None)  # type: ignore[arg-type]


def _backend(b: Any) -> BackendSpec:
    if isinstance(b, str):
        b = {"name": b}
    b = dict(b)
    name = b.pop("name")
    profile = b.pop("profile", name if name in PROFILES else "custom")
    supports = b.pop("supports", None)
    if supports is not None:
        how, names = next(iter(supports.items()))
        supports = OwnSupports(frozenset(k for n in names for k in keys_of(n)), how == "except")
    never = "offload_min_batch" in b and b["offload_min_batch"] is None
    bufts = b.pop("supports_bufts", None)
    if "features" in b:
        b["features"] = frozenset(b["features"])
    return BackendSpec(
        name=name,
        profile=profile,
        supports=supports,
        never_offloads=never,
        supports_bufts=tuple(bufts) if bufts is not None else None,
        **b,
    )


def _buffer_type(name: str, b: Mapping[str, Any]) -> BufferTypeSpec:
    b = dict(b)
    ops = b.pop("ops", None)
    return BufferTypeSpec(
        name=name, ops=frozenset(k for n in ops for k in keys_of(n)) if ops is not None else None, **b
    )


def _tensor(id: str, t: Mapping[str, Any]) -> TensorSpec:
    type = TYPES[t["type"]]
    ne = tuple(t["ne"]) + (1,) * (4 - len(t["ne"]))
    key = KEY_NAMES.index(t.get("op", "none"))
    params = list(t.get("op_params", ()))
    op = key
    if key >= FIRST_GLU_KEY:
        op, params = int(Op.GLU), params or [key - FIRST_GLU_KEY]
    elif key >= FIRST_UNARY_KEY:
        op, params = int(Op.UNARY), params or [key - FIRST_UNARY_KEY]
    while params and params[-1] == 0:
        params.pop()
    flags = 0
    for name in t.get("flags", ()):
        flags |= FLAGS[name]
    nb = tuple(t["nb"]) if "nb" in t else contiguous_nb(type, ne)
    return TensorSpec(
        id=id,
        name=t.get("name", id),
        type=type,
        ne=ne,
        nb=nb,
        op=op,
        op_params=tuple(params),
        flags=flags,
        src=tuple(t.get("src", ())),
        view_src=t.get("view_src"),
        view_offs=t.get("view_offs", 0),
        backend=t.get("backend"),
    )


def _graph(name: str, g: Mapping[str, Any]) -> GraphSpec:
    return GraphSpec(name, [_tensor(i, t) for i, t in g["nodes"].items()], list(g.get("expand") or g["nodes"]))
