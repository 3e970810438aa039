"""A log and its graphs as JSON. Sizes are pairs: ggml prints whole K and M, so a tensor has at least the first number
of bytes and at most the second."""

from __future__ import annotations

from typing import Any

from ggmltool.sources.sched_log.records import GraphSummary, LogGraph, LogNode, LogSplit, LogSummary, LogTensorRef


def log_json(log: LogSummary, source: str, graphs: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """The whole log; `graphs` are its graphs with their nodes, else they come without."""
    return {
        "ggmltool": 1,
        "kind": "log",
        "log": source,
        "lines": log.n_lines,
        "wrapped_at": log.wrapped_at or None,
        "backends": list(log.backends),
        "graphs": [summary_json(graph) for graph in log.graphs] if graphs is None else graphs,
        "graphs_left_out": log.graphs_left_out,
        "nodes_by_op_and_backend": [{"op": op, "backend": b, "nodes": n} for op, b, n in log.tally],
        "passes": log.passes,
        "aborts": [{"text": a.text, "line": a.line, "last_line": a.last_line} for a in log.aborts],
        "reallocations": [
            {
                "buft": r.buft,
                "count": r.count,
                "first_mib": r.first,
                "last_mib": r.last,
                "largest_mib": r.largest,
                "first_line": r.first_line,
                "last_line": r.last_line,
            }
            for r in log.reallocs
        ],
        "messages": [
            {
                "text": m.text,
                "example": m.example,
                "count": m.count,
                "first_line": m.first_line,
                "last_line": m.last_line,
                "first_graph": m.first_graph or None,
                "last_graph": m.last_graph or None,
            }
            for m in log.messages
        ],
        "messages_left_out": log.messages_left_out,
        "buffers": [
            {"kind": b.kind, "buft": b.buft, "count": b.count, "sizes_mib": list(b.sizes), "last_mib": b.last}
            for b in log.buffers
        ],
        "memory_breakdowns": log.breakdowns,
        "memory_breakdown_mib": [
            {
                "device": b.device,
                "total": b.total,
                "free": b.free,
                "self": b.self,
                "model": b.model,
                "context": b.context,
                "compute": b.compute,
                "unaccounted": b.unaccounted,
            }
            for b in log.breakdown
        ],
    }


def summary_json(graph: GraphSummary) -> dict[str, Any]:
    """A graph without its nodes."""
    return _identity(graph) | {
        "n_nodes": graph.n_nodes,
        "n_splits": graph.n_splits,
        "n_inputs": graph.n_inputs,
        "copied": list(graph.copied),
        "nodes_on": dict(graph.nodes_on),
        "fingerprint": f"{graph.fingerprint:08x}",
    }


def graph_json(graph: LogGraph, source: str) -> dict[str, Any]:
    """One graph of a log, as a document of its own."""
    return {"ggmltool": 1, "kind": "log_graph", "log": source} | whole_graph_json(graph)


def whole_graph_json(graph: LogGraph) -> dict[str, Any]:
    """A graph with its splits, their inputs and nodes."""
    return _identity(graph) | {"splits": [_split(split) for split in graph.splits]}


def _identity(graph: GraphSummary | LogGraph) -> dict[str, Any]:
    """Which graph of the log it is, where it stands and how it is written."""
    return {
        "number": graph.number,
        "title": graph.title,
        "line": graph.line,
        "last_line": graph.last_line,
        "dialect": graph.dialect,
        "level": graph.level,
        "has_headers": graph.has_headers,
        "is_whole": graph.is_whole,
        "inputs_missing": graph.inputs_missing,
        "lines_cut": graph.lines_cut,
    }


def _split(split: LogSplit) -> dict[str, Any]:
    return {
        "id": split.id,
        "backend": split.backend,
        "line": split.line,
        "n_inputs": split.n_inputs,
        "inputs": [{"name": tensor.name, "nbytes": list(tensor.nbytes)} for tensor in split.inputs],
        "nodes": [_node(node) for node in split.nodes],
    }


def _node(node: LogNode) -> dict[str, Any]:
    return {
        "index": node.index,
        "op": node.op,
        "name": node.name,
        "nbytes": list(node.nbytes),
        "backend": node.backend,
        "cause": node.cause or None,
        "use_count": node.use_count,
        "compute": node.compute,
        "src": [_source(source) for source in node.src],
        "line": node.line,
    }


def _source(source: LogTensorRef) -> dict[str, Any]:
    return {
        "name": source.name,
        "nbytes": list(source.nbytes),
        "backend": source.backend,
        "cause": source.cause or None,
    }
