"""Everything about one tensor: as a table, and as gdb prints a struct ggml_tensor."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ggmltool.ggml.buffer import USAGE_NAMES
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import (
    FLAG_COMPUTE,
    FLAG_PARAM,
    FLAGS,
    MAX_NAME,
    MAX_OP_PARAMS,
    MAX_SRC,
    Tensor,
    is_contiguous,
    is_contiguous_rows,
    is_permuted,
    is_transposed,
    nelements,
    op_desc,
    root_of,
)
from ggmltool.inspect.tensor import GdbFacts, TensorFacts
from ggmltool.show.table import Head, Row, Style, heading, render_lines, render_table
from ggmltool.show.text import count, printable, size
from ggmltool.views.compute.freed import freed_by
from ggmltool.views.memory.gdb import Value, char_array, gdb_value

_LINE = 100
"""The most columns that a drawing of memory takes."""


def flag_names(flags: int) -> list[str]:
    named = [*FLAGS.items(), ("compute", FLAG_COMPUTE)]
    return [name for name, bit in named if flags & bit]


def layout(t: Tensor) -> list[str]:
    checks = (
        ("contiguous", is_contiguous),
        ("contiguous rows", is_contiguous_rows),
        ("transposed", is_transposed),
        ("permuted", is_permuted),
    )
    return [name for name, holds in checks if holds(t)]


def _memory(t: Tensor) -> str:
    b = root_of(t).buffer
    if b is None:
        return "none"
    chunk = f", chunk {b.chunk}" if b.chunk else ""
    return f"{b.buft.name} ({USAGE_NAMES[b.usage]}{chunk}), offset {t.data - b.base}"


def tensor_view(facts: TensorFacts, title: str, when: str, style: Style) -> str:
    """One line per fact."""
    t = facts.tensor
    rows: list[tuple[str, str]] = [
        ("name", t.name),
        ("struct", f"{facts.address:#x} in {facts.context}"),
        ("op", op_desc(t) if op_desc(t) == Op(t.op).name else f"{Op(t.op).name} ({op_desc(t)})"),
        ("op_params", " ".join(str(signed(w)) for w in t.op_params)),
        ("type", f"{t.type.name}, {count(t.type.type_size, 'byte')} for {count(t.type.block_size, 'element')}"),
        ("ne", str(list(t.ne))),
        ("nb", str(list(t.nb))),
        ("elements", str(nelements(t))),
        ("nbytes", str(t.nbytes) if t.nbytes < 1024 else f"{t.nbytes} ({size(t.nbytes)})"),
        ("layout", ", ".join(layout(t))),
        ("flags", ", ".join(flag_names(facts.flags))),
        ("backend", "none" if facts.backend is None else f"{facts.backend} {facts.cause}".rstrip()),
        ("memory", _memory(t) + (f": {freed_by(facts.freed)}" if facts.freed is not None else "")),
        ("data", f"{t.data:#x}" if t.data else "NULL"),
        ("view of", f"{t.view_src.label} at {t.view_offs}" if t.view_src is not None else ""),
        *((f"src[{j}]", s.label) for j, s in enumerate(t.src) if s is not None),
        ("use count", str(facts.use_count)),
        ("used by", ", ".join(facts.used_by)),
        ("copies", ", ".join(facts.copies)),
    ]
    if facts.node is not None:
        n = facts.node
        uses = f"n_children {n.n_children}, n_views {n.n_views}"
        state = "allocated" if n.allocated else "not allocated"
        rows.append(("hash node", f"{uses}, buffer {n.buffer_id}, chunk {n.chunk}, offset {n.offset}, {state}"))
    lines = [line for name, value in rows if value for line in _fact(name, value, style.width)]
    return heading(f"{title}: {t.label}", [when], style) + render_lines(["", *lines], style)


def _fact(name: str, value: str, width: int) -> list[str]:
    indent = " " * 13
    return textwrap.wrap(
        printable(value), max(width, 40), initial_indent=f"  {name:<11}", subsequent_indent=indent,
        break_on_hyphens=False, drop_whitespace=True,
    )  # fmt: skip


def tensor_gdb(t: Tensor, facts: GdbFacts, width: int) -> str:
    """The struct as gdb's `print *t` writes it."""
    pointer, flags = facts.pointer, facts.flags
    params = [signed(w) for w in t.op_params] + [0] * (MAX_OP_PARAMS - len(t.op_params))
    src = [0 if s is None else pointer(s) for s in t.src] + [0] * (MAX_SRC - len(t.src))
    struct: dict[str, Value] = {
        "type": f"GGML_TYPE_{t.type.name.upper()}",
        "backend": "GGML_BACKEND_GPU" if facts.gpu else "GGML_BACKEND_CPU",
        "buffer": f"{facts.buffer:#x}",
        "ne": [str(n) for n in t.ne],
        "nb": [str(n) for n in t.nb],
        "op": f"GGML_OP_{Op(t.op).name}",
        "op_params": [str(word) for word in params],
        "flags": str(flags),
        "is_param": "true" if flags & FLAG_PARAM else "false",
        "grad": "0x0",
        "src": [f"{p:#x}" for p in src],
        "perf_runs": "0",
        "perf_cycles": "0",
        "perf_time_us": "0",
        "view_src": f"{pointer(t.view_src) if t.view_src is not None else 0:#x}",
        "view_offs": str(t.view_offs),
        "data": f"{t.data:#x}",
        "name": char_array(t.name.encode("utf-8", "surrogateescape"), MAX_NAME),
        "extra": f"{facts.extra:#x}",
        "padding": char_array(b"", 8),
    }
    return gdb_value({field: struct[field] for field in facts.fields}, width)


def signed(word: int) -> int:
    word &= 0xFFFF_FFFF
    return word - (1 << 32) if word >> 31 else word


_STRIDES = (
    Head("dim"),
    Head("ne", right=True),
    Head("nb", right=True),
    Head("covers", right=True),
    Head("gap", right=True),
)
_SHOWN = 4


def strides_view(t: Tensor, title: str, style: Style) -> str:
    """How the elements lie in memory: each dimension's step, where the first elements are, and who follows whom."""
    type_size, block = t.type.type_size, t.type.block_size
    rows: list[Row] = []
    inner = type_size
    for i, (ne, nb) in enumerate(zip(t.ne, t.nb, strict=True)):
        steps = ne // block if i == 0 else ne
        rows.append(
            [
                f"{i}",
                str(ne),
                str(nb),
                str(max(steps - 1, 0) * nb + inner),
                str(nb - inner) if steps > 1 and nb >= inner else "",
            ]
        )
        inner = max(steps - 1, 0) * nb + inner
    unit = "block" if block > 1 else "element"
    facts = [f"{t.type.name}, {unit}s of {type_size} bytes", f"{t.nbytes} bytes", *layout(t)]
    parts = [heading(f"{title}: {t.label}", facts, style), render_lines([""], style)]
    parts.append(render_table(_STRIDES, rows, style))
    if not nelements(t):
        return "".join([*parts, render_lines(["", "It has no elements."], style)])
    parts += [render_lines(["", f"byte offset of {unit} [i0, i1]", ""], style)]
    n0, n1 = min(t.ne[0] // block, _SHOWN), min(t.ne[1], _SHOWN)
    columns = (Head(""), *(Head(f"i0 = {i}", right=True) for i in range(n0)), Head(""))
    more = "…" if t.ne[0] // block > n0 else ""
    grid: list[Row] = [[f"i1 = {j}", *(str(i * t.nb[0] + j * t.nb[1]) for i in range(n0)), more] for j in range(n1)]
    if t.ne[1] > n1:
        grid.append(["⋮", *[""] * (n0 + 1)])
    parts += [render_table(columns, grid, style), render_lines(["", "in the order of memory", ""], style)]
    return "".join([*parts, render_lines(_strip(t, min(style.width, _LINE)), style)])


def _strip(t: Tensor, width: int) -> Sequence[str]:
    """The first elements as boxes, each with its indices, above the offset of its first byte; gaps as dots."""
    type_size = t.type.type_size
    n = [1, 1, 1, 1]
    for i in sorted(range(4), key=lambda i: t.nb[i]):
        steps = t.ne[i] // t.type.block_size if i == 0 else t.ne[i]
        n[i] = min(steps, max(_LINE // max(n[0] * n[1] * n[2] * n[3], 1), 1))
    dims = max((i for i in range(4) if t.ne[i] > 1), default=0) + 1
    places: dict[int, str] = {}
    for i3 in range(n[3]):
        for i2 in range(n[2]):
            for i1 in range(n[1]):
                for i0 in range(n[0]):
                    index = (i0, i1, i2, i3)
                    at = sum(i * nb for i, nb in zip(index, t.nb, strict=True))
                    places.setdefault(at, ",".join(map(str, index[:dims])))
    boxes: list[tuple[str, int]] = []
    end = 0
    for at in sorted(places):
        if at > end:
            boxes.append(("·" * 3, end))
        boxes.append((places[at], at))
        end = at + type_size
    top, offsets = "  |", "  "
    for text, at in boxes:
        cell = max(len(text), len(str(at))) + 2
        if len(top) + cell + 2 > width:
            return [top + "…", offsets.rstrip()]
        top += text.center(cell) + "|"
        offsets += str(at).ljust(cell + 1)
    return [top, offsets + str(end)]
