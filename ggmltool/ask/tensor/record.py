"""Everything about one tensor: what it is, where it is, who reads it, and its struct."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from ggmltool.ggml import tensor as tensors
from ggmltool.ggml.buffer import USAGE_NAMES
from ggmltool.ggml.context import Context
from ggmltool.ggml.op import Op
from ggmltool.ggml.sched.reader import hash_node
from ggmltool.inspect.allocator import WatchedAllocator
from ggmltool.inspect.built import no_tensor
from ggmltool.inspect.use_after_free import FreedBy, freed_memory_of
from ggmltool.inspect.watched import Watched
from ggmltool.scenario.tensor_info import BUFFERS, BUFFERS_STEP, EXTRAS, EXTRAS_STEP, addresses, arenas
from ggmltool.show.document import Row, StepDocument, head


class HashNodeRow(Row):
    """What the allocator's hash table has of a tensor: uses and views left, and its place."""

    n_children: int
    n_views: int
    buffer_id: int
    chunk: int
    offset: int
    allocated: bool


class TensorRow(Row):
    """Everything about a tensor: extents `ne`, strides in bytes `nb`, its struct's simulated `address`, backend and
    cause, the place of its data; null where ggml has none. `freed` says why its memory was freed."""

    id: str | None
    name: str
    address: int
    context: str
    op: str
    op_desc: str
    op_params: list[int]
    type: str
    ne: tensors.Dims
    nb: tensors.Dims
    nbytes: int
    layout: list[str]
    flags: list[str]
    backend: str | None
    cause: str | None
    buffer: str | None
    usage: str | None
    chunk: int | None
    offset: int | None
    data: int
    view_src: str | None
    view_offs: int
    src: list[str | None]
    use_count: int
    used_by: list[str]
    copies: list[str]
    hash_node: HashNodeRow | None
    freed: FreedBy | UnsetType = UNSET


class TensorDocument(StepDocument, kw_only=True):
    """`tensor --json`: everything about one tensor."""

    main_table = "tensor"
    view = "tensor"
    beside = ("label", "type_size", "block_size", "gdb")
    """A tensor with what views show beside it: its `label` and the bytes of its type's blocks."""
    kind: Literal["tensor"] = "tensor"
    tensor: TensorRow
    label: str
    type_size: int
    block_size: int
    gdb: GdbFacts


class GdbFacts(Row):
    """What else gdb prints of a tensor: the `fields` that its struct has in a release of ggml, and what stands in them.

    `src`, `view_src`, `buffer` and `extra` are addresses or 0, `flags` those that the release knows. `gpu`: its buffer
    made it one of GGML_BACKEND_GPU.
    """

    fields: tuple[str, ...]
    src: tuple[int, ...]
    view_src: int
    buffer: int
    flags: int
    gpu: bool
    extra: int


class StridesShown(TensorDocument, kw_only=True):
    """A tensor of which one wants to see how its elements lie in memory."""

    view = "strides"


def layout(t: tensors.Tensor) -> list[str]:
    """What ggml's checks say of its strides."""
    checks = (
        ("contiguous", tensors.is_contiguous),
        ("contiguous rows", tensors.is_contiguous_rows),
        ("transposed", tensors.is_transposed),
        ("permuted", tensors.is_permuted),
    )
    return [name for name, holds in checks if holds(t)]


def _find_tensor(name: str, contexts: list[Context], graph: str) -> tuple[tensors.Tensor, Context]:
    """The tensor with this id, else the first with this name. Raises InspectError if there is none."""
    everything = [(t, ctx) for ctx in contexts for t in ctx.tensors]
    for same in ((t, ctx) for called in ("id", "name") for t, ctx in everything if getattr(t, called) == name):
        return same
    raise no_tensor(graph, name, [t.label for t, _ in everything])


def _buffer_address(t: tensors.Tensor, contexts: list[Context], state: Watched) -> int:
    """Where the struct of the tensor's buffer lies, 0 without one: buffers are numbered as they were made.

    Those that nobody lists (an older scheduler keeps them in its allocators) follow in the order of their tensors.
    """
    made = list(state.run.buffers)
    for buffer in state.sched.gallocr.buffers:
        made += [chunk for chunk in (buffer.chunks if buffer is not None else ()) if chunk not in made]
    for owner in (x.buffer for ctx in contexts for x in ctx.tensors):
        if owner is not None and owner not in made:
            made.append(owner)
    return next((BUFFERS + i * BUFFERS_STEP for i, b in enumerate(made) if b is t.buffer), 0)


def tensor_at(watched: WatchedAllocator, name: str, strides: bool = False) -> TensorDocument:
    """A tensor of this id or name, of the graph that was built last or of an older one, with the scheduler's entry for
    it, who reads it, and its node in the allocator's hash table. Raises InspectError if there is none.
    """
    state = watched.at
    built, s, release = state.built(), state.sched, state.run.model.release
    tables = {built.name: built.table} | {n: table for n, (_, table) in reversed(state.run.newest.items())}
    graph = next((g for g, table in tables.items() if any(t.id == name for t in table)), built.name)
    contexts = arenas(state.run, graph, tables[graph])
    where = addresses(contexts, state.run)
    t, context = _find_tensor(name, contexts, graph)
    b, cause, copies = state.assignment(t)
    # The same graph built again lies where it lay, so that its tensors are found in a table made for it before.
    keys = watched.planned.keys if graph == built.name else ()
    key = next((key for key in keys if key.address == where[t.index]), None)
    buffer = tensors.root_of(t).buffer
    flags = t.flags if release.compute_flag else t.flags & ~tensors.FLAG_COMPUTE
    gpu = t.buffer is not None and t.buffer.buft.family in release.gpu_families
    row = TensorRow(
        id=t.id or None,
        name=t.name,
        address=where[t.index],
        context=context.name,
        op=Op(t.op).name,
        op_desc=tensors.op_desc(t),
        op_params=[tensors.signed(w) for w in t.op_params],
        type=t.type.name,
        ne=t.ne,
        nb=t.nb,
        nbytes=t.nbytes,
        layout=layout(t),
        flags=tensors.flag_names(flags),
        backend=s.names[b] if b >= 0 else None,
        cause=cause or None if b >= 0 else None,
        buffer=None if buffer is None else buffer.buft.name,
        usage=None if buffer is None else USAGE_NAMES[buffer.usage],
        chunk=None if buffer is None else buffer.chunk,
        offset=None if buffer is None else t.data - buffer.base,
        data=t.data,
        view_src=None if t.view_src is None else t.view_src.label,
        view_offs=t.view_offs,
        src=[None if x is None else x.label for x in t.src],
        use_count=built.graph.use_count(t),
        used_by=[n.label for n in s.nodes if any(x is t for x in n.src)],
        copies=[copy.name for copy in copies],
        hash_node=HashNodeRow(**asdict(hash_node(watched.gallocr, key.node))) if key is not None else None,
        freed=freed_memory_of(t, state.run.model) or UNSET,
    )
    gdb = GdbFacts(
        tuple(release.struct_fields("ggml_tensor")), tuple(0 if x is None else where[x.index] for x in t.src),
        0 if t.view_src is None else where[t.view_src.index], _buffer_address(t, contexts, state), flags, gpu,
        EXTRAS + t.index * EXTRAS_STEP if gpu else 0,
    )  # fmt: skip
    shown = StridesShown if strides else TensorDocument
    size, block = t.type.type_size, t.type.block_size
    return shown(**head(state.plan), tensor=row, gdb=gdb, label=t.label, type_size=size, block_size=block)
