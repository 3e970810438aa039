"""Makes a case smaller while it differs for the same cause."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from tests.follow.scenarios import Case, Observed

BATCH = 16
"""Edits that are tried at once: a library's child is forked for each of these batches."""

KEPT = [("ggmltool",), ("ggml",), ("backends",), ("contexts",), ("graphs",)]
"""What a document has whatever else is left out."""

Document = dict[str, Any]
Path = tuple[Any, ...]
Edit = Callable[[Document], None]
"""Makes a document smaller in place. Raises LookupError or TypeError where what it is about is gone."""
Still = Callable[[Sequence[Case]], Sequence[Observed | None]]
"""Which of these cases still differ for the cause, and how."""


def smallest(start: Observed, still: Still, seconds: float) -> Observed:
    """As small a case as is found in that time, by the clock."""
    end = time.monotonic() + seconds
    best = start
    while time.monotonic() < end:
        before = best
        for edits in (_coarse, _fewer_nodes, _fewer, _shorter):
            best = _edited(best, edits(best.case.document), still, end)
        if best is before:
            break
    return best


def _edited(best: Observed, edits: Iterable[Edit], still: Still, end: float) -> Observed:
    """The case after all edits that leave the difference, each tried once."""
    left = iter(edits)
    while time.monotonic() < end and (batch := list(islice(left, BATCH))):
        while batch:
            found = _tried(best, [[edit] for edit in batch], still)
            good = [(edit, o) for edit, o in zip(batch, found, strict=True) if o is not None]
            if not good:
                break
            together = _tried(best, [[edit for edit, _ in good]], still)[0] if len(good) > 1 else None
            best = good[0][1] if together is None else together
            batch = [] if together is not None else [edit for edit, _ in good[1:]]
    return best


def _tried(of: Observed, several: Sequence[Sequence[Edit]], still: Still) -> list[Observed | None]:
    """What comes of the case with each of these lists of edits made."""
    documents = [_after(of.case.document, edits) for edits in several]
    cases = [replace(of.case, document=d) for d in documents if d is not None]
    found = iter(still(cases) if cases else ())
    return [None if d is None else next(found) for d in documents]


def _after(document: Document, edits: Sequence[Edit]) -> Document | None:
    out = copy.deepcopy(document)
    try:
        for edit in edits:
            edit(out)
    except (LookupError, TypeError, AttributeError):
        return None
    return out if out != document else None


def _coarse(document: Document) -> Iterator[Edit]:
    """Fewer steps, graphs and backends, and pieces of a graph; no key of a kind anywhere."""
    for i in reversed(range(len(document.get("steps", ())))):
        yield partial(without, ("steps", i))
    for name in document["graphs"]:
        yield partial(_without_graph, name)
    for name, graph in document["graphs"].items():
        ids = list(graph["nodes"])
        size = len(ids) // 2
        while size > 1:
            for at in reversed(range(0, len(ids), size)):
                yield partial(without_nodes, name, ids[at : at + size])
            size //= 2
    for i in reversed(range(len(document["backends"]))):
        yield partial(without, ("backends", i))
    yield _without_unused
    for key in ("nb", "op_params", "expand", "usage", "flags", "name", "backend"):
        yield partial(_without_key, key)


def _fewer_nodes(document: Document) -> Iterator[Edit]:
    """A node less with what needs it, or a tensor in its place."""
    for name, graph in document["graphs"].items():
        for id in reversed(graph["nodes"]):
            yield partial(without_nodes, name, [id])
    for name, graph in document["graphs"].items():
        for id in graph["nodes"]:
            yield partial(_as_input, name, id)


def _fewer(document: Document) -> Iterator[Edit]:
    """Nothing that can be left out, the outermost first, the last of a list first."""
    for path in _paths(document):
        if path not in KEPT and path[-1] not in ("nodes", "tensors"):
            yield partial(without, path)


def _shorter(document: Document) -> Iterator[Edit]:
    """A short form or a plain name in the place of what is long."""
    yield _without_ones
    for i, backend in enumerate(document["backends"]):
        if isinstance(backend, dict) and backend.keys() <= {"name", "profile"}:
            yield partial(_put, ("backends", i), backend["name"])
    for context, c in document["contexts"].items():
        for id, t in c["tensors"].items():
            if isinstance(t, dict) and t.keys() == {"type", "ne"}:
                text = f"{t['type']}[{', '.join(map(str, _plain_shape(t['ne'])))}]"
                yield partial(_put, ("contexts", context, "tensors", id), text)
    for name, graph in document["graphs"].items():
        for id, node in graph["nodes"].items():
            if isinstance(node, dict) and None not in node.get("src", [None]):
                yield partial(_put, ("graphs", name, "nodes", id), f"{node['op']}({', '.join(node['src'])})")


def without(path: Path, document: Document) -> None:
    """Leaves out what is at a path."""
    del _at(document, path[:-1])[path[-1]]


def without_nodes(graph: str, ids: Sequence[str], document: Document) -> None:
    """Leaves out these nodes of a graph, and those that need them."""
    nodes = document["graphs"][graph]["nodes"]
    gone = {id for id in ids if id in nodes}
    for id, node in nodes.items():
        if gone.intersection(_needed(node)):
            gone.add(id)
    if not gone:
        raise LookupError(ids)
    _forget(document, graph, gone)
    for id in gone:
        del nodes[id]


def _needed(node: Any) -> set[str]:
    """The tensors that a node needs, in its long form or in its short one."""
    if isinstance(node, str):
        return set(node.partition("(")[2].rstrip(")").split(", "))
    return {*node.get("src", ()), node.get("view_src")}


def _forget(document: Document, graph: str, gone: set[str]) -> None:
    if "expand" in document["graphs"][graph]:
        document["graphs"][graph]["expand"] = [id for id in document["graphs"][graph]["expand"] if id not in gone]
    for step in document.get("steps", ()):
        if isinstance(step, dict) and "get" in step:
            step["get"] = [id for id in step["get"] if id not in gone]


def _without_unused(document: Document) -> None:
    """Leaves out all tensors and contexts that nothing refers to."""
    texts = str([document["graphs"], document.get("steps", ())])
    words = set(re.findall(r"[^\s'\"(),\[\]{}]+", texts))
    for context in list(document["contexts"].values()):
        tensors = context["tensors"]
        roots = {t.get("view_src") for t in tensors.values() if isinstance(t, dict)}
        context["tensors"] = {id: t for id, t in tensors.items() if id in words or id in roots}
    document["contexts"] = {name: c for name, c in document["contexts"].items() if c["tensors"]}


def _without_ones(value: Any) -> None:
    """Leaves out the ones at the end of shapes."""
    for key, item in value.items() if isinstance(value, dict) else ():
        if key == "ne" and isinstance(item, list):
            value[key] = _plain_shape(item)
        else:
            _without_ones(item)


def _plain_shape(ne: Sequence[int]) -> list[int]:
    last = max((i for i, n in enumerate(ne) if n != 1), default=0)
    return list(ne[: last + 1])


def _without_graph(name: str, document: Document) -> None:
    del document["graphs"][name]
    document["steps"] = [s for s in document.get("steps", ()) if not (isinstance(s, str) and s.endswith(f" {name}"))]


def _without_key(key: str, value: Any) -> None:
    """Leaves out a key of whatever has it, but the names of backends."""
    if isinstance(value, dict):
        if key != "name" or "profile" not in value:
            value.pop(key, None)
        for item in value.values():
            _without_key(key, item)
    elif isinstance(value, list):
        for item in value:
            _without_key(key, item)


def _as_input(graph: str, id: str, document: Document) -> None:
    """Puts a tensor without memory of its own in the place of a node that is no view."""
    node = document["graphs"][graph]["nodes"].pop(id)
    if "view_src" in node:
        raise LookupError(id)
    _forget(document, graph, {id})
    made = {"type": node["type"], "ne": node["ne"], "flags": ["input"]}
    if any(isinstance(step, dict) and "get" in step for step in document.get("steps", ())):
        made["data"] = {"fill": 1}
    document["contexts"].setdefault("made", {"tensors": {}})["tensors"][id] = made


def _put(path: Path, value: Any, document: Document) -> None:
    _at(document, path[:-1])[path[-1]] = value


def _at(document: Document, path: Path) -> Any:
    at: Any = document
    for key in path:
        at = at[key]
    return at


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Everything below a value, the outermost first, the last of a list first."""
    keys = list(value) if isinstance(value, dict) else range(len(value))[::-1] if isinstance(value, list) else []
    for key in keys:
        yield (*path, key)
    for key in keys:
        if key not in ("ne", "nb", "op_params", "src"):
            yield from _paths(value[key], (*path, key))
