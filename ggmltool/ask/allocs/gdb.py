"""The tables of allocator and scheduler, struct by struct as gdb prints them.

`chunked` is whether the buffers of the release that is looked at have chunks: an offset has a chunk beside it then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ggmltool.ask.allocs.record import AllocStory, AllocTable, FreeBlocks, TallocrState
from ggmltool.ask.answer import Answer
from ggmltool.ggml.alloc.common import INVALID, TensorAlloc
from ggmltool.ggml.releases.table import BY_NAME
from ggmltool.ggml.tensor import MAX_SRC
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.inspect.allocator import AllocRow
from ggmltool.show.gdb import Printed, Value, gdb_session
from ggmltool.show.table import Style
from ggmltool.state.errors import WrongUse


def allocs(answer: Answer[AllocTable], style: Style) -> str:
    """The plan, and the planners behind it."""
    record = answer.facts
    release = BY_NAME[record.ggml]
    chunked = release.rules.max_chunks > 1
    prints = tallocr_prints(record.tallocrs, chunked)
    if not release.reserves:
        return gdb_session(prints, style.width)
    plan = alloc_prints(record.nodes, record.leafs, len(record.bufts), chunked)
    return gdb_session([*plan, *prints], style.width)


def free_blocks(answer: Answer[FreeBlocks], style: Style) -> str:
    """The planners as they stood when the tensor had got its memory."""
    chunked = BY_NAME[answer.facts.ggml].rules.max_chunks > 1
    return gdb_session(tallocr_prints(answer.facts.tallocrs, chunked), style.width)


def story(answer: Answer[AllocStory], style: Style) -> str:
    """Raises WrongUse: gdb shows structs, no story."""
    raise WrongUse("--trace and --format gdb are different views; choose one.")


def alloc_prints(
    nodes: Sequence[AllocRow], leafs: Sequence[AllocRow], n_buffers: int, chunked: bool
) -> Iterator[Printed]:
    """The plan of a graph allocator: its counts, node_allocs and leaf_allocs."""
    yield Printed("galloc->n_buffers", str(n_buffers))
    yield Printed("galloc->n_nodes", str(len(nodes)))
    yield Printed("galloc->n_leafs", str(len(leafs)))
    for i, row in enumerate(nodes):
        places = [place for _, place in row.sources]
        src: list[Value] = [_tensor_alloc(p, chunked) for p in (*places, *[INVALID] * (MAX_SRC - len(places)))]
        yield Printed(f"galloc->node_allocs[{i}]", {"dst": _tensor_alloc(row.place, chunked), "src": src}, row.tensor)
    for i, row in enumerate(leafs):
        yield Printed(f"galloc->leaf_allocs[{i}]", {"leaf": _tensor_alloc(row.place, chunked)}, row.tensor)


def tallocr_prints(tallocrs: Iterable[TallocrState], chunked: bool) -> Iterator[Printed]:
    """The planners, with their chunks where there are any.

    Where something is left over behind the free blocks, those alone are shown.
    """
    for name, buft, alignment, chunks, unused in tallocrs:
        if chunked:
            yield Printed(f"{name}->n_chunks", str(len(chunks)), buft)
        for c, chunk in enumerate(chunks):
            free = chunk.free_blocks
            n_free, most = {"n_free_blocks": str(len(free))}, {"max_size": str(chunk.max_size)}
            array: list[Value] = [{"offset": str(block.offset), "size": str(block.size)} for block in free]
            array += [{"offset": "0", "size": "0"}] * (unused[c] or 0)
            blocks = {"free_blocks": array}
            if chunked:
                yield Printed(f"*{name}->chunks[{c}]", {**blocks, **n_free, **most}, buft)
            else:
                yield Printed(f"*{name}", {"alignment": str(alignment), **n_free, **blocks, **most}, buft)


def _tensor_alloc(place: TensorAlloc, chunked: bool) -> Value:
    at = str(place.offset % (SIZE_MAX + 1))
    where: dict[str, Value] = {"addr": {"chunk": str(place.chunk), "offset": at}} if chunked else {"offset": at}
    return {"buffer_id": str(place.buffer_id), **where, "size_max": str(place.size_max)}
