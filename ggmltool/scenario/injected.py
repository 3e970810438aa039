"""Kernels that are wrong on purpose: a node computed by another op's, to see that comparing finds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ggmltool.ggml.device import Backend
from ggmltool.ggml.graph_copy import GraphCompute
from ggmltool.ggml.op import FIRST_GLU_KEY, FIRST_UNARY_KEY, KEY_NAMES, VIEW_OPS, Op, keys_of
from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.registry import KERNELS
from ggmltool.ggml.tensor import Tensor, op_desc
from ggmltool.scenario.errors import ScenarioError, did_you_mean, quoted
from ggmltool.scenario.spec import GraphSpec


def read_injections(texts: Sequence[str], graph: GraphSpec, source: str) -> dict[str, int]:
    """`NODE=OP` each: the op key whose kernel computes a node, by the node's id.

    Raises ScenarioError for a node that the graph does not have or that computes nothing, and for an op that has no
    kernel or is the node's own.
    """
    load()
    nodes = {n.id: n for n in graph.nodes}
    out: dict[str, int] = {}
    for text in texts:
        id, equals, name = text.rpartition("=")
        if not equals or not id:
            raise ScenarioError(
                f"{quoted(text)} is not an injection", source, None, "expected NODE=OP, for example y=add"
            )
        if id not in nodes:
            hint = did_you_mean(id, nodes)
            raise ScenarioError(f"graph {graph.name} has no node {quoted(id)}", source, None, hint)
        try:
            keys = keys_of(name.lower())
        except KeyError:
            raise ScenarioError(f"{name} is not an op", source, None, did_you_mean(name, KEY_NAMES)) from None
        spec = nodes[id]
        of_node = Tensor(spec.type, spec.ne, spec.nb, spec.op, spec.op_params)
        if of_node.is_view_op:
            raise ScenarioError(f"{id} is a {op_desc(of_node)}, which computes nothing that could be wrong", source)
        if len(keys) > 1 or _op_of(keys[0]) in VIEW_OPS or KERNELS.get(_op_of(keys[0])) is None:
            raise ScenarioError(f"{name} has no kernel of its own", source, None, "name an op that computes something")
        if keys[0] == of_node.key:
            raise ScenarioError(f"{id} is a {op_desc(of_node)} already", source, None, "name another op")
        out[id] = keys[0]
    return out


def broken(compute: GraphCompute, backend: Backend, wrong: Mapping[str, int], source: str) -> GraphCompute:
    """`compute` with other ops' kernels for some nodes on `backend`: op keys by the nodes' ids.

    It raises ScenarioError where such a kernel cannot take the sources of the node.
    """

    def compute_broken(b: Backend, nodes: Sequence[Tensor]) -> None:
        if b is not backend:
            compute(b, nodes)
            return
        for n in nodes:
            key = wrong.get(n.id)
            if key is None:
                compute(b, [n])
                continue
            try:
                compute(b, [_disguised(n, key)])
            except Exception as error:  # a kernel takes for granted what its op's constructor has checked
                hint = "take an op with sources of these shapes and types"
                message = f"the kernel of {KEY_NAMES[key].upper()} cannot compute {n.id}, a {op_desc(n)}"
                raise ScenarioError(message, source, None, hint) from error

    return compute_broken


def _op_of(key: int) -> int:
    return Op.GLU if key >= FIRST_GLU_KEY else Op.UNARY if key >= FIRST_UNARY_KEY else key


def _disguised(n: Tensor, key: int) -> Tensor:
    """The node in its memory, with its sources and parameters, as one of another op."""
    t = n.clone(n.index)
    op = Op(_op_of(key))
    params = n.op_params
    if key >= FIRST_UNARY_KEY:
        function = key - (FIRST_GLU_KEY if key >= FIRST_GLU_KEY else FIRST_UNARY_KEY)
        params = (function, *(params[1:] if n.op == op else ()))
    t.set_op(op, params, *n.src)
    t.view_src = n.view_src
    t.buffer = n.buffer
    t.data = n.data
    return t
