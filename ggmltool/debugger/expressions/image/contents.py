"""What lies in buffers: what was computed, or the data that the scenario has for tensors, where they are."""

from __future__ import annotations

from functools import partial

from ggmltool.debugger.expressions.image.devices import Devices
from ggmltool.debugger.expressions.image.program import Program
from ggmltool.debugger.expressions.image.tensors import Tensors
from ggmltool.debugger.expressions.memory import Memory, Read
from ggmltool.ggml.state import TensorState
from ggmltool.structs.declarations import NoMemoryError


class Contents:
    """The bytes of the buffers: what `computed` gives for an address, and where nothing is computed only those that a
    tensor with data of its own lies over.
    """

    def __init__(self, program: Program, tensors: Tensors, devices: Devices, memory: Memory, computed: Read) -> None:
        self._computed = computed
        self._data = {t.id: t for t in program.model.tensors() if t.data is not None}
        self._bounds = program.model.bounds
        self._tensors = tensors
        self._known: list[tuple[int, TensorState]] | None = None
        self._made: dict[int, bytes] = {}
        for facts in devices.buffers():
            if facts is not None and facts.base and facts.size:
                memory.add(facts.base, facts.size, partial(self._read, facts.base))

    def _read(self, base: int, offset: int, n: int) -> bytes:
        at, out = base + offset, b""
        while len(out) < n:
            part = self._part(at + len(out), n - len(out))
            if not part:
                break
            out += part
        if not out:
            raise NoMemoryError(at)
        return out

    def _part(self, at: int, n: int) -> bytes:
        """What is known from an address on; nothing if no tensor with data lies there."""
        computed = self._computed(at, n)
        if computed:
            return computed
        for index, cell in self._there():
            raw = self._raw(index, cell) if cell.data <= at else b""
            if at < cell.data + len(raw):
                return raw[at - cell.data : at - cell.data + n]
        return b""

    def _there(self) -> list[tuple[int, TensorState]]:
        if self._known is None:
            self._known = [(i, cell) for i, cell in self._tensors.all() if cell.data and cell.id in self._data]
        return self._known

    def _raw(self, index: int, cell: TensorState) -> bytes:
        if index not in self._made:
            spec = self._data[cell.id]
            assert spec.data is not None
            self._made[index] = spec.data.raw(spec.type, spec.ne, spec.nb, self._bounds)
        return self._made[index]
