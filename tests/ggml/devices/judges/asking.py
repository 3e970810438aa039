"""Putting questions about ops and graphs to a judge, and reading its answers (judge.cpp has the other end)."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ggmltool.ggml.buffer import USAGE_WEIGHTS
from ggmltool.ggml.device import SplitNodes
from ggmltool.ggml.tensor import MAX_OP_PARAMS, MAX_SRC, Tensor

_TENSOR = struct.Struct(f"<6i2Q4q4Q{MAX_OP_PARAMS}i{MAX_SRC}i")
_OP, _GRAPH = 0, 1
_NO_SIZE = (1 << 64) - 1


class OpAnswer(NamedTuple):
    """What a device says of an op, and the bytes that its result takes; None where ggml ends the program instead."""

    supported: bool | None
    size: int | None


class GraphAnswer(NamedTuple):
    """The order that a device gives the nodes, and the tensors that it keeps, each with the node until which."""

    order: list[Tensor]
    keeps: list[tuple[Tensor, Tensor]]


def ask_ops(judge: Path, hardware: str, ops: Iterable[Tensor]) -> list[OpAnswer]:
    """The judge's answers about ops, in their order."""
    ops = list(ops)
    questions = (bytes((_OP,)) + _packed(_reached((op,)), lambda t: 0) for op in ops)
    answers = struct.iter_unpack("<BQ", _run(judge, hardware, questions))
    out = [OpAnswer(None if s > 1 else bool(s), None if n == _NO_SIZE else n) for s, n in answers]
    if len(out) != len(ops):
        raise RuntimeError(f"the judge answered {len(out)} of {len(ops)} questions")
    return out


class Question(NamedTuple):
    """A split's nodes, and how often each tensor of its graph is used."""

    nodes: SplitNodes
    use_count: Callable[[Tensor], int]


def ask_graphs(judge: Path, hardware: str, graphs: Iterable[Question]) -> list[GraphAnswer | None]:
    """The judge's answers about splits, in their order; None where ggml ends the program instead.

    It does so too where something is kept until what stands behind the last node of a graph.
    """
    asked, questions = [], []
    for nodes, use_count in graphs:
        tensors = _reached((*nodes, *nodes.behind))
        at = {id(t): i for i, t in enumerate(tensors)}
        listed = [at[id(t)] for t in (*nodes, *nodes.behind)]
        words = struct.pack(f"<2I{len(listed)}i", len(nodes), len(listed), *listed)
        questions.append(bytes((_GRAPH,)) + _packed(tensors, use_count) + words)
        asked.append((tensors, len(nodes), len(listed)))
    answers = _run(judge, hardware, questions)
    out: list[GraphAnswer | None] = []
    start = 0
    for tensors, n_own, n in asked:
        done, *order, n_keeps = struct.unpack_from(f"<B{n}iI", answers, start)
        start += 5 + 4 * n
        pairs = list(struct.iter_unpack("<2i", answers[start : start + 8 * n_keeps]))
        start += 8 * n_keeps
        if done and all(until >= 0 for _, until in pairs):
            keeps = [(tensors[a], tensors[b]) for a, b in pairs]
            out.append(GraphAnswer([tensors[i] for i in order[:n_own]], keeps))
        else:
            out.append(None)
    return out


def _run(judge: Path, hardware: str, questions: Iterable[bytes]) -> bytes:
    return subprocess.run([str(judge), hardware], input=b"".join(questions), capture_output=True, check=True).stdout


def _reached(roots: Sequence[Tensor]) -> list[Tensor]:
    """The tensors, and those that they are made of, each once."""
    out = list(dict.fromkeys(roots))
    seen = set(map(id, out))
    for t in out:
        for s in (t.view_src, *t.src):
            if s is not None and id(s) not in seen:
                seen.add(id(s))
                out.append(s)
    return out


def _packed(tensors: Sequence[Tensor], use_count: Callable[[Tensor], int]) -> bytes:
    at = {id(t): i for i, t in enumerate(tensors)}
    out = [struct.pack("<I", len(tensors))]
    for t in tensors:
        src = [-1 if s is None else at[id(s)] for s in t.src]
        buffer = 0 if t.buffer is None else 2 if t.buffer.usage == USAGE_WEIGHTS else 1
        out.append(
            _TENSOR.pack(
                t.type.id, t.op, t.flags, buffer, use_count(t), -1 if t.view_src is None else at[id(t.view_src)],
                t.view_offs, t.data, *t.ne, *t.nb, *t.op_params, *[0] * (MAX_OP_PARAMS - len(t.op_params)),
                *src, *[-1] * (MAX_SRC - len(src)),
            )
        )  # fmt: skip
    return b"".join(out)
