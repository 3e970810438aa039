"""What the scheduler of January 2024 prints: the assignments after a pass (DEBUG_PASS1 to 4), and its sanity check.

The assignments are records, which a view turns into ggml's text. Causes are those of a build that keeps them.
"""

from __future__ import annotations

from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.sched.common import AnyScheduler
from ggmltool.ggml.sched.debug import PassPrint
from ggmltool.ggml.sched.printing import debug_of, node_lines


def printed_of(s: AnyScheduler, graph: CGraph, number: int) -> PassPrint:
    """The state after a pass as ggml prints it."""
    if not s.n_splits:
        return PassPrint(number, node_lines(s, graph, 0, graph.n_nodes), ())
    return PassPrint(number, (), debug_of(s, graph))


def _name(s: AnyScheduler, b: int) -> str:
    """ggml_backend_name, which knows a name for no backend too."""
    return s.names[b] if b >= 0 else "NULL"


def sanity_lines(s: AnyScheduler, graph: CGraph) -> list[str]:
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
