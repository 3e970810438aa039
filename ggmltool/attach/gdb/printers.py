"""How gdb prints ggml's structs in a program with debug information: what they are first, then their fields, no more
than fits a screen. gdb's own Python runs this file. `print/r` shows a struct as it is.

A struct may be garbage: every number that counts something is bounded, and what cannot be read is said to be so.
"""

import pathlib
import re

import gdb
import gdb.printing

MOST = 10
"""How many nodes, splits or blocks are shown of many."""

_BAD = "<cannot be read>"


def _started_by_front_end():
    """Whether gdb was started to be asked by a program, as Emacs and VS Code do."""
    try:
        words = pathlib.Path("/proc/self/cmdline").read_bytes()
        return re.search(rb"\0--?i(nterpreter)?(=|\0)mi", words) is not None
    except OSError:
        return False


_FRONT_END = _started_by_front_end()


def _get(value, name):
    try:
        return value[name]
    except (gdb.error, RuntimeError):
        return None


def _int(value, name):
    field = _get(value, name)
    try:
        return None if field is None else int(field)
    except (gdb.error, RuntimeError):
        return None


def _count(value, name, most=MOST):
    n = max(_int(value, name) or 0, 0)
    return n, min(n, most)


def _text(array):
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


def _op(tensor):
    """Its op; of UNARY and GLU the function, where the program's debug information has their names."""
    op = _word(_get(tensor, "op"), "GGML_OP_")
    enum = {"UNARY": "ggml_unary_op", "GLU": "ggml_glu_op"}.get(op)
    if enum is None:
        return op
    try:
        value = tensor["op_params"][0].cast(gdb.lookup_type("enum " + enum))
        said = _word(value, enum.upper() + "_")
    except (gdb.error, RuntimeError):
        return op
    return said if said.isidentifier() else op


def line_of(tensor):
    """A tensor in a line: `kq f32[32, 4] = MUL_MAT(k, q)`."""
    try:
        ne = [int(tensor["ne"][i]) for i in range(4)]
    except (gdb.error, RuntimeError):
        return _BAD
    while len(ne) > 1 and ne[-1] == 1:
        ne.pop()
    type = _word(_get(tensor, "type"), "GGML_TYPE_").lower().replace("_k", "_K")
    said = "%s %s%s" % (_text(tensor["name"]) or "(no name)", type, ne)
    op = _op(tensor)
    if op == "NONE":
        return said
    return "%s = %s(%s)" % (said, op, ", ".join(name_of(pointer) for pointer in _sources(tensor)))


def _array(pointer, shown, say):
    out = []
    for i in range(shown):
        try:
            out.append(say(pointer[i]))
        except (gdb.error, RuntimeError):
            return [*out, _BAD]
    return out


def _line(struct, text):
    """What stands among the children for a struct: a line. A front end shows no texts, so there it is the struct with
    a type by which `Lines` knows it."""
    if not _FRONT_END or struct.address is None:
        return text
    return struct.address.cast(struct.type.const().volatile().pointer()).dereference()


def _listed(name, pointer, n, shown, say):
    """Children of an array: `nodes[0]`, `nodes[1]`, …, and how many more there are."""
    if pointer is None:
        return []
    said = [("%s[%d]" % (name, i), text) for i, text in enumerate(_array(pointer, shown, say))]
    return [*said, ("more", n - shown if _FRONT_END else "%d more" % (n - shown))] if n > shown else said


class Printer:
    """A struct with a line that says what it is, some of its fields, and what it has many of: `parts` are names of
    fields, arrays with their count and what is said of an element, and what gives children of its own. Texts stand as
    they are, without quotes."""

    def __init__(self, value, say, parts):
        self.value = value
        self.say = say
        self.parts = parts

    def to_string(self):
        """The line."""
        return self.say(self.value)

    def children(self):
        """What says something of the struct. A front end shows nothing but these."""
        if _FRONT_END:
            yield "is", _line(self.value, self.to_string())
        for part in self.parts:
            if callable(part):
                yield from part(self.value)
            elif isinstance(part, tuple):
                name, count, say = part
                n, shown = _count(self.value, count)
                yield from _listed(name, _get(self.value, name), n, shown, say)
            elif _get(self.value, part) is not None:
                yield part, self.value[part]


def _counted(n, what):
    return "%s %s%s" % (n, what, "" if n == 1 else "s")


def _counts(value, *things):
    return ", ".join(_counted(_int(value, "n_%ss" % thing), thing) for thing in things)


def _source_fields(tensor):
    """Its sources, which a front end lets the user look into."""
    return [("src[%d]" % i, pointer) for i, pointer in enumerate(_sources(tensor))] if _FRONT_END else []


def graph_line(graph):
    """How many nodes and leafs it has; the graph of a split is a view, and has no room of its own."""
    size, n_nodes, n_leafs = [_int(graph, name) for name in ("size", "n_nodes", "n_leafs")]
    room = "a view" if size == 0 and n_nodes else "room for %s" % size
    return "graph of %s (%s) and %s" % (_counted(n_nodes, "node"), room, _counted(n_leafs, "leaf"))


def _pointed(say):
    """What is said of what an element points to."""
    return lambda pointer: _line(pointer.dereference(), say(pointer.dereference())) if int(pointer) else "NULL"


def _itself(value):
    return value


def split_line(split):
    """A split in a line."""
    n, shown = _count(split, "n_inputs", 8)
    inputs = ", ".join(_array(split["inputs"], shown, name_of)) + (", …" if n > shown else "")
    return "backend %s, nodes [%s, %s), inputs: %s" % (
        _int(split, "backend_id"), _int(split, "i_start"), _int(split, "i_end"), inputs or "none",
    )  # fmt: skip


def chunk_line(chunk):
    """A chunk of an allocator, or an allocator that has none: its size and its free blocks."""
    n, shown = _count(chunk, "n_free_blocks", 8)
    blocks = chunk["free_blocks"]
    free = ["%d bytes at %d" % (int(blocks[i]["size"]), int(blocks[i]["offset"])) for i in range(shown)]
    more = ", …" if n > shown else ""
    return "%s bytes, free: %s%s" % (_int(chunk, "max_size"), ", ".join(free) or "none", more)


def allocator_line(allocator):
    """An allocator's chunks."""
    if _get(allocator, "chunks") is None:
        return chunk_line(allocator)
    n, shown = _count(allocator, "n_chunks", 4)
    chunks = _array(allocator["chunks"], shown, lambda chunk: chunk_line(chunk.dereference()))
    return "; ".join(chunks) + ("; …" if n > shown else "") if chunks else "no chunk"


def buffer_line(buffer):
    """Its size, and what it is for."""
    usage = _word(_get(buffer, "usage"), "GGML_BACKEND_BUFFER_USAGE_")
    return "buffer of %s bytes for %s" % (_int(buffer, "size"), usage)


class LinePrinter:
    """A struct as a line alone, which a front end shows where there are no children."""

    def __init__(self, value, say):
        self.value = value
        self.say = say

    def to_string(self):
        """The line."""
        try:
            return self.say(self.value)
        except (gdb.error, RuntimeError):
            return _BAD


class LinePrinters(gdb.printing.PrettyPrinter):
    """Structs that are printed as a line: those of a type that is const and volatile, which ggml has none of."""

    def __call__(self, value):
        """The printer of such a struct."""
        type = value.type
        if type.code != gdb.TYPE_CODE_STRUCT or type != type.unqualified().const().volatile():
            return None
        say = _LINES.get(type.unqualified().name)
        return LinePrinter(value, say) if say else None


_PRINTED = {
    "ggml_tensor": (line_of, ("nb", "view_src", "view_offs", "buffer", "data", "flags", _source_fields)),
    "ggml_cgraph": (
        graph_line,
        (("nodes", "n_nodes", _pointed(line_of)), ("leafs", "n_leafs", _pointed(line_of))),
    ),
    "ggml_backend_sched": (
        lambda sched: "scheduler of " + _counts(sched, "backend", "split"),
        (
            "is_reset", "is_alloc", ("backends", "n_backends", _itself), ("bufts", "n_backends", _itself),
            ("splits", "n_splits", lambda split: _line(split, split_line(split))),
            "n_copies", "cur_copy", "galloc", "callback_eval", "op_offload",
        ),
    ),
    "ggml_backend_sched_split": (split_line, None),
    "ggml_gallocr": (
        lambda galloc: "graph allocator of " + _counts(galloc, "buffer", "node", "leaf"),
        (
            ("bufts", "n_buffers", _itself), ("buffers", "n_buffers", _itself),
            ("buf_tallocs", "n_buffers", _pointed(allocator_line)),
        ),
    ),
    "ggml_backend_buffer": (buffer_line, ("buft", "context")),
}  # fmt: skip
"""What is said of each struct, and its parts, None of one that is a line alone."""

_LINES = {
    "ggml_dyn_tallocr": allocator_line,
    "ggml_tallocr": allocator_line,
    **{name: say for name, (say, _) in _PRINTED.items()},
}


def _printer(say, parts):
    return lambda value: LinePrinter(value, say) if parts is None else Printer(value, say, parts)


def register():
    """Let gdb print with these, in place of those of before."""
    printers = gdb.printing.RegexpCollectionPrettyPrinter("ggml")
    for name, (say, parts) in _PRINTED.items():
        printers.add_printer(name, "^%s$" % name, _printer(say, parts))
    gdb.printing.register_pretty_printer(None, printers, replace=True)
    gdb.printing.register_pretty_printer(None, LinePrinters("ggml-lines"), replace=True)
