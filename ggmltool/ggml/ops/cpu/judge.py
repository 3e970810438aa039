"""Whether a node is one that its op's constructor could have made: what a kernel takes for granted.

A node that was made by a call of its constructor always is. One that was read from a file, word by word, need not be:
planning takes it as it is written, as ggml's does, and before it is computed it is judged here.
"""

from __future__ import annotations

from ggmltool.ggml.context import Context
from ggmltool.ggml.errors import GgmlCrash, GgmlError, NotComputable
from ggmltool.ggml.op import Op, OpRules
from ggmltool.ggml.ops.cpu import work
from ggmltool.ggml.ops.operands import show
from ggmltool.ggml.ops.registry import SELF, Constructor, Raw, for_node
from ggmltool.ggml.tensor import Tensor, op_desc

_MOST = 1 << 14

_fine: dict[tuple[object, ...], work.Work] = {}
"""What was judged and found to be in order: the layers of a model are alike, and computed token by token."""


def judge(n: Tensor, rules: OpRules) -> None:
    """Raise what its op's constructor, by the rules of its ggml, would raise for the sources and parameters of `n`.

    GgmlCrash where a source is missing, NotComputable where the node has another type or other extents than the op
    gives, GgmlFailed where computing it would take more than it may.
    """
    sources = tuple([None if s is None else SELF if s is n else (s.type, s.ne, s.nb) for s in n.src])
    key = (rules, n.op, n.op_params, n.type, n.ne, n.nb, sources)
    takes = _fine.get(key)
    if takes is None:
        _judge(n, rules)
        if len(_fine) >= _MOST:
            _fine.clear()
        takes = _fine[key] = work.work_of(n)
    work.check(n, takes)


def _judge(n: Tensor, rules: OpRules) -> None:
    src = n.src
    if n.op == Op.CPY and len(src) == 1:
        src = [*src, n]  # graph_copy's copy of a cast has no edge to itself, and the kernel looks for none
    c = for_node(n.op, src, n)
    if c is None:
        if n in n.src:
            raise _no_such_call(n, "it is a source of itself")
        return
    order = c.call_order(src)
    _check_sources(n, c, order)
    params = c.read_params(Raw(n.op_params, n.type, n.ne, n.nb, n.view_offs))
    if params is None:
        return
    try:
        made = c.build(Context(rules=rules), *order, **params)
    except GgmlError as error:
        error.explanation += f"\n{n.label} is a node in long form, which no call of ggml's would have made"
        raise
    except (ValueError, OverflowError, ZeroDivisionError) as error:
        raise _no_such_call(n, str(error)) from None
    if made.ne != n.ne or made.type is not n.type:
        raise _no_such_call(n, f"it would give {show(made)}, and {n.label} is {show(n)}")


def _check_sources(n: Tensor, c: Constructor, order: list[Tensor | None]) -> None:
    least = c.n_required_sources
    for i in range(least):
        if i >= len(order) or order[i] is None:
            name = c.sources[i].rstrip("_")
            raise GgmlCrash(
                "ggml_graph_compute",
                "a read at the address NULL",
                f"{n.label} ({op_desc(n)}) has no source {name}: it needs {', '.join(c.shown_sources[:least])}",
            )
    if len(order) > len(c.sources):
        raise _no_such_call(n, f"it takes {len(c.sources)} sources, and {n.label} has {len(order)}")


def _no_such_call(n: Tensor, why: str) -> NotComputable:
    return NotComputable(
        "ggml_graph_compute",
        f"{n.label} is no {op_desc(n)} that can be computed: {why}",
        explanation="no call of ggml's makes such a node, and its kernels do not look: they would read or write beyond "
        "its memory. It can be planned",
    )
