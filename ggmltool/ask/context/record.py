"""What lies where in the arenas of the contexts, and in that of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Dims
from ggmltool.scenario.errors import did_you_mean, quoted
from ggmltool.scenario.tensor_info import arenas
from ggmltool.show.document import Row, StepDocument, head
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.ggml.context import Context
    from ggmltool.inspect.watched import Watched


class ObjectRow(Row):
    """An object of a context: bytes from the start of its arena; of a tensor its name and where its data lies, its op,
    type and extents."""

    type: str
    offset: int
    size: int
    tensor: str | None = None
    data: int | None = None
    op: str | None = None
    tensor_type: str | None = None
    ne: Dims | None = None


class ContextRow(Row):
    """A context: its arena's simulated address, and the objects in it."""

    name: str
    base: int
    used_mem: int
    objects: tuple[ObjectRow, ...]

    @classmethod
    def of(cls, ctx: Context) -> ContextRow:
        """A context and its objects, in order."""
        objects = []
        for o in ctx.objects():
            t = o.tensor
            about = () if t is None else (t.label, t.data, Op(t.op).name, t.type.name, t.ne)
            objects.append(ObjectRow(o.type, o.offset, o.size, *about))
        return cls(ctx.name, ctx.base, ctx.used_mem, tuple(objects))


class FieldRow(Row):
    """An array of a cgraph: where it begins in its object, and its bytes."""

    field: str
    offset: int
    nbytes: int


class CGraphRow(Row):
    """A cgraph: the most nodes and leafs that it can have, how many it has, and where its arrays lie."""

    size: int
    n_nodes: int
    n_leafs: int
    layout: tuple[FieldRow, ...]


class ContextDocument(StepDocument, kw_only=True):
    """`context --json`: what lies where in the arenas of the contexts, and how the cgraph is laid out."""

    main_table = "contexts.objects"
    view = "contexts"
    kind: Literal["context"] = "context"
    contexts: tuple[ContextRow, ...]
    cgraph: CGraphRow


def contexts_at(at: Watched, only: str | None = None) -> ContextDocument:
    """The contexts at a moment, those of the graph and the scheduler last.

    Raises InspectError if there is no context that is called `only`.
    """
    built = at.built()
    contexts = arenas(at.run, built.name, built.table)
    if only is not None:
        names = [ctx.name for ctx in contexts]
        if only not in names:
            hint = did_you_mean(only, names) or "the contexts are " + ", ".join(map(quoted, names))
            raise InspectError(f"no context is called {quoted(only)}; {hint}")
        contexts = [ctx for ctx in contexts if ctx.name == only]
    graph = built.graph
    layout = tuple(FieldRow(*field) for field in at.run.model.release.graph_layout(graph.size))
    cgraph = CGraphRow(graph.size, graph.n_nodes, graph.n_leafs, layout)
    return ContextDocument(**head(at.plan), contexts=tuple(map(ContextRow.of, contexts)), cgraph=cgraph)
