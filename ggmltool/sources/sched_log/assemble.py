"""From the lines of a graph to the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ggmltool.sources.sched_log.backends import Backends
from ggmltool.sources.sched_log.lines import HEADER_MARK, NodeLine, read_header, read_node
from ggmltool.sources.sched_log.records import GraphSummary, LogGraph, LogInput, LogNode, LogSplit, LogTensorRef
from ggmltool.sources.sched_log.scan import RawLine


@dataclass(slots=True)
class _Split:
    id: int
    backend: str
    n_inputs: int
    inputs: tuple[LogInput, ...]
    line: int
    nodes: list[tuple[NodeLine, int]] = field(default_factory=list)


def assemble(summary: GraphSummary, lines: Sequence[RawLine], backends: Backends) -> LogGraph:
    """The graph whose lines these are; `backends` are the whole names that the log had up to its end."""
    splits: list[_Split] = []
    known = False
    for number, raw in lines:
        if raw.startswith(HEADER_MARK):
            header = read_header(raw, 0)
            if header is not None:
                if not known:
                    _number(splits, header.id)
                known = True
                splits.append(_Split(header.id, header.backend, header.n_inputs, header.inputs, number))
                continue
        node = read_node(raw, 0)
        if node is None:
            continue
        if not known:
            backend = backends.whole(node.backend) or ""
            if not splits or splits[-1].backend != backend:
                splits.append(_Split(len(splits), backend, 0, (), number))
        splits[-1].nodes.append((node, number))
    return LogGraph(
        summary.number,
        summary.title,
        summary.dialect,
        summary.level,
        tuple(_split(split, backends) for split in splits),
        summary.line,
        summary.last_line,
        summary.has_headers,
        summary.is_whole,
        summary.inputs_missing,
        summary.lines_cut,
    )


def _number(splits: list[_Split], next_id: int) -> None:
    """The splits that the log begins in, before the first header there is."""
    for i, split in enumerate(reversed(splits), 1):
        split.id = max(next_id - i, 0)


def _split(split: _Split, backends: Backends) -> LogSplit:
    nodes = tuple(_node(node, line, split.backend, backends) for node, line in split.nodes)
    return LogSplit(split.id, split.backend, split.n_inputs, split.inputs, nodes, split.line)


def _node(node: NodeLine, line: int, near: str, backends: Backends) -> LogNode:
    use_count, compute = node.counts or (None, None)
    return LogNode(
        node.index,
        node.op,
        node.name,
        node.nbytes,
        backends.whole(node.backend, near),
        node.cause,
        use_count,
        compute,
        tuple(_source(source, near, backends) for source in node.sources),
        line,
    )


def _source(source: LogTensorRef, near: str, backends: Backends) -> LogTensorRef:
    """The source with the whole name of its backend; `near` is not it for certain, but likelier than another."""
    name = backends.whole(source.backend or "", near)
    return LogTensorRef(source.name, source.nbytes, name, source.cause)
