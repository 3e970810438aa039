"""One tensor of a running program: what it is, where it lies, and who has its bytes before and after it."""

from __future__ import annotations

import textwrap

from ggmltool.attach.state import TensorState
from ggmltool.inspect.attached.seen import Seen, SeenOwner, usage_of
from ggmltool.show.table import Column, Style, Table, heading, render_lines
from ggmltool.show.text import count, printable, size
from ggmltool.views.attach.live import state_of, title_of
from ggmltool.views.memory.tensor import flag_names, signed


def tensor_view(seen: Seen, address: int, style: Style) -> str:
    """One line per fact."""
    t = seen.snapshot.tensors[address]
    nbytes = seen.nbytes(t)
    facts = [
        ("struct", f"{address:#x}"),
        ("op", seen.op(t)),
        ("op_params", " ".join(map(str, set_words(t)))),
        ("type", seen.type(t)),
        ("ne", str(list(t.ne))),
        ("nb", str(list(t.nb))),
        ("nbytes", "" if nbytes is None else str(nbytes) if nbytes < 1024 else f"{nbytes} ({size(nbytes)})"),
        ("flags", ", ".join(flag_names(t.flags))),
        ("backend", seen.backend(seen.sched.backend_ids.get(address)) or "none"),
        ("memory", _memory(seen, t)),
        ("data", f"{t.data:#x}" if t.data else "NULL"),
        ("view of", f"{seen.name(t.view_src)} at {t.view_offs}" if t.view_src else ""),
        *((f"src[{j}]", f"{seen.name(a)} ({a:#x})") for j, a in enumerate(t.src) if a),
        ("used by", ", ".join(_users(seen, address))),
        ("copies", ", ".join(seen.name(a) for a in seen.sched.copies.get(address, {}).values())),
    ]
    lines = [line for name, value in facts if value for line in _fact(name, value, style.width)]
    return heading(f"{title_of(seen)}: {seen.name(address)}", state_of(seen), style) + render_lines(["", *lines], style)


def set_words(t: TensorState) -> list[int]:
    """The words of op_params, up to the last that is not 0."""
    return [signed(w) for w in t.op_params[: max((i + 1 for i, w in enumerate(t.op_params) if w), default=0)]]


def _memory(seen: Seen, t: TensorState) -> str:
    buffer = seen.snapshot.buffers.get(t.buffer)
    if not t.buffer or buffer is None:
        return "none" if not t.buffer else f"buffer {t.buffer:#x}"
    usage = usage_of(buffer)
    offset = f", offset {t.data - buffer.base}" if t.data and buffer.base is not None else ""
    chunk = seen.chunk_names.get(t.buffer)
    name = chunk or seen.buft(buffer.buft)
    return f"{name} ({usage}{', of the scheduler' if chunk else ''}), buffer {t.buffer:#x}{offset}"


def _users(seen: Seen, address: int) -> list[str]:
    nodes = seen.graph_nodes
    return [seen.name(n) for n in nodes if (t := seen.tensor(n)) is not None and address in t.src]


def _fact(name: str, value: str, width: int) -> list[str]:
    return textwrap.wrap(
        printable(value), max(width, 40), initial_indent=f"  {name:<11}", subsequent_indent=" " * 13,
        break_on_hyphens=False,
    )  # fmt: skip


def lifetime_view(seen: Seen, address: int, style: Style) -> str:
    """Who has the bytes of a tensor, in program order."""
    t = seen.snapshot.tensors[address]
    rows = seen.owners(address)
    nodes = seen.graph_nodes
    facts = [count(seen.nbytes(t) or 0, "byte"), _memory(seen, t)]
    top = heading(f"{title_of(seen)}: {seen.name(address)}", [*facts, *state_of(seen)], style)
    if not rows:
        said = "It has no memory." if not t.data else "No tensor that was read has its bytes."
        return top + render_lines(["", said], style)

    def at(node: int | None, otherwise: str) -> str:
        return otherwise if node is None else f"{seen.name(nodes[node])} (#{node})"

    table = Table[SeenOwner](
        Column("", lambda o: ">" if o.asked else ""),
        Column("tensor", lambda o: o.tensor, cut=True),
        Column("op", lambda o: o.op, drop=2),
        Column("from", lambda o: at(o.start, "before the graph"), cut=True),
        Column("last read by", lambda o: at(o.end, "its end, or later"), cut=True),
        Column("data", lambda o: f"{o.address:#x}", right=True, drop=1),
        Column("bytes", lambda o: o.nbytes, right=True),
        Column("shared", lambda o: o.shared, right=True),
    )
    return top + render_lines([""], style) + table.render(rows, style)
