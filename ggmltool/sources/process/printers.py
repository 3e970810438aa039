"""How gdb prints ggml's structs in a program with debug information: what they are first, then their fields, no more
than fits a screen. gdb's own Python runs this file. `print/r` shows a struct as it is.

A struct may be garbage: every number that counts something is bounded, and what cannot be read is said to be so.
"""

import gdb
import gdb.printing

MOST = 10
"""How many nodes, splits or blocks are shown of many."""

_BAD = "<cannot be read>"


def _get(value, name):
    """A field, None of a struct that has no such."""
    try:
        return value[name]
    except (gdb.error, RuntimeError):
        return None


def _int(value, name):
    """A field as a number, None where there is none to read."""
    field = _get(value, name)
    try:
        return None if field is None else int(field)
    except (gdb.error, RuntimeError):
        return None


def _count(value, name, most=MOST):
    """How many there are, and how many of them are shown."""
    n = max(_int(value, name) or 0, 0)
    return n, min(n, most)


def _text(array):
    """The text in an array of char, with escapes for what is no text."""
    try:
        raw = bytes(int(array[i]) & 255 for i in range(int(array.type.range()[1]) + 1))
    except (gdb.error, RuntimeError):
        return _BAD
    text = raw.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _word(value, prefix):
    """A member of an enum without what all of them begin with."""
    try:
        text = str(value)
    except (gdb.error, RuntimeError):
        return _BAD
    return text.split(" ")[0][len(prefix) :] if text.startswith(prefix) else text


def _type(tensor):
    word = _word(_get(tensor, "type"), "GGML_TYPE_")
    return word.lower().replace("_k", "_K")


def name_of(pointer):
    """What a tensor is called that a pointer points to."""
    try:
        if not int(pointer):
            return "NULL"
        name = _text(pointer.dereference()["name"])
    except (gdb.error, RuntimeError):
        return _BAD
    return name or "0x%x" % int(pointer)


def _sources(tensor):
    out = []
    for i in range(_length(_get(tensor, "src"))):
        try:
            pointer = tensor["src"][i]
            if int(pointer):
                out.append(pointer)
        except (gdb.error, RuntimeError):
            break
    return out


def _length(array):
    try:
        return 0 if array is None else int(array.type.range()[1]) + 1
    except (gdb.error, RuntimeError):
        return 0


def line_of(tensor):
    """A tensor in a line: `kq f32[32, 4] = MUL_MAT(k, q)`."""
    try:
        ne = [int(tensor["ne"][i]) for i in range(4)]
    except (gdb.error, RuntimeError):
        return _BAD
    while len(ne) > 1 and ne[-1] == 1:
        ne.pop()
    said = "%s %s%s" % (_text(tensor["name"]) or "(no name)", _type(tensor), ne)
    op = _word(_get(tensor, "op"), "GGML_OP_")
    if op == "NONE":
        return said
    return "%s = %s(%s)" % (said, op, ", ".join(name_of(pointer) for pointer in _sources(tensor)))


def _more(n, shown):
    return [("more", "%d more" % (n - shown))] if n > shown else []


def _array(pointer, shown, say):
    """`say` of the first things behind a pointer."""
    out = []
    for i in range(shown):
        try:
            out.append(say(pointer[i]))
        except (gdb.error, RuntimeError):
            return [*out, _BAD]
    return out


def _listed(name, pointer, n, shown, say):
    """Children of an array: `nodes[0]`, `nodes[1]`, …, and how many more there are."""
    if pointer is None:
        return []
    said = _array(pointer, shown, say)
    return [("%s[%d]" % (name, i), text) for i, text in enumerate(said)] + _more(n, shown)


class _Printer:
    """A struct with a line that says what it is, and some of its fields. Texts stand as they are, without quotes."""

    fields = ()

    def __init__(self, value):
        self.value = value

    def children(self):
        """The fields that say something, and what the struct has many of."""
        for name in self.fields:
            field = _get(self.value, name)
            if field is not None:
                yield name, field
        for name, text in self.many():
            yield name, _Plain(text) if isinstance(text, str) else text

    def many(self):
        """What there is besides the fields."""
        return []


class _Plain(str):
    """A text among the children of a struct."""


class Tensor(_Printer):
    """ggml_tensor."""

    fields = ("nb", "view_src", "view_offs", "buffer", "data", "flags")

    def to_string(self):
        """Name, type, shape, and what it is made of."""
        return line_of(self.value)


class Graph(_Printer):
    """ggml_cgraph."""

    def to_string(self):
        """How many nodes and leafs it has."""
        v = self.value
        return "graph of %s nodes (room for %s) and %s leafs" % tuple(
            _int(v, name) for name in ("n_nodes", "size", "n_leafs")
        )

    def many(self):
        """The first nodes and leafs."""
        for name in ("nodes", "leafs"):
            n, shown = _count(self.value, "n_" + name)
            yield from _listed(name, _get(self.value, name), n, shown, _tensor_line)


def _tensor_line(pointer):
    return line_of(pointer.dereference()) if int(pointer) else "NULL"


def split_line(split):
    """A split in a line."""
    n, shown = _count(split, "n_inputs", 8)
    inputs = ", ".join(_array(split["inputs"], shown, name_of)) + (", …" if n > shown else "")
    return "backend %s, nodes [%s, %s), inputs: %s" % (
        _int(split, "backend_id"), _int(split, "i_start"), _int(split, "i_end"), inputs or "none",
    )  # fmt: skip


class Split(_Printer):
    """ggml_backend_sched_split."""

    def to_string(self):
        """Its backend, its nodes and what is copied for it."""
        try:
            return split_line(self.value)
        except (gdb.error, RuntimeError):
            return _BAD


class Scheduler(_Printer):
    """ggml_backend_sched."""

    fields = ("is_reset", "is_alloc")

    def to_string(self):
        """How many backends and splits it has."""
        return "scheduler of %s backends, %s splits" % (_int(self.value, "n_backends"), _int(self.value, "n_splits"))

    def many(self):
        """Its backends, its splits, and its pipeline copies."""
        v = self.value
        n, shown = _count(v, "n_backends")
        yield from _listed("backends", _get(v, "backends"), n, shown, lambda b: b)
        yield from _listed("bufts", _get(v, "bufts"), n, shown, lambda b: b)
        n, shown = _count(v, "n_splits")
        yield from _listed("splits", _get(v, "splits"), n, shown, split_line)
        for name in ("n_copies", "cur_copy", "galloc", "callback_eval", "op_offload"):
            field = _get(v, name)
            if field is not None:
                yield name, field


def chunk_line(chunk):
    """A chunk of an allocator, or an allocator that has none: its size and its free blocks."""
    n, shown = _count(chunk, "n_free_blocks", 8)
    blocks = chunk["free_blocks"]
    free = ["%d bytes at %d" % (int(blocks[i]["size"]), int(blocks[i]["offset"])) for i in range(shown)]
    more = ", …" if n > shown else ""
    return "%s bytes, free: %s%s" % (_int(chunk, "max_size"), ", ".join(free) or "none", more)


def allocator_line(pointer):
    """An allocator's chunks."""
    if not int(pointer):
        return "NULL"
    allocator = pointer.dereference()
    if _get(allocator, "chunks") is None:
        return chunk_line(allocator)
    n, shown = _count(allocator, "n_chunks", 4)
    chunks = _array(allocator["chunks"], shown, lambda chunk: chunk_line(chunk.dereference()))
    return "; ".join(chunks) + ("; …" if n > shown else "") if chunks else "no chunk"


class Allocator(_Printer):
    """ggml_gallocr."""

    def to_string(self):
        """How many buffers and nodes it has."""
        return "graph allocator of %s buffers, %s nodes, %s leafs" % tuple(
            _int(self.value, name) for name in ("n_buffers", "n_nodes", "n_leafs")
        )

    def many(self):
        """Its buffer types, buffers and allocators."""
        v = self.value
        n, shown = _count(v, "n_buffers")
        yield from _listed("bufts", _get(v, "bufts"), n, shown, lambda b: b)
        yield from _listed("buffers", _get(v, "buffers"), n, shown, lambda b: b)
        yield from _listed("buf_tallocs", _get(v, "buf_tallocs"), n, shown, allocator_line)


class Buffer(_Printer):
    """ggml_backend_buffer."""

    fields = ("buft", "context")

    def to_string(self):
        """Its size, and what it is for."""
        usage = _word(_get(self.value, "usage"), "GGML_BACKEND_BUFFER_USAGE_")
        return "buffer of %s bytes for %s" % (_int(self.value, "size"), usage)


_PRINTERS = {
    "ggml_tensor": Tensor,
    "ggml_cgraph": Graph,
    "ggml_backend_sched": Scheduler,
    "ggml_backend_sched_split": Split,
    "ggml_gallocr": Allocator,
    "ggml_backend_buffer": Buffer,
}


def register():
    """Let gdb print with these, in place of those of before."""
    printers = gdb.printing.RegexpCollectionPrettyPrinter("ggml")
    for name, printer in _PRINTERS.items():
        printers.add_printer(name, "^%s$" % name, printer)
    gdb.printing.register_pretty_printer(None, printers, replace=True)
