"""What a log tells, as values. Names are cut to 20 bytes, ops to 10, and sizes are bounds: ggml prints whole K or M.

View nodes have no line in a log, so the indexes of a graph's nodes have gaps.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from ggmltool.ggml.plan import DebugNode, DebugSource, DebugSplit, SchedDebug


class Dialect(StrEnum):
    """How ggml wrote it: 2024 with a title and headers that always end in `inputs: `, since 2026 with `use=`."""

    Y2024 = "2024-01"
    Y2025 = "2025-03"
    Y2026 = "2026"


class ByteRange(NamedTuple):
    """A number of bytes that is at least `low` and at most `high`."""

    low: int
    high: int


class LogTensorRef(msgspec.Struct, frozen=True, gc=False):
    """A source of a node, as it is printed. `backend` is None where ggml prints NULL, `cause` in release builds."""

    name: str
    nbytes: ByteRange
    backend: str | None
    cause: str | None


class LogInput(msgspec.Struct, frozen=True, gc=False):
    """A tensor that a split copies, with its whole name."""

    name: str
    nbytes: ByteRange


class LogNode(msgspec.Struct, frozen=True, gc=False):
    """A line of a node that is no view. What this ggml does not print is None."""

    index: int
    op: str
    name: str
    nbytes: ByteRange
    backend: str | None
    cause: str | None
    use_count: int | None
    compute: bool | None
    src: tuple[LogTensorRef, ...]
    line: int


class LogSplit(msgspec.Struct, frozen=True, gc=False):
    """A split. `n_inputs` is the number in its header, `line` where the header (or else the first node) stands."""

    id: int
    backend: str
    line: int
    n_inputs: int
    inputs: tuple[LogInput, ...]
    nodes: tuple[LogNode, ...]


class GraphHead(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Which graph of a log it is, the `number`th, counted from 1, where it stands, and how it is written.

    `title` is what llama.cpp said of it just before ("" if nothing), `dialect` is None if nothing shows it.
    `has_headers` is false where the log has node lines only: then splits are runs of nodes on one backend. `is_whole`
    is false where the log begins or ends within the graph. Without any node line (GGML_SCHED_DEBUG=1) `level` is 1.
    `inputs_missing` inputs are counted in a header, but not named in what is left of it; `lines_cut` lines of nodes
    lack their end.
    """

    number: int
    title: str
    line: int
    last_line: int
    dialect: Dialect | None
    level: int
    has_headers: bool
    is_whole: bool
    inputs_missing: int
    lines_cut: int

    def head(self) -> dict[str, Any]:
        """These fields alone, to make another record of the same graph."""
        return {name: getattr(self, name) for name in GraphHead.__struct_fields__}


class LogGraph(GraphHead, frozen=True, gc=False, kw_only=True):
    """A graph as one print of the scheduler shows it."""

    splits: tuple[LogSplit, ...]

    @property
    def nodes(self) -> list[LogNode]:
        """The nodes of all splits."""
        return [node for split in self.splits for node in split.nodes]


class GraphSummary(GraphHead, frozen=True, gc=False, kw_only=True):
    """A graph without its nodes. `nodes_on` counts the nodes per backend; `fingerprint` is the same for graphs whose
    headers and nodes read the same."""

    n_nodes: int
    n_splits: int
    n_inputs: int
    copied: ByteRange
    nodes_on: tuple[tuple[str, int], ...]
    fingerprint: int


class LogMessage(msgspec.Struct, frozen=True, gc=False):
    """A line of ggml's or llama.cpp's about allocating, assigning or reserving, and how often it is there.

    In `text` numbers within names are `*`, so that the lines of all layers count as one; `example` is the first one.
    """

    text: str
    example: str
    count: int
    first_line: int
    last_line: int
    first_graph: int | None
    last_graph: int | None


class LogAbort(msgspec.Struct, frozen=True, gc=False):
    """Where a program died: ggml's assertion or abort, or an error of CUDA with what it says in further lines.

    It is named in line `line`; `last_line` is the last one that tells of it.
    """

    text: str
    line: int
    last_line: int


class Realloc(
    msgspec.Struct, frozen=True, gc=False, rename={"first": "first_mib", "last": "last_mib", "largest": "largest_mib"}
):
    """How a compute buffer grew: `count` times, from `first` to `last` MiB, at most to `largest`."""

    buft: str
    count: int
    first: float
    last: float
    largest: float
    first_line: int
    last_line: int


class BufferSize(msgspec.Struct, frozen=True, gc=False, rename={"sizes": "sizes_mib", "last": "last_mib"}):
    """What llama.cpp says of its buffers of one kind (`model`, `KV`, `compute` …) in one buffer type: MiB, in order."""

    kind: str
    buft: str
    count: int
    sizes: tuple[float, ...]
    last: float


class Breakdown(msgspec.Struct, frozen=True, gc=False):
    """A row of llama.cpp's memory breakdown, in MiB, as the last such table has it; None if it says nothing."""

    device: str
    total: int | None
    free: int | None
    self: int
    model: int
    context: int
    compute: int
    unaccounted: int | None


class LogSummary(msgspec.Struct, frozen=True, gc=False):
    """A whole log without the nodes of its graphs.

    `backends` in the order in which they are listed in tables; `graphs_left_out` counts graphs beyond the bound on
    `graphs`. `tally` counts the nodes of all graphs by op and backend. `passes` are prints after single passes, which
    are not read. `aborts` is where the program died. Lines that were cut at `wrapped_at` characters were joined
    (0: none was). `breakdowns` is the number of memory breakdown tables,
    `long_lines` that of cut lines.
    """

    graphs: tuple[GraphSummary, ...]
    graphs_left_out: int
    backends: tuple[str, ...]
    tally: tuple[tuple[str, str, int], ...]
    reallocs: tuple[Realloc, ...]
    messages: tuple[LogMessage, ...]
    messages_left_out: int
    buffers: tuple[BufferSize, ...]
    breakdown: tuple[Breakdown, ...]
    breakdowns: int
    passes: int
    n_lines: int
    long_lines: int
    aborts: tuple[LogAbort, ...] = ()
    wrapped_at: int = 0


def as_debug(graph: LogGraph) -> SchedDebug:
    """Its splits with their nodes, which a view writes again without what stood before or within their lines."""
    return tuple(
        DebugSplit(
            split.id,
            split.backend,
            tuple((tensor.name, tensor.nbytes.low) for tensor in split.inputs),
            tuple(
                DebugNode(
                    node.index,
                    node.op,
                    node.name,
                    node.nbytes.low,
                    node.backend,
                    node.cause or "",
                    node.use_count or 0,
                    bool(node.compute),
                    tuple(DebugSource(s.name, s.nbytes.low, s.backend, s.cause or "") for s in node.src),
                )
                for node in split.nodes
            ),
        )
        for split in graph.splits
    )
