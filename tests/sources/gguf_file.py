"""GGUF files of models that have a shape and no values: every weight is zero and takes no room on the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from ggmltool.ggml.dtypes import TYPES

Shape = tuple[str, tuple[int, ...]]
"""Type name and ne of a tensor."""
Tensors = dict[str, Shape]


class Description(NamedTuple):
    """A model with all its weights; its `values` stand below the architecture's name, unless the tokenizer's."""

    architecture: str
    values: dict[str, Any]
    tensors: Tensors


def write_gguf(path: Path, model: Description, split: tuple[int, int] | None = None) -> None:
    """Write a model, or the tensors of one part of it: `split` is the part's number from 0, and how many there are."""
    from gguf import GGMLQuantizationType, GGUFWriter

    writer = GGUFWriter(path, model.architecture)
    writer.add_name(path.stem)
    vocabulary = {"tokenizer.ggml.model": "no_vocab"}
    for key, value in (vocabulary | model.values).items():
        _add(writer, key if key.startswith("tokenizer.") else f"{model.architecture}.{key}", value)
    names = list(model.tensors)
    if split is not None:
        writer.add_uint16("split.no", split[0])
        writer.add_uint16("split.count", split[1])
        writer.add_int32("split.tensors.count", len(names))
        names = names[split[0] :: split[1]]
    size = 0
    for name in names:
        type_name, ne = model.tensors[name]
        type_ = TYPES[type_name]
        nbytes = type_.row_size(ne[0])
        for n in ne[1:]:
            nbytes *= n
        writer.add_tensor_info(name, ne[::-1], None, nbytes, GGMLQuantizationType(type_.id))
        size += GGUFWriter.ggml_pad(nbytes, writer.data_alignment)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        head = file.seek(0, 2)
        file.truncate(GGUFWriter.ggml_pad(head, writer.data_alignment) + size)


def write_parts(folder: Path, name: str, model: Description, n: int) -> Path:
    """Write a model in `n` files, as llama.cpp's gguf-split names them; the first one's path."""
    paths = [folder / f"{name}-{i + 1:05}-of-{n:05}.gguf" for i in range(n)]
    for i, path in enumerate(paths):
        write_gguf(path, model, (i, n))
    return paths[0]


def _add(writer: Any, key: str, value: Any) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            writer.add_array(key, value)
