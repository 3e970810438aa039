"""Kernels of the real library: nodes of our graphs, computed by ggml's CPU or by this machine's Vulkan device."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from itertools import groupby

from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import GgmlFailed, NotComputable
from ggmltool.ggml.graph_copy import GraphCompute
from ggmltool.ggml.op import CUSTOM_OPS
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.tensor import Tensor, op_desc, root_of
from ggmltool.ggml.values.arrays import HostArrays
from ggmltool.oracle import structs
from ggmltool.oracle.fork import Abort
from ggmltool.oracle.lib import Lib, load
from ggmltool.oracle.tensors import Builder
from ggmltool.oracle.vulkan import Vulkan, VulkanFailed
from ggmltool.scenario.spec import TensorSpec

_MOST_THREADS = 4


def library_kernels(release: Release, backend: Backend, other: GraphCompute) -> GraphCompute:
    """Kernels: those of a release's real library on `backend`, which has host memory, and `other` elsewhere.

    Each node is computed in a child process of its own, so that an abort there is an error here. Raises
    OracleUnavailable if the library is missing; the kernels raise GgmlError.
    """
    lib = load(release)

    def compute(b: Backend, nodes: Sequence[Tensor]) -> None:
        if b is not backend:
            other(b, nodes)
            return
        for n in nodes:
            if n.is_view_op:
                continue
            if n.op in CUSTOM_OPS:
                raise NotComputable("ggml_graph_compute", f"{n.id} is a {op_desc(n)}, whose function is not ggml's")
            content = lib.run_forked(partial(_computed, lib, n))
            if isinstance(content, Abort):
                raise GgmlFailed("ggml_backend_graph_compute", f"the real ggml computing {n.id}: {content.text}")
            HostArrays().set_bytes(root_of(n), content)

    return compute


def _computed(lib: Lib, n: Tensor) -> bytes:
    """The bytes of what holds the node's result, computed by the real CPU backend in this child's memory.

    It is a copy of ours, so the library's tensors are where ours are.
    """
    arrays = HostArrays()
    sources = [s for s in n.src if s is not None and s is not n]
    tensors = list(dict.fromkeys((*map(root_of, sources), root_of(n), *sources, n)))
    builder = Builder(lib)
    ctx = builder.context(len(tensors) + 1, 8)
    made: dict[str, int] = {}
    builder.tensors(ctx, [_spec(t, whole=t is n) for t in tensors], made)
    for t in tensors:
        root = root_of(t)
        structs.Tensor.from_address(made[_key(t)]).data = arrays.raw(root).ctypes.data + t.data - root.data
    lib.compute(lib.graph(ctx, [made[_key(n)]], 8), min(os.cpu_count() or 1, _MOST_THREADS))
    return arrays.get_bytes(root_of(n)).tobytes()


def _key(t: Tensor) -> str:
    return str(t.index)


def _spec(t: Tensor, whole: bool) -> TensorSpec:
    """A tensor as a leaf of a graph, or `whole`, with its op and sources."""
    root = root_of(t)
    spec = TensorSpec(_key(t), t.name, t.type, t.ne, t.nb, flags=t.flags)
    if root is not t:
        spec.view_src, spec.view_offs = _key(root), t.data - root.data
    if whole:
        spec.op, spec.op_params = int(t.op), tuple(t.op_params)
        spec.src = tuple(None if s is None else _key(s) for s in t.src)
    return spec


def vulkan_kernels(vulkan: Vulkan, backend: Backend, other: GraphCompute) -> GraphCompute:
    """Kernels that are the Vulkan device's on `backend`, for nodes that it runs, and `other` elsewhere.

    Nodes that are computed in one call go to the device together, as far as it runs them all: its shaders may compute
    several at once. The kernels raise GgmlError.
    """

    def compute(b: Backend, nodes: Sequence[Tensor]) -> None:
        if b is not backend:
            other(b, nodes)
            return
        real = [n for n in nodes if not n.is_view_op]
        runs = {id(n): answer.runs for n, answer in zip(real, vulkan.answers(real), strict=True)}
        for on_device, part in groupby(real, lambda n: runs[id(n)]):
            if on_device:
                _compute_there(vulkan, list(part))
            else:
                other(b, list(part))

    return compute


def _compute_there(vulkan: Vulkan, nodes: Sequence[Tensor]) -> None:
    arrays = HostArrays()
    roots = dict.fromkeys(root_of(t) for n in nodes for t in (n, *n.src) if t is not None)
    content = {t: arrays.get_bytes(t).tobytes() for t in roots if t.nbytes}
    try:
        made = vulkan.compute(nodes, content, list(dict.fromkeys(map(root_of, nodes))))
    except VulkanFailed as failed:
        names = nodes[0].id if len(nodes) == 1 else f"{nodes[0].id} to {nodes[-1].id}"
        raise GgmlFailed("ggml_backend_graph_compute", f"the real Vulkan computing {names}: {failed}") from None
    for t, data in made.items():
        arrays.set_bytes(t, data)
