"""Devices and backends: what a device can run, which buffer types it can use, which ops it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.op import N_OP_KEYS, VIEW_OPS, Op
from ggmltool.ggml.tensor import Tensor, nrows

DeviceType = Literal["cpu", "gpu", "igpu", "accel"]

NO = 0
YES = 1
RULE = 2
"""In an op table: the device's rule for the op decides."""

OpRule = Callable[[Tensor], bool]
BatchSize = Callable[[Tensor], int]

EMPTY_OPS: tuple[int, ...] = (int(Op.NONE), *(int(op) for op in VIEW_OPS))
"""ggml_op_is_empty: ops that every device has, since they compute nothing."""


def batch_size(op: Tensor) -> int:
    """The batch size a device looks at before it asks for an op: 0 for get_rows, else columns or rows."""
    if op.op == Op.GET_ROWS:
        return 0
    if op.op == Op.MUL_MAT:
        return op.ne[1]
    if op.op in (Op.MUL_MAT_ID, Op.ROPE, Op.ROPE_BACK):
        return op.ne[2]
    return nrows(op)


def op_table(keys: Iterable[int], exclude: bool, rules: Iterable[int] = ()) -> bytearray:
    """A table by op key: NO or YES by the list, RULE for the ops among `rules` that are not NO."""
    table = bytearray([YES if exclude else NO]) * N_OP_KEYS
    for key in keys:
        table[key] = NO if exclude else YES
    for key in rules:
        if table[key]:
            table[key] = RULE
    for key in EMPTY_OPS:
        table[key] = YES
    return table


class Device:
    """A ggml_backend_device, as data.

    `table` says for every op key NO, YES or RULE, `rules` decides the RULE ones. `buft` is the default buffer type,
    `bufts` all the types the device can use; `any_host` adds every host type. `offload_min_batch` is the batch size
    from which it asks for ops whose weights lie on the host (None: never). `check` is asked before the table and
    may refuse any op (None: no such rule). `memory` is bytes, None where unknown.
    """

    __slots__ = (
        "any_host",
        "batch_size",
        "buft",
        "bufts",
        "check",
        "copies_async",
        "events",
        "memory",
        "name",
        "offload_min_batch",
        "restricted",
        "rules",
        "table",
        "type",
    )

    def __init__(
        self,
        name: str,
        type: DeviceType,
        buft: BufferType,
        table: bytearray,
        rules: dict[int, OpRule] | None = None,
        bufts: Iterable[BufferType] = (),
        any_host: bool = False,
        offload_min_batch: int | None = None,
        batch_size: BatchSize = batch_size,
        events: bool = False,
        memory: int | None = None,
        check: OpRule | None = None,
        copies_async: bool = False,
    ) -> None:
        self.name = name
        self.type = type
        self.buft = buft
        self.table = table
        self.rules = rules or {}
        self.bufts = frozenset((buft, *bufts))
        self.any_host = any_host
        self.offload_min_batch = offload_min_batch
        self.batch_size = batch_size
        self.events = events
        self.memory = memory
        self.check = check
        self.copies_async = copies_async
        self.restricted = frozenset(b for b in self.bufts if b.ops is not None)

    def __repr__(self) -> str:
        return f"<Device {self.name}>"

    @property
    def has_simple_ops(self) -> bool:
        """Whether `table` alone decides, wherever sources lie."""
        return not self.restricted and self.check is None and RULE not in self.table

    def supports_op(self, op: Tensor) -> bool:
        """ggml_backend_dev_supports_op."""
        answer = self.table[op.key]
        if self.restricted and op.src and op.op not in EMPTY_OPS:
            first = op.src[0]
            if first is not None and first.buffer is not None and first.buffer.buft in self.restricted:
                ops = first.buffer.buft.ops
                return ops is not None and op.key in ops
        if self.check is not None and not self.check(op):
            return False
        if answer == RULE:
            return self.rules[op.op](op)
        return answer == YES

    def supports_buft(self, buft: BufferType) -> bool:
        """ggml_backend_dev_supports_buft."""
        return buft in self.bufts or (self.any_host and buft.host)

    def offload_op(self, op: Tensor) -> bool:
        """ggml_backend_dev_offload_op: whether the device asks for an op whose weights lie elsewhere."""
        return self.offload_min_batch is not None and self.batch_size(op) >= self.offload_min_batch


class Backend:
    """A ggml_backend: a stream of work on a device. `name` is what the scheduler prints."""

    __slots__ = ("device", "name")

    def __init__(self, name: str, device: Device) -> None:
        self.name = name
        self.device = device

    def __repr__(self) -> str:
        return f"<Backend {self.name}>"
