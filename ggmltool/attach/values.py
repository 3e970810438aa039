"""Values of tensors while a program computes a graph, each read where it was just made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

from ggmltool.attach.devices.backends import NoRoom, mapped, unmapped
from ggmltool.attach.eval_callback import EvalCallback
from ggmltool.attach.gdb.link import FunctionCall
from ggmltool.attach.reading import ProcessReader
from ggmltool.attach.session import AttachSession
from ggmltool.ggml.dtypes import TYPES, DType
from ggmltool.ggml.tensor import Dims, contiguous_nb, nbytes_of
from ggmltool.scenario.errors import Mistake
from ggmltool.sources.values.cut import CutGraph, ValueStore, chosen_nodes, computed_nodes, cut, packed, packed_size
from ggmltool.state.errors import AttachError, NoBytes
from ggmltool.state.memory.fields import StructFields
from ggmltool.state.memory.pages import c_string
from ggmltool.structs.layout import layout

PIECE = 16 << 20
"""Bytes that are read at once, at most: what the program's own memory takes for reading back."""


class UnreadableTensor(Exception):  # noqa: N818 - it says what is the matter
    """A tensor whose values the program cannot give; the message says why."""


class _Buffer(NamedTuple):
    """A ggml_backend_buffer: its bytes, where they begin, whether the host reads them, and whether a function does."""

    base: int
    size: int
    host: bool
    can_get: bool
    name: str


class TensorBytes:
    """A context manager; at its end the memory that was taken in the program for reading is given back."""

    def __init__(self, session: AttachSession) -> None:
        self.link = session.link
        self.instance = session.instance
        structs = layout(self.instance.structs, self.instance.max_name)
        self._tensor = StructFields(structs, "ggml_tensor", ("buffer", "view_src", "data"))
        self._buffer = StructFields(structs, "ggml_backend_buffer", ("iface.get_tensor", "buft|", "size"))
        self._buffers: dict[int, _Buffer] = {}
        self._room = 0
        self._gathered: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._room:
            room, self._room = self._room, 0
            unmapped(self.link, room, PIECE)

    def refusal(self, tensor: int) -> str:
        """Why the values of a tensor that has its memory already cannot be read; "" if they can, or it has none yet."""
        try:
            buffer, _ = self._where(tensor)
        except UnreadableTensor:
            return ""
        if buffer.host or buffer.can_get:
            return ""
        return f"{buffer.name} keeps it in an order of its own and does not give it back"

    def gather(self, tensors: Iterable[tuple[int, int]]) -> None:
        """Have the program copy tensors of these sizes to its host memory all at once, as many as there is room for:
        from there they are read until it goes on. Raises LinkError."""
        self._gathered, end, calls = {}, 0, []
        for tensor, size in tensors:
            try:
                buffer, data = self._where(tensor)
            except UnreadableTensor:
                continue
            inside = buffer.base <= data <= buffer.base + buffer.size - size
            if inside and not buffer.host and end + size <= PIECE:
                calls.append(self._get(tensor, end, 0, size))
                self._gathered[tensor] = end
                end += size
        if calls:
            self.link.call(calls, alone=False)

    def pieces(self, tensor: int, size: int) -> Iterator[bytes]:
        """The `size` bytes of a tensor, its ggml_nbytes, from where its data begins. Raises Unreadable, LinkError."""
        buffer, data = self._where(tensor)
        if not buffer.base <= data <= buffer.base + buffer.size - size:
            raise UnreadableTensor(f"its {size} bytes are not all in its buffer")
        for at in range(0, size, PIECE):
            n = min(PIECE, size - at)
            if buffer.host:
                there = data + at
            elif tensor in self._gathered:
                there = self._room + self._gathered[tensor] + at
            else:
                # Its other threads go on, for a device may need them.
                self.link.call([self._get(tensor, 0, at, n)], alone=False)
                there, self._gathered = self._room, {}
            try:
                yield self.link.read(there, n)
            except NoBytes as error:
                raise UnreadableTensor(str(error)) from None

    def _where(self, tensor: int) -> tuple[_Buffer, int]:
        buffer, view_src, data = self._tensor.unpack(self.link.read(tensor, self._tensor.size))
        if view_src:
            buffer = self._tensor.unpack(self.link.read(view_src, self._tensor.size))[0]
        if not buffer or not data:
            raise UnreadableTensor("it has no memory")
        if buffer not in self._buffers:
            get, _, size = self._buffer.unpack(self.link.read(buffer, self._buffer.size))
            asked = (("get_base", "unsigned long"), ("is_host", "unsigned char"), ("name", "unsigned long"))
            base, host, name = self.link.call(
                [
                    FunctionCall(self.instance.address(f"ggml_backend_buffer_{function}"), result, (buffer,))
                    for function, result in asked
                ]
            )
            called = c_string(self.link, name) if name else "its buffer"
            self._buffers[buffer] = _Buffer(base or 0, size, bool(host), bool(get), called)
        return self._buffers[buffer], data

    def _get(self, tensor: int, to: int, offset: int, size: int) -> FunctionCall:
        if not self._room:
            try:
                self._room = mapped(self.link, PIECE)
            except NoRoom as error:
                raise AttachError(f"tensors of a device cannot be read: {error}") from None
        get = self.instance.address("ggml_backend_tensor_get")
        return FunctionCall(get, "void", (tensor, self._room + to, offset, size))


Document = dict[str, Any]

_SHOWN = 5


@dataclass(slots=True)
class CapturedValues:
    """What was read: `document` is the scenario of the nodes, `inputs` and `nodes` are the ids of its tensors whose
    values are in the store, nodes in the order in which they were computed. `own`: the program has an eval callback of
    its own, and only the nodes that it asked for were `seen`. `unreadable` says of tensors why their values could not
    be read, and `left_out` names the nodes that need these. `ran_on` has the number of the backend that computed a
    node."""

    document: Document
    inputs: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    own: bool = False
    seen: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    ran_on: dict[str, int] = field(default_factory=dict)


class Capture:
    """Reads values of a graph that a program has just begun to compute: it stands at the entry of
    ggml_backend_sched_graph_compute or ggml_backend_sched_graph_compute_async. `document` is the scenario of the graph,
    `ids` has the id of each tensor by its address. Making it reads nothing but what has to be known before: `nbytes`
    are the bytes of all values. Of the graph `nodes` are wanted (names, ids, globs, `all`), which may have `max_bytes`
    with their inputs (None: any). Raises AttachError, Mistake."""

    def __init__(
        self,
        session: AttachSession,
        document: Document,
        graph: str,
        ids: Mapping[int, str],
        sched: int,
        nodes: tuple[str, ...],
        max_bytes: int | None,
    ) -> None:
        self.session = session
        self.sched = sched
        self.addresses = {id: address for address, id in ids.items()}
        self.tensors = dict(document["graphs"][graph]["nodes"])
        for context in document["contexts"].values():
            self.tensors |= context["tensors"]
        self.callback = EvalCallback(session, sched)
        self.wanted = chosen_nodes(document, graph, nodes)
        self.computed = computed_nodes(document, graph)
        # Where the program's own callback decides what is seen, inputs can only be read before the first node.
        self.cut, self.out = self._readable(document, graph, self.computed if self.callback.own else self.wanted)
        kept = set(self.cut.nodes)
        self.wanted = [id for id in self.wanted if id in kept]
        sizes = {
            id: packed_size(*self._layout(id)[:2]) for id in (*self.wanted, *(id for _, id in self.cut.all_inputs))
        }
        inputs = sum(sizes[id] for _, id in self.cut.all_inputs)
        self.nbytes = inputs + sum(sizes[id] for id in self.wanted)
        if max_bytes is not None and self.nbytes > max_bytes:
            of = f"{len(self.wanted)} nodes" if len(self.wanted) != 1 else "a node"
            raise Mistake(
                f"the values of {of} take {_rounded(self.nbytes)}, {_rounded(inputs)} of it for what they are "
                f"computed from; at most {_rounded(max_bytes)} are read",
                f"name fewer nodes, or allow more: --max-bytes {_rounded(self.nbytes).replace(' ', '')}",
            )

    def run(self, store: ValueStore) -> CapturedValues:
        """Let the program compute the graph, to the end of the function, with what is read on the way. Raises
        AttachError."""
        out, wanted = self.out, set(self.wanted)
        out.own = self.callback.own
        after = {id for id in self.cut.inputs if id is not None}
        ids = {self.addresses[id]: id for id in (self.computed if out.own else wanted | after)}
        with TensorBytes(self.session) as memory:

            def first() -> None:
                self._read(memory, store, None)

            def computed(address: int) -> None:
                id = ids[address]
                out.seen.append(id)
                self._read(memory, store, id, [id] if id in wanted else [])

            self.callback.watch(ids.keys(), first, computed)
        if not out.nodes:
            seen = f"it asked for {', '.join(out.seen[:_SHOWN])}" if out.seen else "none was computed"
            raise AttachError(
                f"none of these nodes was seen while the program computed its graph: {seen}", refused=True
            )
        backends = ProcessReader(self.session).sched(self.sched).tensor_backend_ids
        out.ran_on = {id: backends[self.addresses[id]] for id in out.nodes if self.addresses[id] in backends}
        return out

    def _readable(self, document: Document, graph: str, wanted: Sequence[str]) -> tuple[CutGraph, CapturedValues]:
        """The cut of those nodes whose inputs the program can give back."""
        unreadable: dict[str, str] = {}
        left = list(wanted)
        computed = set(computed_nodes(document, graph))
        with TensorBytes(self.session) as memory:
            while True:
                taken = cut(document, graph, left)
                missing = {}
                for _, id in taken.all_inputs:
                    why = memory.refusal(self.addresses[id]) if id not in computed else ""
                    if why:
                        missing[id] = why
                if not missing:
                    break
                unreadable |= missing
                left = [
                    id
                    for id in left
                    if not any(self._root(s) in missing for s in self.tensors[id].get("src", ()) if s is not None)
                ]
        if not left:
            why = "; ".join(f"{id}: {reason}" for id, reason in list(unreadable.items())[:3])
            raise AttachError(f"the values that these nodes are computed from cannot be read ({why})")
        kept = set(left)
        return taken, CapturedValues(
            taken.document, unreadable=unreadable, left_out=[id for id in wanted if id not in kept]
        )

    def _root(self, id: str) -> str:
        while self.tensors[id].get("view_src") is not None:
            id = self.tensors[id]["view_src"]
        return id

    def _layout(self, id: str) -> tuple[DType, Dims, Dims]:
        t = self.tensors[id]
        return TYPES[t["type"]], _dims(t["ne"]), _dims(t["nb"])

    def _read(self, memory: TensorBytes, store: ValueStore, after: str | None, nodes: Sequence[str] = ()) -> None:
        """Read these nodes, and the inputs that are to be read when the node `after` has been computed."""
        inputs = self.cut.inputs.get(after, ())
        ids = [*nodes, *(id for _, id in inputs)]
        memory.gather((self.addresses[id], nbytes_of(*self._layout(id))) for id in dict.fromkeys(ids))
        for id in nodes:
            self._keep(memory, store, id, id)
            self.out.nodes.append(id)
        for name, id in inputs:
            self._keep(memory, store, name, id)
            self.out.inputs.append(name)

    def _keep(self, memory: TensorBytes, store: ValueStore, name: str, id: str) -> None:
        type, ne, nb = self._layout(id)
        try:
            pieces = memory.pieces(self.addresses[id], nbytes_of(type, ne, nb))
            plain = nb == contiguous_nb(type, ne)
            store.keep(name, type, ne, pieces if plain else [packed(b"".join(pieces), type, ne, nb)])
        except (UnreadableTensor, ValueError) as error:
            raise AttachError(f"the values of {id} cannot be read: {error}") from None


def _rounded(nbytes: int) -> str:
    """Bytes in whole units, rounded up."""
    unit, shift = ("MiB", 20) if nbytes >= 10 << 20 else ("KiB", 10)
    return f"{-(-nbytes >> shift)} {unit}"


def _dims(values: Iterable[int]) -> Dims:
    a, b, c, d = values
    return a, b, c, d
