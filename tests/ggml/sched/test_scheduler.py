"""What a scheduler tells of its decisions, and schedulers that ggml refuses to make.

What it decides is judged by the real library's (`tests/conformance`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from ggmltool.ggml.buffer import USAGE_ANY, AddressSpace, Buffer, BufferType, tensor_alloc
from ggmltool.ggml.device import Backend, Device, DeviceType, op_table
from ggmltool.ggml.devices.profile import make_buft, make_device
from ggmltool.ggml.devices.profiles import PROFILES
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.events import Assigned, Event, InputAdded, PassedOver, ReallocNeeded, Refused, SplitStarted
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.registry import float_bits
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.ggml.sched.scheduler import Scheduler
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.why import Facts, Why
from tests.ggml.graphs import Builder


def device(name: str, type: DeviceType = "gpu", without: Iterable[Op] = ()) -> Backend:
    """A backend on a device with everything but the ops `without`, and memory of its own."""
    cpu = type == "cpu"
    buft = BufferType(name, name, 32 if cpu else 128, host=cpu)
    return Backend(name, Device(name, type, buft, op_table((int(op) for op in without), True), any_host=cpu))


class Bench(Builder):
    """Builder and scheduler that know each other: tensors may be placed in a device's memory."""

    def __init__(self, *backends: Backend, **options: Any) -> None:
        super().__init__()
        self.backends = list(backends) or [device("GPU0"), CPU]
        self.events: list[Event] = []
        self.addresses = AddressSpace()
        self.sched = Scheduler(self.backends, self.ctx.indices, self.addresses, events=self.events.append, **options)

    def placed(self, name: str, *ne: int, on: int, usage: int = USAGE_ANY, type: str = "f32") -> Tensor:
        """A leaf with memory of its own in the default buffer type of backend `on`."""
        t = self.leaf(name, *ne, type=type)
        buft = self.backends[on].device.buft
        tensor_alloc(Buffer(buft, buft.get_alloc_size(t), self.addresses, usage), t, 0)
        return t

    def of(self, kind: type) -> list[Any]:
        return [e for e in self.events if isinstance(e, kind)]

    def split(self, *outputs: Tensor) -> None:
        self.sched.split_graph(self.graph(*outputs))

    def alloc(self, *outputs: Tensor) -> None:
        assert self.sched.alloc_graph(self.graph(*outputs))


CPU = device("CPU", "cpu")
LAYERS = "w:8,8@0 u:8,8@1 x:8,2! h=MUL_MAT(w,x) c=MUL_MAT(u,h)"
"""An input, a product on the GPU and one on the CPU."""


def test_every_assignment_is_announced_with_its_reason() -> None:
    b = Bench()
    b.split(b.parse("w:64,64@0 x:64,4! h=MUL_MAT(w,x)")["h"])
    assert [(e.tensor, e.backend, e.rule, e.cause) for e in b.of(Assigned)] == [
        ("w", "GPU0", 1, "1.dst"),
        ("x", "CPU", 1, "1.inp"),
        ("h", "GPU0", 1, "1.wgt0"),
    ]
    assert [(e.why, e.by, e.facts) for e in b.of(Assigned)] == [
        (Why.MEMORY, "w", Facts(buft="GPU0")),
        (Why.INPUT, "x", Facts()),
        (Why.WEIGHT, "w", Facts(buft="GPU0")),
    ]


def test_rules_that_do_not_settle_a_tensor_say_why_and_what_settles_it_is_named() -> None:
    b = Bench()
    b.split(b.parse("w:64,64@0 v:64,64@1 x:64,4! h=MUL_MAT(w,x) s=SQR(h) y=MUL_MAT(v,s)")["y"])
    told = [(e.tensor, e.rule, e.cause, e.backend, e.why, e.facts) for e in b.of(PassedOver)]
    assert [t for t in told if t[0] == "s"] == [
        ("s", 1, "1.dst", "", Why.NO_MEMORY, Facts()),
        ("s", 1, "1.inp", "", Why.NOT_INPUT, Facts()),
        ("s", 1, "1.wgt", "", Why.NO_WEIGHT, Facts()),
    ]
    assert ("y", 1, "1.off", "GPU0", Why.NEVER_OFFLOADS, Facts()) in told
    assert ("y", 1, "1.wgt0", "GPU0", Why.BUFT, Facts(buft="CPU")) in told
    by = {e.tensor: e.by for e in b.of(Assigned)}
    assert by == {"w": "w", "v": "v", "x": "x", "h": "w", "s": "h", "y": "v"}


def test_splits_inputs_and_refusals_are_announced() -> None:
    b = Bench()
    b.split(b.parse(LAYERS)["c"])
    assert [e[:4] for e in b.of(SplitStarted)] == [(0, "GPU0", 0, "h"), (1, "CPU", 1, "c")]
    assert [(e.split, e.tensor, e.node, e.copies) for e in b.of(InputAdded)] == [
        (0, "x", "h", ("GPU0#x#0",)),
        (1, "h", "c", ("CPU#h#0",)),
    ]
    b = Bench(device("GPU0", without=[Op.SIN]), CPU)
    b.split(b.parse("w:8,8@0 x:8,2! h=MUL_MAT(w,x) s=SIN(h)")["s"])
    assert Refused("s", "GPU0", 2, "2.sup", "SIN is not supported", True) in b.of(Refused)


def test_synchronizing_begins_with_the_first_copy_again_unless_a_graph_is_allocated() -> None:
    b = Bench(parallel=True)
    b.alloc(b.parse(LAYERS)["c"])
    b.sched.synchronize()
    assert b.sched.next_copy == 1
    b.sched.reset()
    b.sched.synchronize()
    assert b.sched.next_copy == 0


def test_the_arena_has_room_for_60_tensors_a_node() -> None:
    sched = Bench(graph_size=10).sched
    assert sched.arena.capacity == (10 * 60 * 336 + DEFAULT.graph_overhead(10)) // 368


def foreign() -> Backend:
    """A backend that cannot use its own buffer type."""
    odd = Device("GPU0", "gpu", BufferType("X", "X"), op_table((), True))
    odd.bufts = frozenset()
    return Backend("GPU0", odd)


@pytest.mark.parametrize(
    ("backends", "condition"),
    [
        ([CPU, device("GPU0")], "GGML_BACKEND_DEVICE_TYPE_CPU"),
        ([*(device(f"GPU{i}") for i in range(16)), CPU], "GGML_SCHED_MAX_BACKENDS"),
        ([foreign(), CPU], "ggml_backend_supports_buft"),
    ],
    ids=["the last is no CPU", "17 backends", "foreign memory"],
)
def test_a_scheduler_is_not_made_of(backends: list[Backend], condition: str) -> None:
    with pytest.raises(GgmlAssert, match=condition):
        Bench(*backends)


def test_what_was_decided_before_a_device_failed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Bench()
    t = b.parse("w:64@0 x:64! a=ADD(w,x) c=SIN(a) d=COS(c)")
    supports = Device.supports_op

    def fails(device: Device, op: Tensor) -> bool:
        if op.name == "d":
            raise GgmlAssert("supports_op", "false")
        return supports(device, op)

    def refusal(device: Device, op: Tensor) -> None:
        fails(device, op)

    monkeypatch.setattr(Device, "supports_op", fails)
    monkeypatch.setattr(Device, "refusal", refusal)
    with pytest.raises(GgmlAssert):
        b.split(t["d"])
    assert [(e.tensor, e.by) for e in b.of(Assigned)][-1] == ("c", "a")
    assert b.of(PassedOver)[-1].rule == 1


def attention(b: Bench, rows: int, heads: int) -> Tensor:
    """Attention on a quantized cache: `rows` times `heads` is what its result takes."""
    q = b.input("q", 128, rows, heads)
    k, v = b.placed("k", 128, 256, 2, on=0, type="q8_0"), b.placed("v", 128, 256, 2, on=0, type="q8_0")
    mask = b.input("mask", 256, 64, type="f16")
    return b.node("y", Op.FLASH_ATTN_EXT, q, k, v, mask, ne=(128, heads, rows), type="f32", params=(float_bits(1.0), 0))


def test_14_attention_of_another_batch_may_outgrow_the_plan_though_its_bytes_fit() -> None:
    profile = PROFILES["CUDA"]
    cuda = Backend("CUDA0", make_device(profile, "CUDA0", make_buft(profile, "CUDA0", "CUDA0")))
    b = Bench(cuda, device("CPU", "cpu"))
    few, many = attention(b, 2, 4), attention(b, 4, 2)
    assert few.nbytes == many.nbytes
    b.sched.reserve(b.graph(few))
    b.alloc(many)
    outgrown = [e for e in b.of(ReallocNeeded) if e.tensor == "y"]
    copies = 2 * (2 * 128 * 256 * 2)
    assert [(e.why, e.old_size, e.new_size) for e in outgrown] == [(Why.LARGER, 4096, 4096 + copies)]
