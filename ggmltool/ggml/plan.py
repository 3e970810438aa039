"""A plan: what the scheduler and the allocator decided for one graph, as a value; and what a scheduler prints of its
assignments, as records, which a view turns into ggml's text.

The rows are frozen and hold nothing that could refer back to them, so the garbage collector need not look at them. They
behave as dataclasses: `dataclasses.asdict` and `pandas.DataFrame(plan.nodes)` take them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import msgspec

from ggmltool.ggml.printable import printable
from ggmltool.ggml.tensor import Dims

_row = msgspec.structs.asdict
_Row = TypeVar("_Row", bound=type[msgspec.Struct])


def _as_dataclass(cls: _Row) -> _Row:
    """Give a struct the fields by which others know a dataclass."""
    alike: Any = make_dataclass(cls.__name__, cls.__struct_fields__)
    cls.__dataclass_fields__ = alike.__dataclass_fields__  # type: ignore[attr-defined]
    return cls


PlanError = tuple[tuple[str, str | None], ...]
"""The fields of `GgmlError.as_dict`, in pairs."""


@_as_dataclass
class SplitPlan(msgspec.Struct, frozen=True, gc=False):
    """A run of nodes `[i_start, i_end)` for one backend; `inputs` are the ids of the tensors copied before it."""

    id: int
    backend: str
    i_start: int
    i_end: int
    inputs: tuple[str, ...]


@_as_dataclass
class NodePlan(msgspec.Struct, frozen=True, gc=False):
    """One node of the graph. `op_desc` is its op, or the function's name for UNARY and GLU (`SILU`), as ggml_op_desc
    has it. Memory fields are None where ggml leaves the tensor without memory."""

    index: int
    id: str
    name: str
    op: str
    op_desc: str
    type: str
    ne: Dims
    nb: Dims
    backend: str | None
    cause: str | None
    split: int
    use_count: int
    src: tuple[str | None, ...]
    buffer: str | None
    usage: str | None
    chunk: int | None
    offset: int | None
    alloc_size: int | None


@_as_dataclass
class LeafPlan(msgspec.Struct, frozen=True, gc=False):
    """One leaf of the graph."""

    index: int
    id: str
    backend: str | None
    buffer: str | None
    usage: str | None
    chunk: int | None
    offset: int | None


@_as_dataclass
class CopyPlan(msgspec.Struct, frozen=True, gc=False):
    """A copy that the scheduler made of tensor `of` (an id) for `backend`; `copy` counts pipeline copies."""

    name: str
    of: str
    backend: str
    copy: int
    buffer: str | None
    chunk: int | None
    offset: int | None


@_as_dataclass
class TallocrPlan(msgspec.Struct, frozen=True, gc=False):
    """An allocator of January 2024 right after a graph was allocated in it: of `backend`, in a buffer of `buffer_size`.

    All are bytes, offsets from the buffer's base: the first aligned address, the end of what was ever in use, and the
    free blocks as (offset, size).
    """

    backend: str
    align_offset: int
    max_size: int
    buffer_size: int
    free_blocks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """The state after a `reserve` or `alloc` step.

    `backends` are (name, buffer type) pairs in priority order; `buffer_sizes` bytes per backend as
    ggml_backend_sched_get_buffer_size gives them; `log` the lines ggml logs in a release build; `error` what stopped
    the step (`ok` is then false); `compute_error` how ggml would abort when it computes what this step planned (`ok` is
    true: the step itself succeeds); `ggml` the release that decided it. `debug_log` are the lines that only a debug
    build logs, None for a release of which they are not kept.

    Of a release whose scheduler measures: `tallocs` are its allocators, `measured` the (backend, bytes) that measuring
    found, `inplace` the ids of nodes that the allocator put into the memory of a source.
    """

    graph: str | None
    step: str
    ok: bool
    backends: tuple[tuple[str, str], ...]
    splits: tuple[SplitPlan, ...] = ()
    nodes: tuple[NodePlan, ...] = ()
    leafs: tuple[LeafPlan, ...] = ()
    copies: tuple[CopyPlan, ...] = ()
    buffer_sizes: tuple[tuple[str, int], ...] = ()
    log: tuple[str, ...] = ()
    error: PlanError | None = None
    ggml: str = ""
    debug_log: tuple[str, ...] | None = None
    tallocs: tuple[TallocrPlan, ...] = ()
    measured: tuple[tuple[str, int], ...] = ()
    inplace: tuple[str, ...] = ()
    compute_error: PlanError | None = None

    def __repr__(self) -> str:
        """What was planned, in a line."""
        counts = f"{len(self.nodes)} nodes, {len(self.splits)} splits" if self.ok else "refused"
        sizes = "".join(f", {name} {nbytes} bytes" for name, nbytes in self.buffer_sizes)
        return f"<Plan {self.step} {printable(self.graph or '')}: {counts}{printable(sizes)}>"

    html: ClassVar[Callable[[Plan], str] | None] = None
    """Who shows a plan in a notebook: the engine knows nothing of that."""

    def _repr_html_(self) -> str | None:
        """What a notebook shows, None for `repr`."""
        show = type(self).html
        return None if show is None else show(self)

    def as_dict(self) -> dict[str, Any]:
        """The plan as the object that `ggmltool plan --json` prints, where it adds a `compute_error`."""
        out: dict[str, Any] = {
            "ggmltool": 1,
            "kind": "plan",
            "ggml": self.ggml,
            "graph": self.graph,
            "step": self.step,
            "ok": self.ok,
            "backends": [{"name": name, "buft": buft} for name, buft in self.backends],
            "splits": [_row(s) | {"inputs": list(s.inputs)} for s in self.splits],
            "nodes": [_row(n) | {"ne": list(n.ne), "nb": list(n.nb), "src": list(n.src)} for n in self.nodes],
            "leafs": [_row(leaf) for leaf in self.leafs],
            "copies": [_row(c) for c in self.copies],
            "buffer_sizes": dict(self.buffer_sizes),
            "log": list(self.log),
        }
        if self.debug_log is not None:
            out["debug_log"] = list(self.debug_log)
        if self.tallocs:
            out["tallocs"] = [_row(t) | {"free_blocks": [list(block) for block in t.free_blocks]} for t in self.tallocs]
            out["inplace"] = list(self.inplace)
        if self.measured:
            out["measured"] = dict(self.measured)
        if self.error is not None:
            out["error"] = dict(self.error)
        return out


class DebugSource(NamedTuple):
    """A source of a node as the debug print shows it; `backend` is None where ggml prints NULL."""

    name: str
    nbytes: int
    backend: str | None
    cause: str


class DebugNode(NamedTuple):
    """A node line. View ops have none."""

    index: int  # type: ignore[assignment]
    op_desc: str
    name: str
    nbytes: int
    backend: str | None
    cause: str
    use_count: int
    compute: bool
    sources: tuple[DebugSource, ...]


class DebugSplit(NamedTuple):
    """A split header, with the node lines that follow it; `inputs` are (name, bytes)."""

    id: int
    backend: str
    inputs: tuple[tuple[str, int], ...]
    nodes: tuple[DebugNode, ...]


class DebugLine(NamedTuple):
    """A line that ggml logs at the same level, before or after the print."""

    text: str


SchedDebug = tuple[DebugSplit | DebugLine, ...]


class PassPrint(NamedTuple):
    """sched_print_assignments after pass `number`. Before the last pass there is no split: `nodes` has all nodes.

    `splits` are those whose header is printed, with their nodes.
    """

    number: int
    nodes: tuple[DebugNode, ...]
    splits: tuple[DebugSplit, ...]
