"""What gauges read and a finished plan no longer has: slots of the scheduler, free blocks of the allocator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggmltool.ggml.events import Allocated, AllocationStarted, Entered, Event, Freed
from ggmltool.inspect.part import Part

if TYPE_CHECKING:
    from ggmltool.ggml.gallocr_common import AnyGallocr
    from ggmltool.ggml.sched.common import AnyScheduler


class LimitWatch(Part):
    """The scheduler's slots, and the most free blocks that a chunk had while the allocator made its last plan."""

    hears = frozenset({Entered, AllocationStarted, Allocated, Freed})
    looks_at_passes = True

    def __init__(self) -> None:
        self.gallocr: AnyGallocr | None = None
        self.slots = 0
        self.free_blocks = 0
        self.free_blocks_at = ""
        self._bufts: dict[str, int] = {}

    def attach(self, sched: AnyScheduler) -> None:
        self.gallocr = sched.gallocr
        for b, buft in enumerate(sched.gallocr.bufts):
            self._bufts.setdefault(buft.name, b)

    def after_pass(self, number: int, sched: AnyScheduler) -> None:
        if number == len(sched.passes) - 1:
            self.slots = len(sched.hash_keys())

    def hear(self, event: Event) -> None:
        match event:
            case Entered("ggml_backend_sched_reserve" | "ggml_backend_sched_alloc_graph" | "sched_split_graph"):
                self.slots = 0
            case AllocationStarted(at=-1):
                self.free_blocks, self.free_blocks_at = 0, ""
            case Freed(tensor, buft, chunk) | Allocated(tensor, buft, chunk) if self.gallocr is not None:
                blocks = len(self.gallocr.buf_tallocs[self._bufts[buft]].chunks[chunk].free_blocks)
                if blocks > self.free_blocks:
                    did = "was freed" if isinstance(event, Freed) else "was allocated"
                    self.free_blocks, self.free_blocks_at = blocks, f"{buft} chunk {chunk}, when {tensor} {did}"
            case _:
                pass
