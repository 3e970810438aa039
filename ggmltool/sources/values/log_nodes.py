"""Which node of a graph each node of an eval callback's log is."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ggmltool.ggml.tensor import Dims, Tensor, cut_name, op_desc
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.sources.values.eval_log import EvalLog

if TYPE_CHECKING:
    from ggmltool.sources.values.sample import Sample


@dataclass(frozen=True, slots=True)
class LogNodes:
    """What a log tells of a graph's nodes, by their ids, and the names of its nodes that the graph does not have."""

    samples: dict[str, Sample]
    unknown: list[str]


def log_nodes(log: EvalLog, model: ScenarioSpec, graph: str, source: str) -> LogNodes:
    """Match a log's nodes with a graph's by name, op and extents; those that are alike in all of it by their order.

    Of a program that computed the graph several times, the first time counts. Raises ScenarioError if none is in the
    graph.
    """
    import numpy as np

    from ggmltool.sources.values.sample import Sample

    waiting: dict[tuple[str, str, Dims], deque[str]] = defaultdict(deque)
    shapes: dict[str, Dims] = {}
    for n in model.graphs[graph].nodes:
        t = Tensor(n.type, n.ne, n.nb, n.op, n.op_params)
        name = cut_name(n.name).strip()
        waiting[(name, op_desc(t), n.ne)].append(n.id)
        shapes.setdefault(name, n.ne)
    known = set(waiting)
    samples: dict[str, Sample] = {}
    unknown: dict[str, tuple[str, Dims]] = {}
    for entry in log.entries:
        key = (entry.name, entry.op, entry.ne)
        if key not in known:
            name = f"{entry.name} ({entry.op} {list(entry.ne)})" if entry.name in shapes else entry.name
            unknown.setdefault(name, (entry.name, entry.ne))
        elif waiting[key]:
            points = np.array(entry.points, dtype=np.float64).reshape(-1, 2)
            total = None if log.totals_of_points else entry.total
            at = points[:, 0].astype(np.int64)
            samples[waiting[key].popleft()] = Sample(at, points[:, 1], entry.rounding, total)
    if not samples:
        raise ScenarioError(f"no node of this log is in graph {graph}", source, None, _why(unknown, shapes))
    return LogNodes(samples, list(unknown))


def _why(unknown: dict[str, tuple[str, Dims]], shapes: dict[str, Dims]) -> str:
    for name, ne in unknown.values():
        if name in shapes:
            return (
                f"{name} has ne {list(ne)} in the log and {list(shapes[name])} in the graph: capture the graph of the "
                "same prompt and context (`capture --prompt`, -c, -fa)"
            )
    return f"the log begins with {next(iter(unknown), '')}; is it of another model?"
