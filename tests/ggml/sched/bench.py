"""A scheduler over devices made by hand, and graphs to give it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ggmltool.ggml.buffer import USAGE_ANY, USAGE_WEIGHTS, AddressSpace, Buffer, BufferType, tensor_alloc
from ggmltool.ggml.device import Backend, Device, DeviceType, op_table
from ggmltool.ggml.events import Event
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import Op
from ggmltool.ggml.sched.scheduler import Scheduler
from ggmltool.ggml.tensor import Tensor
from tests.ggml.graphs import Builder
from tests.invariants import check_graph


def device(
    name: str,
    type: DeviceType = "gpu",
    *,
    without: Iterable[Op] = (),
    uses: Iterable[BufferType] = (),
    offload: int | None = None,
    events: bool = False,
    host: bool = False,
) -> Backend:
    """A backend on a device with everything but the ops `without`, and memory of its own."""
    cpu = type == "cpu"
    buft = BufferType(name, name, 32 if cpu else 128, host=cpu or host)
    table = op_table((int(op) for op in without), True)
    made = Device(name, type, buft, table, None, uses, cpu, offload, events=events)
    return Backend(name, made)


class Bench(Builder):
    """Builder and scheduler that know each other: tensors may be placed in a device's memory."""

    def __init__(self, *backends: Backend, **options: object) -> None:
        super().__init__()
        self.backends = list(backends) or [device("GPU0"), device("CPU", "cpu")]
        self.events: list[Event] = []
        self.addresses = AddressSpace()
        self.sched = Scheduler(
            self.backends,
            self.ctx.indices,
            self.addresses,
            events=self.events.append,
            **options,  # type: ignore[arg-type]
        )

    def placed(self, name: str, *ne: int, on: int, usage: int = USAGE_ANY, type: str = "f32") -> Tensor:
        """A leaf with memory of its own in the default buffer type of backend `on`."""
        t = self.leaf(name, *ne, type=type)
        buft = self.backends[on].device.buft
        tensor_alloc(Buffer(buft, buft.get_alloc_size(t), self.addresses, usage), t, 0)
        return t

    def weight(self, name: str, *ne: int, on: int) -> Tensor:
        return self.placed(name, *ne, on=on, usage=USAGE_WEIGHTS)

    def of(self, kind: type) -> list:  # type: ignore[type-arg]
        return [e for e in self.events if isinstance(e, kind)]

    def backend(self, t: Tensor) -> str | None:
        """The backend of the last split."""
        b = self.sched.assigned[t.index]
        return self.sched.names[b] if b != -1 else None

    def cause(self, t: Tensor) -> str | None:
        return self.sched.assigned_causes[t.index]

    def splits(self) -> list[tuple[str, list[str], list[str]]]:
        """Backend, inputs and nodes of every split."""
        s = self.sched
        return [
            (s.names[k.backend_id], [t.name for t in k.inputs], [n.name for n in k.nodes])
            for k in s.splits[: s.n_splits]
        ]

    def split(self, *outputs: Tensor) -> CGraph:
        g = self.graph(*outputs)
        self.sched.split_graph(g)
        return g

    def alloc(self, *outputs: Tensor) -> CGraph:
        """Allocates a graph and checks that nothing in it overlaps."""
        g = self.graph(*outputs)
        assert self.sched.alloc_graph(g)
        assert check_graph(self.sched.nodes, self.sched.leafs, self.sizes()) == []
        return g

    def sizes(self) -> dict[tuple[str, int], int]:
        out: dict[tuple[str, int], int] = {}
        for buft, v in zip(self.sched.bufts, self.sched.gallocr.buffers, strict=True):
            out |= {(buft.name, c.chunk): c.size for c in (v.chunks if v is not None else ())}
        return out


def names(tensors: Sequence[Tensor]) -> list[str]:
    return [t.name for t in tensors]
