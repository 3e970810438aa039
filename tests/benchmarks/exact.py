"""A model with its weights in f32: what is left of a difference then is not the rounding of what they multiply."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np


def in_f32(model: Path, folder: Path) -> Path:
    """Write a GGUF file with the values of another one's weights in f32; the new file's path."""
    reader = gguf.GGUFReader(model)
    path = folder / f"{model.stem}-f32.gguf"
    writer = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        kind, value = field.types[:1], field.contents()
        if name.startswith("GGUF.") or name == "general.architecture" or not kind:
            continue
        if kind[0] != gguf.GGUFValueType.ARRAY:
            writer.add_key_value(name, value, kind[0])
        elif value:
            writer.add_array(name, value)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, np.ascontiguousarray(values, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
