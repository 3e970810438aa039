"""Which tensors have to be read when, so that nodes of a graph can be computed by themselves; and the graph of these.

A node's inputs are taken from where they were made: what lies in a tensor's memory is read before the first node, or
right after the node that wrote to it last. So nodes that work in place, and caches that a graph writes to, keep what
they were before.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import prod
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.op import KEY_NAMES, Op, op_key
from ggmltool.ggml.tensor import Dims, contiguous_nb, nbytes_of
from ggmltool.scenario.errors import Mistake, nearest, quoted
from ggmltool.scenario.gguf import ALIGNMENT, gguf_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

VIEWS = frozenset(("none", "view", "reshape", "permute", "transpose"))
"""Ops that compute nothing."""

MADE = "read"
"""The context of inputs that a node made; the scheduler allocates it."""

_PLACES = ("backend", "in", "at")
"""Where a program put a node: alone it is somewhere else."""

Document = dict[str, Any]


@dataclass(slots=True)
class CutGraph:
    """What is to be read, and the scenario that has it. All tensors go by their ids.

    `inputs` are tensors with their own memory, by the node after which they are read (None: before the first): pairs
    of the id in the cut and the tensor's. `nodes` are those whose results are read, each right after it is computed.
    """

    nodes: list[str] = field(default_factory=list)
    inputs: dict[str | None, list[tuple[str, str]]] = field(default_factory=dict)
    document: Document = field(default_factory=dict)

    @property
    def all_inputs(self) -> Iterator[tuple[str, str]]:
        """Every input, in the order in which they are read."""
        return (pair for pairs in self.inputs.values() for pair in pairs)


def computed_nodes(document: Document, graph: str) -> list[str]:
    """The nodes of a graph that compute something, in its order."""
    spec = document["graphs"][graph]
    idle = set(spec.get("uncomputed", ()))
    return [id for id, t in spec["nodes"].items() if t.get("op", "none") not in VIEWS and id not in idle]


def cut(document: Document, graph: str, wanted: Collection[str]) -> CutGraph:
    """A scenario in long form whose graph has only the `wanted` nodes (each computes something), in their order.

    Tensors that they read and that no wanted node makes are inputs of it. With all nodes wanted the scenario stays as
    it is.
    """
    all_of_it = len(set(wanted)) == len(computed_nodes(document, graph))
    out = _Cutter(document, graph, frozenset(wanted)).cut()
    if all_of_it:
        out.document = document
    return out


class _Cutter:
    """`_holders` has who holds, in the cut, what a tensor with its own memory has now; `_writers` who wrote to it."""

    def __init__(self, document: Document, graph: str, wanted: frozenset[str]) -> None:
        spec = document["graphs"][graph]
        self._document = document
        self._graph = graph
        self._nodes: Mapping[str, Document] = spec["nodes"]
        self._leafs = {id: t for context in document["contexts"].values() for id, t in context["tensors"].items()}
        self._contexts = {id: name for name, context in document["contexts"].items() for id in context["tensors"]}
        self._computed = set(computed_nodes(document, graph))
        self._wanted = wanted
        self._writers: dict[str, str] = {}
        self._holders: dict[str, str] = {}
        self._made: dict[tuple[str, str], str] = {}
        self._out = CutGraph()
        self._placed: dict[str, dict[str, Document]] = {}
        self._kept: dict[str, Document] = {}

    def cut(self) -> CutGraph:
        """Walk through the graph once."""
        for id, node in self._nodes.items():
            if id in self._wanted:
                self._keep(id, node)
                self._out.nodes.append(id)
            elif id in self._computed:
                self._holders.pop(self._root(id), None)
            if id in self._computed:
                self._writers[self._root(id)] = id
        contexts = self._document["contexts"]
        head = {key: value for key, value in self._document.items() if key not in ("contexts", "graphs", "steps")}
        scheduler = {
            key: value for key, value in head.get("scheduler", {}).items() if key not in ("past", "graph_size")
        }
        placed = {}
        for name, tensors in self._placed.items():  # without what lies where in it
            context = contexts.get(name, {})
            placed[name] = {key: context[key] for key in ("buft", "usage") if key in context} | {"tensors": tensors}
        graph = {"nodes": self._kept, "expand": list(self._kept)}
        parts = {"scheduler": scheduler, "contexts": placed, "graphs": {self._graph: graph}}
        self._out.document = head | parts
        return self._out

    def _root(self, id: str) -> str:
        t = self._tensor(id)
        while t.get("view_src") is not None:
            id = t["view_src"]
            t = self._tensor(id)
        return id

    def _tensor(self, id: str) -> Document:
        return self._nodes[id] if id in self._nodes else self._leafs[id]

    def _keep(self, id: str, node: Document) -> None:
        """Put a node into the cut, with what it reads."""
        src = [None if s is None else id if s == id else self._input(s) for s in node.get("src", ())]
        kept = {**{key: value for key, value in node.items() if key not in _PLACES}, "src": src}
        root = self._root(id)
        if root == id:
            self._holders[id] = id
        else:
            kept["view_src"] = self._input(node["view_src"])
        self._kept[id] = kept
        self._made[id, self._holders[root]] = id

    def _input(self, id: str) -> str:
        """The tensor of the cut that stands for one that a node reads."""
        root = self._root(id)
        holder = self._holders.get(root) or self._read(root)
        chain = []
        while (id, holder) not in self._made:
            chain.append(id)
            id = self._behind(id, root)
        found = self._made[id, holder]
        for link in reversed(chain):
            found = self._made[link, holder] = self._view(link, holder, found)
        return found

    def _behind(self, id: str, root: str) -> str:
        """The next tensor on the way from a view to what has the memory."""
        src = self._nodes[id].get("src") if id in self._nodes else None
        if not src:
            return root
        if self._nodes[id].get("op") in VIEWS:
            return str(src[0])
        layout = _layout(self._nodes[id])
        return next((s for s in src if s and self._root(s) == root and _layout(self._tensor(s)) == layout), root)

    def _view(self, id: str, holder: str, behind: str) -> str:
        """A view of what is held, made of the tensor `behind` it; what worked in place is that tensor itself."""
        t = self._tensor(id)
        op = t.get("op", "none")
        if id in self._nodes and op not in VIEWS:
            of = self._kept.get(behind) or next(t[behind] for t in self._placed.values() if behind in t)
            if _layout(t) == _layout(of):
                return behind
        if op not in VIEWS or op == "none":
            offset = t.get("view_offs", 0)
            t = {**t, "op": "view", "op_params": [offset & 0xFFFFFFFF, offset >> 32]}
        taken = id in self._kept or self._is_placed(id) or id in self._wanted
        name = f"{id}@{holder}" if taken else id
        kept = {key: value for key, value in t.items() if key not in ("flags", "data")}
        self._kept[name] = {**kept, "src": [behind], "view_src": holder, "name": t.get("name", id)}
        return name

    def _read(self, root: str) -> str:
        """An input of the cut: what lies in a tensor's memory now."""
        writer = self._writers.get(root)
        name = root if root not in self._kept and not self._is_placed(root) else f"{root}@{writer}"
        t = self._tensor(root)
        leaf: Document = {key: t[key] for key in ("type", "ne", "nb") if key in t}
        if "flags" in t or root not in self._leafs:
            leaf["flags"] = t["flags"] if root in self._leafs else ["input"]
        if t.get("name", root) != name:
            leaf["name"] = t.get("name", root)
        self._placed.setdefault(self._contexts.get(root, MADE), {})[name] = leaf
        self._out.inputs.setdefault(writer, []).append((name, root))
        self._holders[root] = self._made[root, name] = name
        return name

    def _is_placed(self, id: str) -> bool:
        return any(id in tensors for tensors in self._placed.values())


def _layout(t: Document) -> tuple[object, ...]:
    return t["type"], tuple(t["ne"]), tuple(t["nb"]), t.get("view_offs", 0)


def with_data(document: Document, file: str, kept: Collection[str]) -> Document:
    """The scenario with the values of its inputs in a GGUF file beside it, where they are under the same ids."""
    contexts = {
        name: {
            **context,
            "tensors": {
                id: {**t, "data": {"gguf": file, "tensor": id}} if id in kept else t
                for id, t in context["tensors"].items()
            },
        }
        for name, context in document["contexts"].items()
    }
    return {**document, "contexts": contexts}


def op_of(t: Document) -> str:
    """The op of a tensor as ggml describes it, with the function of UNARY and GLU; NONE of what nothing computes."""
    name = str(t.get("op", "none")).upper()
    if name not in Op.__members__:
        return name
    return KEY_NAMES[op_key(Op[name], tuple(t.get("op_params", ()))[:1])].upper()


ALL = "all"


def chosen_nodes(document: dict[str, Any], graph: str, patterns: Sequence[str]) -> list[str]:
    """The nodes that compute something and that `patterns` mean: ids, names that a program gave, globs, or `all`.

    Raises Mistake for a pattern that means none, with what it may have meant.
    """
    nodes = document["graphs"][graph]["nodes"]
    computed = computed_nodes(document, graph)
    names = {id: (id, nodes[id].get("name", id)) for id in computed}
    found: set[str] = set()
    for pattern in patterns:
        hits = [
            id
            for id in computed
            if pattern == ALL or any(name == pattern or fnmatchcase(name, pattern) for name in names[id])
        ]
        if not hits:
            raise Mistake(*_unknown(document, graph, pattern, [n for pair in names.values() for n in pair]))
        found.update(hits)
    return [id for id in computed if id in found]


def _unknown(document: dict[str, Any], graph: str, pattern: str, names: Sequence[str]) -> tuple[str, str]:
    """What is the matter with a pattern, and a hint."""
    node = document["graphs"][graph]["nodes"].get(pattern)
    leafs = {id for context in document["contexts"].values() for id in context["tensors"]}
    if node is not None and node.get("op", "none") in VIEWS:
        behind = node.get("view_src", "")
        return f"{quoted(pattern)} is a view, which computes nothing", f"its values are those of {quoted(behind)}"
    if pattern in leafs:
        return f"{quoted(pattern)} is never computed", "the inputs of the nodes that are named are written, too"
    near = nearest(pattern, names)
    return f"the graph has no node {quoted(pattern)}", f"did you mean {quoted(near)}?" if near else ""


def packed_size(type: DType, ne: Dims) -> int:
    """Bytes of a tensor without gaps."""
    return type.row_size(ne[0]) * prod(ne[1:])


def packed(content: bytes, type: DType, ne: Dims, nb: Dims) -> bytes:
    """The elements in ggml's order, of the ggml_nbytes bytes that a tensor of these strides has.

    Raises ValueError for strides that lead out of them.
    """
    if len(content) != nbytes_of(type, ne, nb):
        raise ValueError(f"{len(content)} bytes are not a tensor of ne {list(ne)} and nb {list(nb)}")
    if nb == contiguous_nb(type, ne) or not content:
        return content
    import numpy as np

    from ggmltool.ggml.values import extent

    shape = (*reversed((ne[0] // type.block_size, *ne[1:])), type.type_size)
    what = f"a tensor of ne {list(ne)} and nb {list(nb)}"
    return bytes(extent.strided(np, np.frombuffer(content, np.uint8), shape, (*nb[::-1], 1), 0, what).tobytes())


_PIECE = 1 << 24


class StoredValues(NamedTuple):
    """A tensor's values in the store: `size` bytes at `offset`."""

    type: DType
    ne: Dims
    offset: int
    size: int


class ValueStore:
    """A temporary file with the values of tensors, by id; a context manager that ends with the file."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - it is there as long as the store is
        self._kept: dict[str, StoredValues] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    @property
    def kept(self) -> Mapping[str, StoredValues]:
        """What is there, in the order in which it came."""
        return self._kept

    @property
    def nbytes(self) -> int:
        """The bytes of all values."""
        return sum(k.size for k in self._kept.values())

    def keep(self, id: str, type: DType, ne: Dims, pieces: Iterable[bytes]) -> None:
        """Take a tensor's values, without gaps, piece by piece. Raises ValueError if these are not all of them."""
        offset = self._file.seek(0, 2)
        size = sum(self._file.write(piece) for piece in pieces)
        if size != packed_size(type, ne):
            raise ValueError(f"{size} bytes are not the values of {id}")
        self._kept[id] = StoredValues(type, ne, offset, size)

    def raw(self, id: str) -> bytes:
        """The bytes of a tensor."""
        kept = self._kept[id]
        self._file.seek(kept.offset)
        return self._file.read(kept.size)

    def values(self, id: str) -> NDArray[Any]:
        """The values of a tensor, of shape `ne` reversed: floats and quantized types as float32, integers as they are.

        Raises KeyError for a type that cannot be read.
        """
        import numpy as np

        from ggmltool.scenario.encoded import can_decode, decode

        kept = self._kept[id]
        if not can_decode(kept.type):
            raise KeyError(id)
        values = decode(self.raw(id), kept.type, kept.ne)
        return values.astype(np.float32, copy=False) if values.dtype.kind == "f" else values

    def write_gguf(self, write: Callable[[bytes], object]) -> None:
        """All of it as a GGUF file without metadata, every tensor in its own type."""
        tensors = ((id.encode("utf-8", "replace"), kept.type.id, kept.ne) for id, kept in self._kept.items())
        write(gguf_bytes({}, tensors)[0])
        for kept in self._kept.values():
            self._file.seek(kept.offset)
            left = kept.size
            while left:
                piece = self._file.read(min(left, _PIECE))
                write(piece)
                left -= len(piece)
            write(bytes(-kept.size % ALIGNMENT))
