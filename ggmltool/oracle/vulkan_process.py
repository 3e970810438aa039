"""The process that has the real Vulkan backend: it answers what `ggmltool.oracle.vulkan` asks.

It is a process of its own, since Vulkan does not live through a fork, and since libraries of two ggmls have one name.
`python -m ggmltool.oracle.vulkan_process FOLDER` reads questions from its standard input and writes the answers to its
standard output, both as `ggmltool.oracle.fork.write_message` has them.
"""

from __future__ import annotations

import ctypes
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ggmltool.ggml.buffer import USAGE_WEIGHTS
from ggmltool.ggml.version import MEM_ALIGN
from ggmltool.oracle import fork, structs
from ggmltool.oracle.lib import LOG_CALLBACK, Files, Lib, OracleUnavailable
from ggmltool.oracle.structs import MAX_SRC, CGraphStruct, Tensor

Raw = Mapping[int, bytes]
"""Tensors as ggml_tensor structs by the addresses that they have for each other; `buffer` is 1 for weights, else 0."""


class VulkanBackend:
    """The backend on the first visible device."""

    def __init__(self, lib: Lib, vulkan: ctypes.CDLL) -> None:
        self.lib = lib
        reg = _function(vulkan, "ggml_backend_vk_reg", ctypes.c_void_p)()
        if not reg:
            raise NoDevice("there is no Vulkan driver")
        if not _function(vulkan, "ggml_backend_vk_get_device_count", ctypes.c_int)():
            raise NoDevice("the Vulkan drivers have no device")
        self.backend = _function(vulkan, "ggml_backend_vk_init", ctypes.c_void_p, ctypes.c_size_t)(0)
        self.buft = _function(vulkan, "ggml_backend_vk_buffer_type", ctypes.c_void_p, ctypes.c_size_t)(0)
        self.device = int(lib.ggml_backend_reg_dev_get(reg, 0))
        interface = structs.Backend.from_address(self.backend).iface
        self._optimize = lib.structs.prototype("ggml_backend_i", "graph_optimize")(interface.graph_optimize)
        self._weights = int(lib.ggml_backend_buft_alloc_buffer(self.buft, 64))
        lib.ggml_backend_buffer_set_usage(self._weights, USAGE_WEIGHTS)
        device = structs.Device.from_address(self.device).iface
        of_device = partial(lib.structs.prototype, "ggml_backend_device_i")
        self.description = ctypes.string_at(of_device("get_description")(device.get_description)(self.device)).decode()
        self._offloads = of_device("offload_op")(device.offload_op)

    def about(self) -> tuple[str, str, int, int]:
        """The device's description, ggml's version, and the memory's alignment and largest buffer, in bytes."""
        lib, buft = self.lib, self.buft
        alignment, max_size = lib.ggml_backend_buft_get_alignment(buft), lib.ggml_backend_buft_get_max_size(buft)
        return self.description, lib.version, alignment, max_size

    def answers(self, raw: Raw, ops: Sequence[int]) -> list[tuple[bool, int, bool]]:
        """Whether the device runs each op, the bytes that its result takes, and whether it offloads it."""
        lib = self.lib
        with lib.context(_room(lib, len(raw))) as ctx:
            made = self._make(ctx, raw)
            return [
                (
                    bool(lib.ggml_backend_dev_supports_op(self.device, made[op])),
                    int(lib.ggml_backend_buft_get_alloc_size(self.buft, made[op])),
                    bool(self._offloads(self.device, made[op])),
                )
                for op in ops
            ]

    def order(self, raw: Raw, nodes: Sequence[int], uses: Sequence[int]) -> tuple[list[int], list[tuple[int, int]]]:
        """What graph_optimize makes of nodes, each so often used in the whole graph: the nodes in their new order, and
        pairs of a tensor with the node until which its memory is kept.
        """
        lib = self.lib
        with lib.context(_room(lib, len(raw))) as ctx:
            made = self._make(ctx, raw)
            graph = CGraphStruct.from_address(lib.graph(ctx, [made[n] for n in nodes], len(raw) + 1))
            graph.n_nodes = len(nodes)
            for i, (node, n_uses) in enumerate(zip(nodes, uses, strict=True)):
                graph.nodes[i] = made[node]
                # Putting it into a graph has changed its flags.
                Tensor.from_address(made[node]).flags = Tensor.from_buffer_copy(raw[node]).flags
                graph.use_counts[graph.slot(made[node])] = n_uses
            kept: list[tuple[int, int]] = []
            add = structs.ADD_ALLOC_DEP(lambda _, tensor, until: kept.append((tensor, until)))
            params = structs.GraphOptimizeParams(ctypes.cast(add, ctypes.c_void_p), None)
            self._optimize(self.backend, ctypes.addressof(graph), ctypes.addressof(params))
            names = {address: given for given, address in made.items()}
            order = [names[graph.nodes[i]] for i in range(len(nodes))]
            return order, [(names[tensor], names[until]) for tensor, until in kept]

    def compute(
        self, raw: Raw, nodes: Sequence[int], content: Mapping[int, bytes], wanted: Sequence[int]
    ) -> dict[int, bytes]:
        """Computes nodes of a graph in this order, given what some tensors hold; what the wanted ones hold then."""
        lib = self.lib
        with lib.context(_room(lib, len(raw))) as ctx:
            made = self._make(ctx, raw)
            buffer = lib.ggml_backend_alloc_ctx_tensors_from_buft(ctx, self.buft)
            if not buffer:
                raise NoMemory("the Vulkan device has no memory for the operands")
            try:
                for t, data in content.items():
                    lib.set(made[t], data)
                graph = lib.graph(ctx, [made[n] for n in nodes], len(raw) + 1)
                status = lib.ggml_backend_graph_compute(self.backend, graph)
                if status:
                    raise NoMemory(f"ggml_backend_graph_compute: status {status}")
                return {t: lib.get(made[t]) for t in wanted}
            finally:
                lib.ggml_backend_buffer_free(buffer)

    def _make(self, ctx: int, raw: Raw) -> dict[int, int]:
        """The tensors, in ggml's memory: the addresses that they were given → their own."""
        one = (ctypes.c_int64 * 1)(1)
        made = {given: int(self.lib.ggml_new_tensor(ctx, 0, 1, one)) for given in raw}
        for given, data in raw.items():
            ctypes.memmove(made[given], data, len(data))
            t = Tensor.from_address(made[given])
            t.buffer = self._weights if t.buffer else None
            for i in range(MAX_SRC):
                if t.src[i]:
                    t.src[i] = made[t.src[i]]
            if t.view_src:
                t.view_src = made[t.view_src]
        return made


class NoDevice(Exception):  # noqa: N818 - it says what is the matter
    """There is nothing to run on."""


class NoMemory(Exception):  # noqa: N818 - it says what is the matter
    """The device could not compute."""


def _function(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
    made: Callable[..., Any] = function
    return made


def _room(lib: Lib, n_tensors: int) -> int:
    """Bytes of a context for so many tensors and a graph of them."""
    graph = int(lib.ggml_graph_overhead_custom(n_tensors + 1, False))
    return n_tensors * int(lib.ggml_tensor_overhead()) + graph + MEM_ALIGN


def serve(folder: Path) -> None:
    """Answers until standard input ends."""
    answers = os.dup(1)
    os.dup2(2, 1)
    fork.quiet_child()

    def on_abort(message: bytes) -> None:
        fork.write_message(answers, ("abort", message.decode("utf-8", "surrogateescape")))
        os._exit(0)

    silent = LOG_CALLBACK(lambda *_: None)
    callback = fork.ABORT_CALLBACK(on_abort)
    try:
        lib = Lib(Files(folder / "lib" / "libggml-base.so.0", folder / "bin" / "libggml-cpu.so"))
        vulkan = ctypes.CDLL(str(folder / "bin" / "libggml-vulkan.so"))
        lib.ggml_log_set(silent, None)
        lib.ggml_set_abort_callback(callback)
        backend = VulkanBackend(lib, vulkan)
    except (OSError, OracleUnavailable, NoDevice) as error:
        fork.write_message(answers, ("missing", str(error)))
        return
    fork.write_message(answers, ("value", backend.about()))
    while True:
        try:
            name, arguments = fork.read_message(0)
        except EOFError:
            os._exit(0)
        try:
            fork.write_message(answers, ("value", getattr(backend, name)(*arguments)))
        except NoMemory as error:
            fork.write_message(answers, ("failed", str(error)))
        except Exception:
            fork.write_message(answers, ("raised", traceback.format_exc()))


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
