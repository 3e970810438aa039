"""The scheduler's assignments exactly as ggml prints them for GGML_SCHED_DEBUG."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ggmltool.ggml.sched.debug import DebugLine, DebugNode, DebugSplit, SchedDebug

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
        lines.append(_header(split))
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


def _header(split: DebugSplit) -> str:
    head = f"\n## SPLIT #{split.id}: {split.backend} # {len(split.inputs)} inputs"
    if split.inputs:
        head += ": "
    return head + "".join(f"[{name} ({cut(fmt_size(nbytes), 5)})] " for name, nbytes in split.inputs) + "\n"


def node_line(node: DebugNode, causes: bool, counts: bool) -> str:
    parts = [
        (
            f"node #{node.index:3d} ({cut(node.op_desc, 10)}): {cut(node.name, 20)} ({cut(fmt_size(node.nbytes), 5)}) "
            f"[{cut(_backend(node.backend), 5)} {cut(node.cause if causes else '', 8)}]"
            f"{f' use={node.use_count},c={int(node.compute)}' if counts else ''}:"
        )
    ]
    parts += [
        f" {cut(source.name, 20)} ({cut(fmt_size(source.nbytes), 5)}) "
        f"[{cut(_backend(source.backend), 5)} {cut(source.cause if causes else '', 8)}]"
        for source in node.sources
    ]
    return "".join([*parts, "\n"])


def _backend(name: str | None) -> str:
    return "NULL" if name is None else name


def cut(text: str, width: int) -> str:
    """`%<width>.<width>s`: cut to so many bytes, then filled with spaces on the left."""
    if text.isascii():
        return text[:width].rjust(width)
    return text.encode("utf-8", "surrogateescape")[:width].rjust(width).decode("utf-8", "surrogateescape")
