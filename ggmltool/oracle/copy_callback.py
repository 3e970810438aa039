"""llama.cpp's copy of the used experts as a callback of the real scheduler, which has llama.cpp's part to itself."""

from __future__ import annotations

import ctypes
from typing import Any

from ggmltool.ggml.op import Op
from ggmltool.ggml.sched.used_experts import EXPERT_TAIL
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.structs import CGraph, Tensor

COPY_CALLBACK: Any = ctypes.CFUNCTYPE(ctypes.c_bool, *[ctypes.c_void_p] * 5)
"""ggml_backend_sched_copy_callback(backend, src, dst, graph, user_data)."""


class UsedExperts:
    """llama_context::sched_copy_experts. `start` is to be called before each graph; `callback` must be kept."""

    def __init__(self, lib: Lib) -> None:
        self.lib = lib
        self.callback = COPY_CALLBACK(self._copy)
        self.start()

    def start(self) -> None:
        """Forget whose experts were used."""
        self.ids = 0
        self.used: list[bool] = []

    def _copy(self, backend: int, src: int, dst: int, graph: int, _: int | None) -> bool:
        g, weight = CGraph.from_address(graph), Tensor.from_address(src)
        node = Tensor.from_address(g.nodes[0]) if g.n_nodes else None
        if node is None or node.op != Op.MUL_MAT_ID or node.src[0] != dst:
            return False
        ids = Tensor.from_address(node.src[2])
        if 0 in tuple(ids.ne):
            return True
        n_expert, size = weight.ne[2], weight.nb[2]
        if node.src[2] != self.ids or len(self.used) != n_expert:
            self._read(backend, node.src[2], ids, n_expert)
        expert = 0
        while expert < n_expert:
            first = expert
            while expert < n_expert and self.used[expert]:
                expert += 1
            if expert > first:
                tail = min(size, EXPERT_TAIL) if expert < n_expert else 0
                start, n = first * size, (expert - first) * size + tail
                self.lib.ggml_backend_tensor_set_async(backend, dst, weight.data + start, start, n)
            expert += 1
        return True

    def _read(self, backend: int, address: int, ids: Any, n_expert: int) -> None:
        words = (ctypes.c_int32 * (self.lib.ggml_nbytes(address) // 4))()
        self.lib.ggml_backend_tensor_get_async(backend, address, ctypes.addressof(words), 0, ctypes.sizeof(words))
        self.lib.ggml_backend_synchronize(backend)
        self.used = [False] * n_expert
        for row in range(ids.ne[1]):
            for column in range(ids.ne[0]):
                self.used[words[(row * ids.nb[1] + column * ids.nb[0]) // 4]] = True
        self.ids = address
