"""Values of tensors in files: a folder of npy files, one for each tensor, or a GGUF file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ggmltool.ggml.tensor import Dims
from ggmltool.scenario.data import check_npy_file, read_npy
from ggmltool.scenario.encoded import check_gguf_file, gguf_tensors
from ggmltool.scenario.errors import Mistake, ScenarioError
from ggmltool.scenario.spec import ScenarioSpec, TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray


def tensors_by_name(model: ScenarioSpec, graph: str) -> dict[str, TensorSpec]:
    """The tensors of the contexts and the nodes of a graph by every name that they go by.

    Several nodes may have one name in ggml: the first of them is `name`, the others are `name~2`, `name~3` …, as
    `capture` and `run --dump` call them. Ids go first.
    """
    specs = [*model.graphs[graph].nodes, *model.tensors()]
    out = {t.id: t for t in specs}
    seen: dict[str, int] = {}
    for t in specs:
        seen[t.name] = seen.get(t.name, 0) + 1
        out.setdefault(t.name if seen[t.name] == 1 else f"{t.name}~{seen[t.name]}", t)
    return out


def matched(names: Iterable[str], known: Mapping[str, TensorSpec]) -> tuple[dict[str, str], list[str]]:
    """The name of each tensor's values by its id, and the names that no tensor goes by."""
    found: dict[str, str] = {}
    unknown = []
    for name in names:
        t = known.get(name)
        if t is None:
            unknown.append(name)
        else:
            found.setdefault(t.id, name)
    return found, unknown


MANIFEST = "manifest.json"
"""What says which tensor a file is of, in a folder that `run --dump` wrote."""

MAX_FILES = 100_000
_LARGEST_MANIFEST = 64 << 20

Read = Callable[[], "NDArray[Any]"]


@dataclass(frozen=True, slots=True)
class TensorFiles:
    """What files tell of a graph: how to read the values of tensors, by their ids, and names that it does not have."""

    values: Mapping[str, Read]
    unknown: list[str]


def read_values(path: Path, model: ScenarioSpec, graph: str) -> TensorFiles:
    """The values of a graph's tensors in a folder of npy files or in a GGUF file; shapes are checked, nothing is read.

    Raises ScenarioError for what is neither, has no tensor of the graph, or one of another shape.
    """
    known = tensors_by_name(model, graph)
    source = str(path)
    try:
        if path.is_dir():
            files = _npy_files(path)
            found, unknown = matched(files, known)
            values = {id: _npy(files[name], known[id].ne, id) for id, name in found.items()}
        else:
            check_gguf_file(path, path.name)
            tensors = gguf_tensors(path)
            found, unknown = matched(tensors, known)
            for id, name in found.items():
                _check_shape(path.name, name, tensors[name].ne, known[id].ne)
            values = {id: _gguf(path, name, known[id].ne) for id, name in found.items()}
    except Mistake as mistake:
        raise ScenarioError(mistake.message, source, None, mistake.expected) from None
    if not any(n.id in values for n in model.graphs[graph].nodes):
        hint = "files are NAME.npy, tensors NAME, by the names of ggml's tensors: ffn_out-0, Qcur-0, Qcur-0~2 …"
        raise ScenarioError(f"there are no values of a node of graph {graph}", source, None, hint)
    return TensorFiles(values, unknown)


def _npy_files(folder: Path) -> dict[str, Path]:
    """The npy files of a folder by the names of their tensors: those of the manifest, else the files' own."""
    named = _manifest(folder)
    if named:
        return named
    files = sorted(entry.path for entry in os.scandir(folder) if entry.name.endswith(".npy"))
    if len(files) > MAX_FILES:
        raise Mistake(f"{len(files)} npy files are too many; the limit is {MAX_FILES}")
    if not files:
        raise Mistake("there is no npy file in this folder", "one file a tensor, NAME.npy")
    return {unquote(Path(f).name.removesuffix(".npy"), errors="surrogateescape"): Path(f) for f in files}


def _manifest(folder: Path) -> dict[str, Path]:
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > _LARGEST_MANIFEST:
            raise ValueError
        tensors = json.loads(path.read_text(encoding="utf-8"))["tensors"]
        files = {str(t["id"]): folder / Path(str(t["file"])).name for t in reversed(tensors)}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Mistake(
            f"{MANIFEST} is not one that `run --dump` writes", "remove it to go by the files' names"
        ) from None
    return {id: file for id, file in files.items() if file.is_file()}


def _npy(file: Path, ne: Dims, id: str) -> Read:
    _check_shape(file.name, id, tuple(reversed(check_npy_file(file, file.name))), ne)
    return partial(_read_npy, file, ne)


def _read_npy(file: Path, ne: Dims) -> NDArray[Any]:
    return _as_engine_has_it(read_npy(file).reshape(ne[::-1]))


def _gguf(path: Path, name: str, ne: Dims) -> Read:
    return lambda: _as_engine_has_it(gguf_tensors(path)[name].values().reshape(ne[::-1]))


def _as_engine_has_it(values: NDArray[Any]) -> NDArray[Any]:
    """Floats as float32; integers as they are."""
    import numpy as np

    return np.array(values, dtype=np.float32) if values.dtype.kind == "f" or values.dtype.kind == "V" else values


def _check_shape(file: str, name: str, found: tuple[int, ...], ne: Dims) -> None:
    """Refuse an array that is not the tensor's: its shape is `ne` reversed, with dimensions of 1 at will, or flat."""
    total = ne[0] * ne[1] * ne[2] * ne[3]
    wide = [n for n in ne if n != 1]
    if [n for n in found if n != 1] == wide or found == (total,):
        return
    shape, expected = list(reversed(found)), [n for n in reversed(ne) if n != 1] or [1]
    hint = f"the shape is ne reversed: {expected}"
    if sorted(n for n in found if n != 1) == sorted(wide):
        hint += "; transpose it"
    raise Mistake(f"{file}: the values of {name} have the shape {shape}", hint)
