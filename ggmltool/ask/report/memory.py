"""The memory in a report: buffers with their chunks and peaks, and who has which bytes when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ggmltool.ask.buffers.map import bend_of
from ggmltool.ask.report.document import AllocationRow, ReportBufferRow, ReportPeakRow
from ggmltool.ask.report.tables import NONE, ReportNumbers, ReportTensors
from ggmltool.ggml.buffer import USAGE_NAMES
from ggmltool.ggml.device import memory_owner
from ggmltool.ggml.version import SIZE_MAX, TENSOR_ALIGNMENT
from ggmltool.inspect.memory import Allocation, MemoryPlan

if TYPE_CHECKING:
    from ggmltool.inspect.watched import Watched

COMPUTE = "compute"


class Buffers:
    """The buffers that there are, by buffer type and usage."""

    def __init__(self) -> None:
        self._keys = ReportNumbers()

    def number(self, buft: str, usage: str) -> int:
        """The number of the memory of this type that is used so."""
        return self._keys[(buft, usage)]

    def compute(self, buft: str) -> int:
        """The number of a compute buffer, by which events name it."""
        return NONE if not buft else self.number(buft, COMPUTE)

    def rows(self, at: Watched, memory: MemoryPlan, allocations: Sequence[AllocationRow]) -> Iterator[ReportBufferRow]:
        """The buffers of a run."""
        run = at.run
        names = [b.name for b in run.backends]
        sizes = dict(zip((buft for _, buft in at.plan.backends), (n for _, n in at.plan.buffer_sizes), strict=False))
        for buft, usage in self._keys.items:
            of = run.bufts.get(buft)
            if usage == COMPUTE:
                chunks, total = memory.chunk_sizes(buft), sizes.get(buft, 0)
            else:
                own = [b for b in run.buffers if b.buft.name == buft and USAGE_NAMES[b.usage] == usage]
                chunks = [b.size for b in own]
                total = sum(chunks)
            yield ReportBufferRow(
                buft=buft,
                usage=usage,
                backend=NONE if of is None else names.index(memory_owner(of, run.backends).name),
                size=total,
                chunks=chunks,
                bends=_bends(buft, chunks, memory) if usage == COMPUTE else [0] * len(chunks),
                alignment=TENSOR_ALIGNMENT if of is None else of.alignment,
                max_size=None if of is None or of.max_size >= SIZE_MAX // 2 else of.max_size,
                peak=_peak(buft, memory, allocations) if usage == COMPUTE else None,
            )


def _bends(buft: str, chunks: Sequence[int], memory: MemoryPlan) -> list[int]:
    """Where the scale of each chunk changes, by the rule of all drawings of memory."""
    lives = memory.of(buft)
    n_steps = len(memory.nodes)
    return [bend_of([life for life in lives if life.chunk == i], size, n_steps) for i, size in enumerate(chunks)]


def _peak(buft: str, memory: MemoryPlan, allocations: Sequence[AllocationRow]) -> ReportPeakRow | None:
    peak = memory.peak(buft)
    if peak is None:
        return None
    numbers = [
        i
        for i, (row, life) in enumerate(zip(allocations, memory.lifetimes, strict=True))
        if life.buft == buft and life.alive(peak.step)
    ]
    numbers.sort(key=lambda i: (-allocations[i].size, allocations[i].offset))
    return ReportPeakRow(peak.step, peak.nbytes, numbers)


def allocation_rows(allocations: Sequence[Allocation], tensors: ReportTensors, buffers: Buffers) -> list[AllocationRow]:
    """The allocations, with those that they took over from and gave to."""
    given = {a.took: i for i, a in enumerate(allocations) if a.took is not None}
    rows = []
    for i, a in enumerate(allocations):
        life = a.life
        rows.append(
            AllocationRow(
                tensors.at(life.tensor, life.chunk, life.offset),
                buffers.compute(life.buft),
                life.chunk,
                life.offset,
                life.size,
                a.given_back,
                life.start,
                NONE if life.end is None else life.end,
                a.born,
                NONE if a.died is None else a.died,
                NONE if a.took is None else a.took,
                given.get(i, NONE),
                life.kept,
            )
        )
    return rows
