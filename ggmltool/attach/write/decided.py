"""What a program's scheduler decided, in the shape of a plan: splits, nodes, leafs, copies, sizes of buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ggmltool.attach.errors import AttachError
from ggmltool.attach.state import Answers, Snapshot
from ggmltool.attach.write.names import ScenarioNames
from ggmltool.ggml.devices.questions import trimmed
from ggmltool.ggml.tensor import cut_name
from ggmltool.sources.graph_writer import text, without_controls
from ggmltool.state.memory.tensors import TensorStruct


class _Place(NamedTuple):
    buffer: str | None
    usage: str | None
    chunk: int | None
    offset: int | None


_NOWHERE = _Place(None, None, None, None)


def decided(
    after: Snapshot, ids: Mapping[int, str], names: ScenarioNames, step: str = "alloc", answers: Answers | None = None
) -> dict[str, Any]:
    """What was decided, after a call of the scheduler: the keys of `Plan.as_dict` from `splits` to `buffer_sizes`.

    `ids` are those of the scenario by address, `names` its backends and buffer types. After a reserve there are no
    assignments of tensors any more, but in the scheduler's own graph. `alloc_size` is None where it was not asked.
    """
    return _Decided(after, ids, names, answers).plan(step)


class _Decided:
    """One reading of a snapshot."""

    def __init__(self, after: Snapshot, ids: Mapping[int, str], names: ScenarioNames, answers: Answers | None) -> None:
        self.after = after
        self.sched = after.sched
        self.ids = ids
        self.names = names
        self.sizes = answers.sizes if answers is not None else {}
        galloc = after.sched.galloc
        self.chunks = {buffer: i for buffers in galloc.buffers for i, buffer in enumerate(buffers)}
        wanted = set(after.graph.nodes)
        own = after.sched.graph.nodes
        self.positions = {node: i for i, node in enumerate(own) if node in wanted}

    def plan(self, step: str) -> dict[str, Any]:
        return {
            "kind": "plan",
            "ggml": self.after.release,
            "step": step,
            "ok": True,
            "backends": [
                {"name": name, "buft": self.names.bufts[buft]}
                for name, buft in zip(self.names.backends, self.sched.bufts, strict=True)
            ],
            "splits": self._splits(),
            "nodes": self._nodes(),
            "leafs": self._leafs(),
            "copies": self._copies(),
            "buffer_sizes": self._buffer_sizes(),
        }

    def _tensor(self, address: int) -> TensorStruct:
        found = self.after.tensors.get(address)
        if found is None:
            raise AttachError(f"the scheduler names a tensor at {address:#x}, where nothing can be read")
        return found

    def _name(self, address: int) -> str:
        known = self.ids.get(address)
        return known if known is not None else self._text(address)

    def _text(self, address: int) -> str:
        """A tensor's own name, as much of it as a scenario keeps."""
        return cut_name(without_controls(text(self._tensor(address).name)))

    def _splits(self) -> list[dict[str, Any]]:
        return [
            {
                "id": i,
                "backend": self.names.backend(split.backend_id),
                "i_start": split.i_start,
                "i_end": split.i_end,
                "inputs": [self._name(t) for t in split.inputs],
            }
            for i, split in enumerate(self.sched.splits)
        ]

    def _place(self, t: TensorStruct) -> _Place:
        buffer = self.after.buffers.get(t.buffer)
        if not t.buffer or buffer is None:
            return _NOWHERE
        offset = None if buffer.base is None else t.data - buffer.base
        return _Place(self.names.bufts.get(buffer.buft), buffer.usage_name, self.chunks.get(t.buffer, 0), offset)

    def _nodes(self) -> list[dict[str, Any]]:
        after, sched = self.after, self.sched
        split_of = [i for i, split in enumerate(sched.splits) for _ in range(split.i_end - split.i_start)]
        out = []
        for index, address in enumerate(after.graph.nodes):
            t = self._tensor(address)
            position = self.positions.get(address, -1)
            known = 0 <= position < len(sched.node_backend_ids)
            out.append(
                {
                    "index": index,
                    "id": self._name(address),
                    "name": self._text(address),
                    "type": after.type_names.get(t.type),
                    "ne": list(t.ne),
                    "nb": list(t.nb),
                    "backend": self.names.backend(sched.node_backend_ids[position]) if known else None,
                    "split": split_of[index] if index < len(split_of) else None,
                    "use_count": after.graph.use_counts.get(address, 0),
                    "src": [self._name(s) if s else None for s in trimmed(t.src)],
                    **self._place(t)._asdict(),
                    "alloc_size": self._alloc_size(address, t),
                }
            )
        return out

    def _alloc_size(self, address: int, t: TensorStruct) -> int | None:
        buffer = self.after.buffers.get(t.buffer)
        return None if t.view_src or buffer is None else self.sizes.get((address, buffer.buft))

    def _leafs(self) -> list[dict[str, Any]]:
        sched = self.sched
        leafs = self.after.graph.leafs
        first = len(sched.graph.leafs) - len(leafs)
        return [
            {
                "index": i,
                "id": self._name(address),
                "backend": self.names.backend(_at(sched.leaf_backend_ids, first + i)),
                **self._place(self._tensor(address))._asdict(),
            }
            for i, address in enumerate(leafs)
        ]

    def _copies(self) -> list[dict[str, Any]]:
        sched = self.sched
        own = sched.graph
        out = []
        if sched.n_copies > 1:
            # All copies are the first leafs of the scheduler's own graph: of graph inputs, then of splits' inputs.
            originals = [*sched.graph_inputs, *(t for split in sched.splits for t in split.inputs)]
            for i, (of, copy) in enumerate((of, c) for of in originals for c in range(sched.n_copies)):
                if i < len(own.leafs):
                    out.append(self._copy(own.leafs[i], of, _at(sched.leaf_backend_ids, i), copy))
            return out
        nodes = self.after.graph.nodes
        for split in sched.splits:
            # A split's nodes follow two for each input: a dependency on it, and its copy.
            first = self.positions.get(nodes[split.i_start], 0) if split.i_start < len(nodes) else 0
            for k, of in enumerate(split.inputs):
                position = first - 2 * (len(split.inputs) - k) + 1
                if 0 <= position < len(own.nodes):
                    out.append(self._copy(own.nodes[position], of, split.backend_id, 0))
        return out

    def _copy(self, address: int, of: int, backend: int, copy: int) -> dict[str, Any]:
        t = self._tensor(address)
        place = self._place(t)
        return {
            "name": self._text(address),
            "of": self._name(of),
            "backend": self.names.backend(backend),
            "copy": copy,
            "buffer": place.buffer,
            "chunk": place.chunk,
            "offset": place.offset,
        }

    def _buffer_sizes(self) -> dict[str, int]:
        """ggml_backend_sched_get_buffer_size of each backend: 0 where an earlier one has the same buffers."""
        out: dict[str, int] = {}
        galloc, seen = self.sched.galloc, set()
        for name, buft, made in zip(self.names.backends, galloc.bufts, galloc.buffers, strict=True):
            out[name] = 0 if buft in seen else sum(self.after.buffers[b].size for b in made if b in self.after.buffers)
            seen.add(buft)
        return out


def _at(numbers: Sequence[int], i: int) -> int:
    return numbers[i] if 0 <= i < len(numbers) else -1
