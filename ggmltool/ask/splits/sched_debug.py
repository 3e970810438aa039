"""The scheduler's assignments exactly as ggml prints them for GGML_SCHED_DEBUG."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ggmltool.ggml.plan import DebugLine, DebugNode, DebugSource, DebugSplit, PassPrint, SchedDebug
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.watched import Watch, Watched
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.ggml.releases.release import Release
    from ggmltool.ggml.sched.common import OnDebug


def sched_debug(splits: SchedDebug, level: int = 2, causes: bool = True, counts: bool = True) -> str:
    """ggml_backend_sched_print_assignments: GGML_SCHED_DEBUG=`level`, 1 the headers of the splits, 2 also their nodes.

    Release builds of ggml leave the causes out: `causes=False` gives their text byte for byte, once encoded as UTF-8
    with surrogateescape (names are cut by bytes, also within a character). Without `counts`, use and compute are left
    out, as ggml did until 2025.
    """
    lines = []
    for split in splits:
        if isinstance(split, DebugLine):
            lines.append(f"{split.text}\n")
            continue
        lines.append(_header(split, ": " if split.inputs else ""))
        if level > 1:
            lines.extend(node_line(node, causes, counts) for node in split.nodes)
    return "".join(lines)


def split_printer(level: int, write: Callable[[str], None]) -> OnDebug:
    """What writes the print of every split of a graph, as a release build of ggml does."""

    def show(record: SchedDebug, release: Release) -> None:
        write(sched_debug(record, level, False, release.prints_use_counts).rstrip("\n"))

    return show


def fmt_size(nbytes: int) -> str:
    """fmt_size: whole K below 1 M, else whole M."""
    return f"{nbytes >> 20}M" if nbytes >= 1 << 20 else f"{nbytes >> 10}K"


def _header(split: DebugSplit, colon: str) -> str:
    inputs = "".join(f"[{name} ({cut(fmt_size(nbytes), 5)})] " for name, nbytes in split.inputs)
    return f"\n## SPLIT #{split.id}: {split.backend} # {len(split.inputs)} inputs{colon}{inputs}\n"


def node_line(node: DebugNode, causes: bool, counts: bool) -> str:
    """A node with its sources."""
    parts = [f"node #{node.index:3d} ({cut(node.op_desc, 10)}):"]
    tensors: tuple[DebugNode | DebugSource, ...] = (node, *node.sources)
    for t in tensors:
        backend = "NULL" if t.backend is None else t.backend
        at = f"[{cut(backend, 5)} {cut(t.cause if causes else '', 8)}]"
        parts.append(f" {cut(t.name, 20)} ({cut(fmt_size(t.nbytes), 5)}) {at}")
        if t is node:
            parts.append(f" use={node.use_count},c={int(node.compute)}:" if counts else ":")
    return "".join([*parts, "\n"])


def cut(text: str, width: int) -> str:
    """`%<width>.<width>s`: cut to so many bytes, then filled with spaces on the left."""
    if text.isascii():
        return text[:width].rjust(width)
    return text.encode("utf-8", "surrogateescape")[:width].rjust(width).decode("utf-8", "surrogateescape")


def pass_print(printed: PassPrint, level: int = 2, causes: bool = True, title: bool = True) -> str:
    """sched_print_assignments after its title line; level 1 leaves the nodes out.

    ggml compiles the causes out unless one changes its source: `causes=False` gives the usual text.
    """
    parts = [f"PASS {printed.number} ASSIGNMENTS\n"] if title else []
    for split in printed.splits:
        parts.append(_header(split, ": "))
        if level > 1:
            parts += [node_line(node, causes, False) for node in split.nodes]
    if level > 1:
        parts += [node_line(node, causes, False) for node in printed.nodes]
    return "".join(parts)


def debug_text(
    opened: Opened, moment: Moment, level: int, causes: bool, number: int | None = None
) -> tuple[Watched, str]:
    """The state at a moment, and the print of GGML_SCHED_DEBUG at its end or, of a ggml that has such, after pass
    `number`. Raises InspectError where this ggml prints no single passes, or has no such pass.
    """
    at = Watch(opened, moment, debug=True).watched()
    sched = at.sched
    if sched.release.prints_passes:
        at.check_pass(number or 1)
        shown = number or len(sched.passes) - 1
        prints = (p for p in sched.printed if p.number == shown)
        return at, "".join(pass_print(p, level, causes, number is not None) for p in prints)
    if number is not None:
        could = next(release.name for release in RELEASES.values() if release.prints_passes)
        message = f"ggml {sched.release.name} prints no single passes"
        raise InspectError(f"{message}; ggml {could} can: --ggml {could}")
    there = at.is_split or at.plan.ok
    return at, sched_debug(sched.debug_record, level, causes, sched.release.prints_use_counts) if there else ""
