"""Devices and backends: what a device can run, which buffer types it can use, which ops it offloads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.op import EMPTY_OPS, KEY_NAMES, N_OP_KEYS, SHARED, Op, OpRules
from ggmltool.ggml.tensor import MAX_SRC, Tensor, nrows

if TYPE_CHECKING:
    from ggmltool.ggml.devices.gpu import Gpu, Queue
    from ggmltool.ggml.devices.unsupported import Unsupported

DeviceType = Literal["cpu", "gpu", "igpu", "accel"]

NOT_IN_TABLE = "{op} is not supported"
NOT_FOR_BUFT = "with source 0 in {buft0} it does not support {op}"

NO = 0
YES = 1
RULE = 2
"""In an op table: the device's rule for the op decides."""

OpRule = Callable[[Tensor], str | None]
"""What a device says to an op: None that it runs it, else why not.

The reason is a text that never changes, so that asking costs no more than a yes or no. What is particular to the op is
filled in when somebody wants to read it, with `str.format`: `{op}`, `{type}` and `{ne[0]}` of the result, `{type1}`,
`{ne1[0]}`, `{nb1[0]}` and `{buft1}` of source 1.
"""

BatchSize = Callable[[Tensor], int]

UseCount = Callable[[Tensor], int]
"""ggml_node_get_use_count: how often the nodes of the graph have a tensor as a source."""

Keep = Callable[[Tensor, Tensor], None]
"""add_alloc_dep: a tensor keeps its memory until a node of the same graph has been computed."""


class SplitNodes(list[Tensor]):
    """The nodes of a split. A device sees the next ones `behind` them too: it is shown a part of the caller's graph."""

    __slots__ = ("behind",)

    def __init__(self, nodes: Iterable[Tensor], behind: Sequence[Tensor] = ()) -> None:
        super().__init__(nodes)
        self.behind = behind

    def node(self, i: int) -> Tensor | None:
        """Node `i`, which may be one behind the split; None where the graph has none."""
        if i < len(self):
            return self[i]
        i -= len(self)
        return self.behind[i] if i < len(self.behind) else None


SEEN_BEHIND = 8
"""Nodes behind a split that a device looks at, at most."""

GraphOrder = Callable[[SplitNodes, UseCount, Keep], list[Tensor]]
"""A device's graph_optimize: the nodes of a split, how often each tensor is used, and whom to tell what has to be kept
until when → the nodes in a better order.
"""

DECIDING_SOURCES = 4
"""Sources whose buffer type may decide about an op, from the first on."""


def memory_owner(buft: BufferType, backends: Sequence[Backend]) -> Backend:
    """The backend whose device has the memory of a buffer type: its own one's, but of what is a device's own type
    only; other host memory, such as what a GPU has pinned, is the last backend's, the CPU's.
    """
    own = next((b for b in backends if b.name == buft.device), backends[-1])
    return own if not buft.host or own.device.buft is buft else backends[-1]


def batch_size(op: Tensor) -> int:
    """The batch size by which a device offloads an op: 0 for GET_ROWS, else columns or rows."""
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


class Refusal(NamedTuple):
    """Why a device does not support an op, in words; `lacks`: it has no such op at all, whatever the operands."""

    text: str
    lacks: bool


@dataclass(slots=True, eq=False, repr=False)
class Device:
    """A ggml_backend_device, as data.

    `table` says for every op key NO, YES or RULE, `rules`, by op key too, decides the RULE ones. `buft` is the default
    buffer type, `bufts` all the types the device can use; `any_host` adds every host type. `offload_min_batch` is the
    batch size from which it offloads ops whose weights lie on the host (None: never). `check` is asked before the table
    and may refuse any op (None: no such rule). `memory` is bytes, None where unknown. `graph_optimize` puts the nodes
    of every split into an order of the device's own (None: they stay as they are). `copies_async` is whether devices of
    its kind copy among themselves without waiting, `sets_async` whether the host's writes and reads need not wait.
    `looks_at_memory`: more than table and rules may decide, such as where the sources lie.
    `ops` are the rules of the ggml whose kernels it has. `unsupported` is how its backend fails on a node that the
    device does not support (None: it computes the node, or its behavior is unknown). `gpu` is the device of this
    machine that computes (None: it is simulated).
    """

    name: str
    type: DeviceType
    buft: BufferType
    table: bytearray
    rules: Mapping[int, OpRule] = field(default_factory=dict)
    bufts: Collection[BufferType] = ()
    any_host: bool = False
    offload_min_batch: int | None = None
    batch_size: BatchSize = batch_size
    events: bool = False
    memory: int | None = None
    check: OpRule | None = None
    copies_async: bool = False
    sets_async: bool | None = None
    graph_optimize: GraphOrder | None = None
    ops: OpRules = SHARED
    unsupported: Unsupported | None = None
    restricted: frozenset[BufferType] = field(init=False)
    deciding: frozenset[BufferType] = field(init=False)
    looks_at_memory: bool = field(init=False)
    gpu: Gpu | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.bufts = frozenset((self.buft, *self.bufts))
        if self.sets_async is None:
            self.sets_async = self.copies_async
        self.restricted = frozenset(b for b in self.bufts if b.ops is not None)
        self.deciding = frozenset(b for b in self.bufts if b.rule is not None)
        self.looks_at_memory = bool(self.restricted or self.deciding) or self.check is not None

    def __repr__(self) -> str:
        return f"<Device {self.name}>"

    def supports_op(self, op: Tensor) -> bool:
        """ggml_backend_dev_supports_op."""
        if self.looks_at_memory:
            return self._refusal(op) is None
        answer = self.table[op.key]
        return answer == YES or (answer == RULE and self.rules[op.key](op) is None)

    @property
    def takes_any_data(self) -> bool:
        """Whether `supports_op` says yes to every tensor that no op computes."""
        return self.check is None and self.table[Op.NONE] == YES

    def why_not(self, op: Tensor) -> str | None:
        """Why the device does not run `op`, in words; None exactly where `supports_op` says yes.

        Both ask the same rules. Like `supports_op` it looks at the sources' memory as it is now: ask before the graph
        is allocated, as the scheduler does. Raises GgmlAssert if ggml's own rule would.
        """
        refusal = self.refusal(op)
        return None if refusal is None else refusal.text

    def refusal(self, op: Tensor) -> Refusal | None:
        """What `why_not` says, and whether the device lacks the op altogether."""
        text = self._refusal(op)
        return None if text is None else Refusal(text.format_map(_particulars(op)), text is NOT_IN_TABLE)

    def _refusal(self, op: Tensor) -> str | None:
        if self.restricted and op.src and op.op not in EMPTY_OPS:
            first = op.src[0]
            if first is not None and first.buffer is not None and first.buffer.buft in self.restricted:
                ops = first.buffer.buft.ops
                return None if ops is not None and op.key in ops else NOT_FOR_BUFT
        if self.deciding and op.op not in EMPTY_OPS:
            for s in op.src[:DECIDING_SOURCES]:
                if s is not None and s.buffer is not None and s.buffer.buft in self.deciding:
                    rule = s.buffer.buft.rule
                    return rule(op) if rule is not None else None
        if self.check is not None:
            refusal = self.check(op)
            if refusal is not None:
                return refusal
        answer = self.table[op.key]
        if answer == RULE:
            return self.rules[op.key](op)
        return None if answer == YES else NOT_IN_TABLE

    def supports_buft(self, buft: BufferType) -> bool:
        """ggml_backend_dev_supports_buft."""
        return buft in self.bufts or (self.any_host and buft.host)

    def why_not_buft(self, buft: BufferType) -> str | None:
        """Why the device cannot use memory of the type `buft`; None exactly where `supports_buft` says yes."""
        if self.supports_buft(buft):
            return None
        own = ", ".join(sorted(b.name for b in self.bufts))
        if self.any_host:
            return f"{buft.name} is not host memory, nor one of its own buffer types ({own})"
        return f"{buft.name} is not one of the buffer types it can use ({own})"

    def offload_op(self, op: Tensor) -> bool:
        """ggml_backend_dev_offload_op: whether the device offloads an op whose weights lie elsewhere."""
        return self.offload_min_batch is not None and self.batch_size(op) >= self.offload_min_batch

    def offloads_from(self, op: Tensor) -> int | None:
        """The batch size from which the device offloads such an op; None: it does not, however large."""
        return self.offload_min_batch


def _particulars(op: Tensor) -> dict[str, object]:
    """What a refusal may name; an empty slot stands for the op itself, as in the rules."""
    words: dict[str, object] = {"op": KEY_NAMES[op.key].upper(), "type": op.type.name, "ne": op.ne, "nb": op.nb}
    words |= {"rows": nrows(op), "bytes": op.nbytes}
    for i in range(MAX_SRC):
        given = op.src[i] if i < len(op.src) else None
        s = op if given is None else given
        words[f"type{i}"] = s.type.name
        words[f"ne{i}"] = s.ne
        words[f"nb{i}"] = s.nb
        words[f"rows{i}"] = nrows(s)
        words[f"bytes{i}"] = s.nbytes
        words[f"buft{i}"] = s.buffer.buft.name if s.buffer is not None else "no memory"
    return words


class Backend:
    """A ggml_backend: a stream of work on a device. `name` is what the scheduler prints.

    `queue` is the real stream, on the device's GPU (None: what it computes is done when the call returns).
    """

    __slots__ = ("device", "name", "queue")

    def __init__(self, name: str, device: Device) -> None:
        self.name = name
        self.device = device
        self.queue: Queue | None = None if device.gpu is None else device.gpu.queue()

    @property
    def engine(self) -> str:
        """Who computes: numpy or cupy."""
        return "numpy" if self.queue is None else "cupy"

    def __repr__(self) -> str:
        return f"<Backend {self.name}>"
