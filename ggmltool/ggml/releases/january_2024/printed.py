"""What the scheduler of January 2024 prints: the assignments after a pass (DEBUG_PASS1 to 4), and its sanity check.

The assignments are records, which a view turns into ggml's text. Causes are those of a build that keeps them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import Op
from ggmltool.ggml.sched.debug import DebugNode, DebugSource, DebugSplit
from ggmltool.ggml.tensor import Tensor

if TYPE_CHECKING:
    from ggmltool.ggml.releases.january_2024.scheduler import MeasuredScheduler


class Printed(NamedTuple):
    """sched_print_assignments after pass `number`. Before the last pass there is no split: `nodes` has all nodes.

    `splits` are those whose header is printed, with their nodes.
    """

    number: int
    nodes: tuple[DebugNode, ...]
    splits: tuple[DebugSplit, ...]


def printed_of(s: MeasuredScheduler, graph: CGraph, number: int) -> Printed:
    """The state after a pass as ggml prints it."""
    splits = s.splits[: s.n_splits]
    if not splits:
        return Printed(number, _nodes(s, graph, 0, graph.n_nodes), ())
    return Printed(
        number,
        (),
        tuple(
            DebugSplit(
                k,
                _name(s, sp.backend_id),
                tuple((t.name, t.nbytes) for t in sp.inputs),
                _nodes(s, graph, sp.i_start, sp.i_end),
            )
            for k, sp in enumerate(splits)
            if sp.i_start < graph.n_nodes
        ),
    )


def _nodes(s: MeasuredScheduler, graph: CGraph, start: int, end: int) -> tuple[DebugNode, ...]:
    """The node lines of `[start, end)`; view ops have none, and sources end at the first empty slot."""
    out = []
    for i in range(start, end):
        n = graph.nodes[i]
        if n.is_view_op:
            continue
        sources = []
        for t in n.src:
            if t is None:
                break
            sources.append(DebugSource(t.name, t.nbytes, _backend(s, t), s.causes[t.index] or ""))
        out.append(
            DebugNode(
                i,
                Op(n.op).name,
                n.name,
                n.nbytes,
                _backend(s, n),
                s.causes[n.index] or "",
                graph.use_count(n),
                True,
                tuple(sources),
            )
        )
    return tuple(out)


def _backend(s: MeasuredScheduler, t: Tensor) -> str | None:
    b = s.ids[t.index]
    return s.names[b] if b != -1 else None


def _name(s: MeasuredScheduler, b: int) -> str:
    """ggml_backend_name, which knows a name for no backend too."""
    return s.names[b] if b >= 0 else "NULL"


def sanity_lines(s: MeasuredScheduler, graph: CGraph) -> list[str]:
    """What a debug build prints after the last pass: nodes whose sources, or whose root, have another backend."""
    ids = s.ids
    out: list[str] = []
    for n in graph.nodes:
        b = ids[n.index]
        if b == -1:
            out.append(f"!!!!!!! {n.name} has no backend")
        root = n.view_src
        if root is not None and b != ids[root.index]:
            out.append(
                f"!!!!!!! {n.name} has backend {_name(s, b)}, "
                f"view_src {root.name} has backend {_name(s, ids[root.index])}"
            )
        for j, t in enumerate(n.src):
            if t is None:
                break
            k = ids[t.index]
            if k != b:
                out.append(f"!!!! {n.name} has backend {_name(s, b)}, src {j} ({t.name}) has backend {_name(s, k)}")
            root = t.view_src
            if root is not None and k != ids[root.index]:
                out.append(
                    f"!!!!!!! [src] {t.name} has backend {_name(s, k)}, "
                    f"view_src {root.name} has backend {_name(s, ids[root.index])}"
                )
    return out
