"""A graph of a log as the records that ggml's text is made from."""

from __future__ import annotations

from ggmltool.ggml.sched.debug import DebugNode, DebugSource, DebugSplit, SchedDebug
from ggmltool.sources.sched_log.records import LogGraph


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
                    node.cause,
                    node.use_count or 0,
                    bool(node.compute),
                    tuple(DebugSource(s.name, s.nbytes.low, s.backend, s.cause) for s in node.src),
                )
                for node in split.nodes
            ),
        )
        for split in graph.splits
    )
