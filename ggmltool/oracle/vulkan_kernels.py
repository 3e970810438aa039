"""The real Vulkan device as a source of kernels: nodes of our graphs, computed by ggml's shaders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import GgmlFailed
from ggmltool.ggml.graph_copy import GraphCompute
from ggmltool.ggml.memory import HostArrays
from ggmltool.ggml.tensor import Tensor, root_of
from ggmltool.oracle.vulkan import Vulkan, VulkanFailed


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
                _compute(vulkan, list(part))
            else:
                other(b, list(part))

    return compute


def _compute(vulkan: Vulkan, nodes: Sequence[Tensor]) -> None:
    arrays = HostArrays()
    roots = dict.fromkeys(root_of(t) for n in nodes for t in _operands(n))
    content = {t: arrays.get_bytes(t).tobytes() for t in roots if t.nbytes}
    try:
        made = vulkan.compute(nodes, content, list(dict.fromkeys(map(root_of, nodes))))
    except VulkanFailed as failed:
        names = nodes[0].id if len(nodes) == 1 else f"{nodes[0].id} to {nodes[-1].id}"
        raise GgmlFailed("ggml_backend_graph_compute", f"the real Vulkan computing {names}: {failed}") from None
    for t, data in made.items():
        arrays.set_bytes(t, data)


def _operands(n: Tensor) -> Iterator[Tensor]:
    yield n
    yield from (s for s in n.src if s is not None)
