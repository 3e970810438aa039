"""A call in a program on one screen: its ggml, its devices, its splits and its buffers."""

from __future__ import annotations

from pathlib import Path

from ggmltool.views.attach.documents import (
    AttachedBackend,
    AttachedBuffer,
    AttachedCall,
    AttachedDocument,
    AttachedSplit,
)
from ggmltool.views.table import Column, Style, Table, heading, render_lines
from ggmltool.views.text import count, size

MOST_INPUTS = 4
"""Inputs of a split that are named."""

_BACKENDS: Table[AttachedBackend] = Table(
    Column("#", right=True, get=lambda b: b.index),
    Column("backend", cut=True, get=lambda b: b.name),
    Column("device", drop=2, cut=True, get=lambda b: b.device),
    Column("type", drop=1, get=lambda b: b.type),
    Column("memory", right=True, drop=3, get=lambda b: _memory(b)),
    Column("description", cut=True, drop=5, get=lambda b: b.description),
)
_SPLITS: Table[AttachedSplit] = Table(
    Column("split", right=True, get=lambda s: s.number),
    Column("backend", cut=True, get=lambda s: s.backend),
    Column("nodes", right=True, get=lambda s: s.end - s.first),
    Column("inputs", cut=True, get=lambda s: _inputs(s)),
)
_BUFFERS: Table[AttachedBuffer] = Table(
    Column("buffer", cut=True, get=lambda b: b.name),
    Column("size", right=True, get=lambda b: size(sum(b.sizes))),
    Column("chunks", right=True, drop=1, get=lambda b: len(b.sizes)),
)


def attached_view(document: AttachedDocument, style: Style) -> str:
    """The screen of what was seen in a program."""
    process = document.process
    version = f"ggml {process.version}" if process.version else "a ggml that does not say its version"
    facts = [f"{version} in {Path(process.files[0]).name}"]
    if process.note:
        facts.append(process.note)
    return heading(process.name, facts, style) + "".join(_call(call, style) for call in document.calls)


def _call(call: AttachedCall, style: Style) -> str:
    facts = [
        count(call.nodes, "node"), f"{call.leafs} leafs", count(len(call.splits), "split"), *call.unread
    ]  # fmt: skip
    out = [render_lines([""], style), heading(f"call {call.number}: {call.function}", facts, style)]
    out += _BACKENDS.section("Backends", call.backends, style)
    out += _SPLITS.section("Splits", call.splits, style)
    out += _BUFFERS.section("Buffers", call.buffers, style)
    return "".join(out)


def _memory(backend: AttachedBackend) -> str | None:
    if backend.memory_total is None or backend.memory_free is None:
        return None
    return f"{size(backend.memory_free)} of {size(backend.memory_total)} free"


def _inputs(split: AttachedSplit) -> str:
    more = len(split.inputs) - MOST_INPUTS
    return ", ".join(split.inputs[:MOST_INPUTS]) + (f" and {more} more" if more > 0 else "")
