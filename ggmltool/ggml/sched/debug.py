"""What a scheduler prints of its assignments, as records, which a view turns into ggml's text."""

from __future__ import annotations

from typing import NamedTuple


class DebugSource(NamedTuple):
    """A source of a node as the debug print shows it; `backend` is None where ggml prints NULL."""

    name: str
    nbytes: int
    backend: str | None
    cause: str


class DebugNode(NamedTuple):
    """A node line. View ops have none."""

    index: int  # type: ignore[assignment]
    op_desc: str
    name: str
    nbytes: int
    backend: str | None
    cause: str
    use_count: int
    compute: bool
    sources: tuple[DebugSource, ...]


class DebugSplit(NamedTuple):
    """A split header, with the node lines that follow it; `inputs` are (name, bytes)."""

    id: int
    backend: str
    inputs: tuple[tuple[str, int], ...]
    nodes: tuple[DebugNode, ...]


class DebugLine(NamedTuple):
    """A line that ggml logs at the same level, before or after the print."""

    text: str


SchedDebug = tuple[DebugSplit | DebugLine, ...]


class PassPrint(NamedTuple):
    """sched_print_assignments after pass `number`. Before the last pass there is no split: `nodes` has all nodes.

    `splits` are those whose header is printed, with their nodes.
    """

    number: int
    nodes: tuple[DebugNode, ...]
    splits: tuple[DebugSplit, ...]
