"""Copies of only the experts that a mul_mat_id at the head of a split uses: the scheduler's own, and llama.cpp's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ggmltool.ggml.errors import GgmlAssert, GgmlFailed
from ggmltool.ggml.events import announced
from ggmltool.ggml.op import Op
from ggmltool.ggml.sched.arena import Split
from ggmltool.ggml.sched.callbacks import USED_EXPERTS, CopyCallback
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.values.arrays import HostArrays
from ggmltool.ggml.values.transfer import announce_get, tensor_set, tensor_set_async

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ggmltool.ggml.sched.scheduler import Scheduler

EXPERT_TAIL = 512
"""Bytes copied beyond the last used expert, so that padding holds no NaN (CUDA's MMQ reads it)."""


def uses_experts(split: Split, copy: Tensor) -> bool:
    """Whether the split begins with a mul_mat_id of these weights, whose ids are then known before it is computed."""
    node = split.nodes[0] if split.nodes else None
    return node is not None and node.op == Op.MUL_MAT_ID and node.src[0] is copy


class UsedExperts:
    """What ggml_backend_sched_compute_splits does itself where it `copies_used_experts`."""

    function = "ggml_backend_sched_compute_splits"

    def __init__(self, s: Scheduler) -> None:
        self.s = s
        self.events = s.events
        self.start()

    def start(self) -> None:
        """Forget which experts were used: a graph is going to be computed."""
        self.ids_tensor: Tensor | None = None
        self.used: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)

    def copy(self, split: Split, j: int, t: Tensor, copy: Tensor) -> None:
        """Copy input `j` of a split, of which the first node uses some experts."""
        s = self.s
        s.synchronize_backend(s.ids[t.index])
        ids, ids_backend = self._ids(split, j)
        if ids is not self.ids_tensor:
            self._read(ids, ids_backend, t.ne[2])
        if not self.used.any():
            raise GgmlFailed(self.function, "no expert is used", None, "ggml would search beyond its bitset")
        self._set(split, t, copy)

    def _ids(self, split: Split, j: int) -> tuple[Tensor, int]:
        """The tensor of chosen experts: the original while its own copy is still to come."""
        s, ids = self.s, split.nodes[0].src[2]
        if ids is None:
            raise GgmlFailed(self.function, f"{split.nodes[0].name} has no ids")
        for later in split.inputs[j + 1 :]:
            if s.copy_of(later, split.backend_id) is ids:
                return later, s.ids[later.index]
        return ids, split.backend_id

    def _read(self, ids: Tensor, backend: int, n_expert: int) -> None:
        """Note which experts the ids name."""
        s = self.s
        if not s.backends[backend].device.sets_async:
            s.synchronize_backend(backend)
        announce_get(ids, s.events)
        s.synchronize_backend(backend)
        chosen = HostArrays().raw(ids)[0, 0].reshape(-1)
        if chosen.size and not (int(chosen.min()) >= 0 and int(chosen.max()) < n_expert):
            raise GgmlAssert(
                self.function,
                "id >= 0 && id < n_expert",
                f"{ids.name} chooses experts {int(chosen.min())} to {int(chosen.max())}; they are 0 to {n_expert - 1}",
            )
        self.used = np.zeros(n_expert, dtype=np.bool_)
        self.used[chosen] = True
        self.ids_tensor = ids

    def _set(self, split: Split, t: Tensor, copy: Tensor) -> None:
        """Copy runs of used experts, each with a little of the one behind it."""
        s, size = self.s, t.nb[2]
        data = HostArrays().get_bytes(t)
        device, queue = s.backends[split.backend_id].device, s.backends[split.backend_id].queue
        # The consecutive used experts as (first, behind the last).
        edges = np.flatnonzero(np.diff(np.concatenate(([0], self.used.astype(np.int8), [0]))))
        for first, behind in edges.reshape(-1, 2).tolist():
            last = behind - 1
            start = first * size
            tail = min(size, EXPERT_TAIL) if last < t.ne[2] - 1 else 0
            end = start + (last - first + 1) * size + tail
            if not device.sets_async:
                s.synchronize_backend(split.backend_id)
            elif queue is not None:
                tensor_set_async(queue, copy, data[start:end], start, s.events)
                continue
            tensor_set(copy, data[start:end], start, None, s.events)


class LlamaUsedExperts(UsedExperts):
    """llama.cpp's callback since b11548 (llama_context::sched_copy_experts), without a cache of experts on the device.

    Weights are copied last, so the ids are read from where the split has them, and nothing else is waited for. Where no
    expert is used, nothing is copied.
    """

    function = "llama_context::sched_copy_experts"

    def __call__(self, split: Split, src: Tensor, dst: Tensor) -> bool:
        """Copy the used experts of a weight; False if the split does not begin with the node that uses them."""
        if not uses_experts(split, dst):
            return False
        ids = split.nodes[0].src[2]
        if ids is None:
            raise GgmlFailed(self.function, f"{split.nodes[0].name} has no ids")
        if 0 in ids.ne:
            return True
        self._copy_used(split, ids, src, dst)
        return True

    @announced("llama_context::sched_copy_experts")
    def _copy_used(self, split: Split, ids: Tensor, src: Tensor, dst: Tensor) -> None:
        if ids is not self.ids_tensor or len(self.used) != src.ne[2]:
            self._read(ids, split.backend_id, src.ne[2])
        self._set(split, src, dst)


def copy_callback(name: str, s: Scheduler) -> CopyCallback:
    """The callback that a scenario names, for a scheduler."""
    return {USED_EXPERTS: LlamaUsedExperts}[name](s)
