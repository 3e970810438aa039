"""Everything about one tensor: what it is, where it is, who reads it, and its struct."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ggmltool.ggml.context import Context
from ggmltool.ggml.sched.reader import hash_node
from ggmltool.ggml.state import HashNodeState
from ggmltool.ggml.tensor import FLAG_COMPUTE, Tensor
from ggmltool.inspect.allocator import WatchedAllocator
from ggmltool.inspect.errors import InspectError
from ggmltool.inspect.use_after_free import FreedBy, freed_memory_of
from ggmltool.inspect.watched import Watched
from ggmltool.scenario.errors import nearest, quoted
from ggmltool.scenario.tensor_info import BUFFERS, BUFFERS_STEP, EXTRAS, EXTRAS_STEP, addresses, arenas


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """A tensor and what others know of it.

    `address` is where its struct lies, `used_by` the nodes it is a source of. `node` is the allocator's hash node,
    None for a tensor that the allocator does not know; `backend` None where the scheduler gave none. `flags` are those
    that the release of ggml knows. `freed` says why its memory was freed, None if it was not.
    """

    tensor: Tensor
    flags: int
    address: int
    context: str
    backend: str | None
    cause: str
    use_count: int
    used_by: tuple[str, ...]
    copies: tuple[str, ...]
    node: HashNodeState | None
    freed: FreedBy | None


@dataclass(frozen=True, slots=True)
class GdbFacts:
    """What else gdb prints of a tensor: the `fields` that its struct has in a release of ggml, and what stands in them.

    `pointer` gives a tensor's address, `buffer` and `extra` are addresses or 0, `flags` those that the release knows.
    `gpu`: its buffer made it one of GGML_BACKEND_GPU.
    """

    fields: Sequence[str]
    pointer: Callable[[Tensor], int]
    buffer: int
    flags: int
    gpu: bool
    extra: int


def _find_tensor(name: str, contexts: list[Context], graph: str) -> tuple[Tensor, Context]:
    """The tensor with this id, else the first with this name. Raises InspectError if there is none."""
    everything = [(t, ctx) for ctx in contexts for t in ctx.tensors]
    for t, ctx in everything:
        if t.id == name:
            return t, ctx
    for t, ctx in everything:
        if t.name == name:
            return t, ctx
    near = nearest(name, [t.label for t, _ in everything])
    raise InspectError(
        f"graph {graph} has no tensor {quoted(name)}" + (f"; did you mean {quoted(near)}?" if near else "")
    )


def _buffer_address(t: Tensor, contexts: list[Context], state: Watched) -> int:
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


class Found(NamedTuple):
    """A tensor, the context that it is in, all contexts, the addresses of tensors by index, and the graph that all of
    them were built for."""

    tensor: Tensor
    context: Context
    contexts: list[Context]
    where: Mapping[int, int]
    graph: str


def find(watched: WatchedAllocator, name: str) -> Found:
    """The tensor of this id or name, of the graph that was built last or of an older one. Raises InspectError if there
    is none.
    """
    state = watched.at
    built = state.built()
    tables = {built.name: built.table} | {n: table for n, (_, table) in reversed(state.run.newest.items())}
    graph = next((g for g, table in tables.items() if any(t.id == name for t in table)), built.name)
    contexts = arenas(state.run, graph, tables[graph])
    return Found(*_find_tensor(name, contexts, graph), contexts, addresses(contexts, state.run), graph)


def facts_of(watched: WatchedAllocator, found: Found) -> TensorFacts:
    """A tensor with the scheduler's entry for it, who reads it, and its node in the allocator's hash table."""
    t, state = found.tensor, watched.at
    s, address = state.sched, found.where[t.index]
    b, cause, copies = state.assignment(t)
    # The same graph built again lies where it lay, so that its tensors are found in a table made for it before.
    keys = watched.planned.keys if found.graph == state.built().name else ()
    key = next((key for key in keys if key.address == address), None)
    return TensorFacts(
        t,
        _flags(t, state),
        address,
        found.context.name,
        s.names[b] if b >= 0 else None,
        cause if b >= 0 else "",
        state.built().graph.use_count(t),
        tuple(n.label for n in s.nodes if any(x is t for x in n.src)),
        tuple(copy.name for copy in copies),
        hash_node(watched.gallocr, key.node) if key is not None else None,
        freed_memory_of(t, state.run.model),
    )


def gdb_facts_of(watched: WatchedAllocator, found: Found) -> GdbFacts:
    """What else gdb prints of a tensor."""
    t, state, release = found.tensor, watched.at, watched.at.run.model.release
    gpu = t.buffer is not None and t.buffer.buft.family in release.gpu_families
    extra = EXTRAS + t.index * EXTRAS_STEP if gpu else 0
    buffer = _buffer_address(t, found.contexts, state)
    return GdbFacts(
        release.struct_fields("ggml_tensor"), lambda t: found.where[t.index], buffer, _flags(t, state), gpu, extra
    )


def _flags(t: Tensor, state: Watched) -> int:
    """The flags that this ggml has."""
    return t.flags if state.run.model.release.compute_flag else t.flags & ~FLAG_COMPUTE
