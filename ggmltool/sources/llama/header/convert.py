"""A folder of safetensors as the header of the GGUF file that llama.cpp's converter would make of it.

Names are mapped by the table of the package gguf; metadata come from config.json. There is no vocabulary: a graph does
not depend on it.

A file of safetensors begins with the length of its header (eight bytes) and the header, which is JSON; its data follow.
So the first megabytes of each file are enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.tensor import MAX_DIMS
from ggmltool.scenario.gguf import MAX_TENSORS, U32, GgufHeader, GgufTensorInfo, GgufValue, value_of
from ggmltool.sources.llama.errors import CaptureError
from ggmltool.sources.llama.header.architectures import ARCHITECTURES, MXFP4, Architecture, Tensors
from ggmltool.sources.llama.header.config import HfConfig, StoredTensor

INDEX = "model.safetensors.index.json"
MAX_HEADER = 100_000_000
"""Bytes of a header, at most: the format's own limit."""

MAX_CONFIG = 16 << 20
_MAX_EXTENT = 1 << 40
_MAX_DIMS = 8
_SHOWN = 3

CONFIG = "config.json"
_OUT_TYPES = {"BF16": ("bf16", 32), "F16": ("f16", 1)}
"""The type that weights have in the file, and the number of its kind, by the type of the first matrix."""

_MXFP4_KIND = 38

_KNOWN_TYPES = frozenset(("BF16", "F16", "F32", "F64", MXFP4, "F8_E4M3", "F8_E5M2"))
_METHODS = (None, "mxfp4", "fp8")
_SCALES = ("_scale_inv", "_activation_scale", ".activation_scale", ".qscale_weight", ".qscale_act")
"""What is left of a tensor of eight bits when its values are made whole."""
_SKIPPED = (".attention.masked_bias", ".attention.bias", ".rotary_emb.inv_freq")
_OF_OTHER_PARTS = (
    "visual.", "vision.", "audio.", "talker.", "vision_", "audio_", "token2wav.", "code2wav.", "projector.",
    "pre_mm_projector_norm", "image_newline", "view_seperator", "patch_embed", "patch_merger.", "patch_merge_mlp.",
    "model.connector.",
)  # fmt: skip
"""What a model for images or sound has besides: another file's."""

_OF_OTHER_PARTS_FIRST = (
    "mlp", "vit.", "vpm.", "siglip2.", "conformer.", "merger.", "resampler.", "sound_encoder.", "sound_projection.",
    "speech_embeddings.",
)  # fmt: skip
_KEPT_F32 = frozenset(("ffn_gate_inp", "ffn_gate_inp_shexp", "ssm_conv1d"))
"""Matrices that stay in f32."""


def is_folder_of_safetensors(path: Path) -> bool:
    """Whether this is a folder with a config.json and safetensors, or the list of them."""
    try:
        return (path / CONFIG).is_file() and any(path.glob("*.safetensors*"))
    except (OSError, ValueError):
        return False


def converted(folder: Path) -> GgufHeader:
    """The header of the file that llama.cpp's converter would make. Raises CaptureError."""
    given = read_json(folder / CONFIG)
    known = _architecture(folder, given)
    method = _method(folder, given)
    config = HfConfig(given, str(folder / CONFIG))
    known.set_values(config)
    stored = known.tensors(config, dict(_filtered(read_tensors(folder))))
    type_name, kind = _out_type(stored)
    names = {**_mapped(folder, known, config, stored), **known.extra(config)}
    tensors = [_info(folder, name, tensor, type_name) for name, tensor in names.items()]
    embeddings = next((t for t in tensors if t.name == b"token_embd.weight" and len(t.ne) == 2), None)
    if embeddings is None:
        raise CaptureError(f"{folder}: there is no matrix of embeddings among the tensors")
    values: dict[str, GgufValue] = {
        "general.architecture": value_of(known.name),
        "general.type": value_of("model"),
        "general.name": value_of(folder.resolve().name),
        "general.file_type": value_of(_MXFP4_KIND if method == "mxfp4" else kind, U32),
        "general.quantization_version": value_of(2, U32),
        "tokenizer.ggml.model": value_of("no_vocab"),
        **{f"{known.name}.{key}": value for key, value in config.values.items()},
        f"{known.name}.vocab_size": value_of(embeddings.ne[1], U32),
    }
    return GgufHeader(values, tensors, 0)


def _architecture(folder: Path, given: dict[str, Any]) -> Architecture:
    """Raises CaptureError for one that is not known."""
    text = given.get("text_config")
    named = [part.get("architectures") for part in (text, given) if isinstance(part, dict)]
    name = next((names[0] for names in named if isinstance(names, list) and names), None)
    if not isinstance(name, str) or name not in ARCHITECTURES:
        found = f"the architecture {name[:60]!r}" if isinstance(name, str) else "no architecture"
        raise CaptureError(
            f"{folder / CONFIG}: {found}; known are {', '.join(ARCHITECTURES)}. Convert others with llama.cpp's "
            "convert_hf_to_gguf.py, and name the GGUF file"
        )
    return ARCHITECTURES[name]


def _method(folder: Path, given: dict[str, Any]) -> str | None:
    """How weights are quantized: not (None), experts in blocks of four bits, or eight bits with scales, which the
    converter undoes. Raises CaptureError for another way.
    """
    config = given.get("quantization_config")
    method = config.get("quant_method") if isinstance(config, dict) else None
    if method not in _METHODS:
        raise CaptureError(
            f"{folder / CONFIG}: the weights are quantized ({str(method)[:40]}); name the folder of those that are "
            "not, or a GGUF file"
        )
    return cast("str | None", method)


def _filtered(tensors: Tensors) -> Iterator[tuple[str, StoredTensor]]:
    """The tensors of the text model."""
    for name, tensor in tensors.items():
        if name.startswith(_OF_OTHER_PARTS_FIRST) or any(part in name for part in _OF_OTHER_PARTS):
            continue
        if not name.endswith((*_SKIPPED, *_SCALES)):
            name = name.replace("e_score_correction_bias", "e_score_correction.bias")
            yield name.replace("language_model.", ""), tensor


def _out_type(stored: Tensors) -> tuple[str, int]:
    """As the converter guesses it: by the first matrix of sixteen bits."""
    found = (t.dtype for t in stored.values() if len(t.shape) >= 2 and t.dtype in _OUT_TYPES)
    return _OUT_TYPES[next(found, "F16")]


def _mapped(folder: Path, known: Architecture, config: HfConfig, stored: Tensors) -> Tensors:
    """The tensors under llama.cpp's names. Raises CaptureError for one that the table does not have."""
    import gguf

    number = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == known.name)
    table = gguf.get_tensor_name_map(number, config.n_layer)
    out: Tensors = {}
    for name, tensor in stored.items():
        new = table.get_name(name, try_suffixes=(".weight", ".bias"))
        if new is None:
            raise CaptureError(f"{folder}: Can not map tensor {name[:100]!r} of {known.name}")
        out[new] = tensor
    return out


def _info(folder: Path, name: str, tensor: StoredTensor, type_name: str) -> GgufTensorInfo:
    """A tensor with the type that the converter gives it. Raises CaptureError."""
    if tensor.dtype not in _KNOWN_TYPES or not 0 < len(tensor.shape) <= MAX_DIMS:
        raise CaptureError(f"{folder}: {name} is of the type {tensor.dtype[:20]} and shape {list(tensor.shape)}")
    base = name.rpartition(".")[0].rpartition(".")[2]
    is_f32 = len(tensor.shape) == 1 or name.endswith("_norm.weight") or not name.endswith(".weight")
    if tensor.dtype == MXFP4:
        type_name = "mxfp4"
    elif is_f32 or base in _KEPT_F32:
        type_name = "f32"
    return GgufTensorInfo(name.encode(), TYPES[type_name].id, tensor.shape[::-1], 0)


def read_tensors(folder: Path) -> dict[str, StoredTensor]:
    """The tensors of all files, by name. Raises CaptureError for what is missing, cut or damaged."""
    out: dict[str, StoredTensor] = {}
    for file in _files(folder):
        for name, tensor in _read_header(file):
            if name in out:
                raise CaptureError(f"{file}: there is a tensor {name[:100]!r} in another file, too")
            out[name] = tensor
            if len(out) > MAX_TENSORS:
                raise CaptureError(f"{folder} has more than {MAX_TENSORS} tensors")
    return out


def read_json(path: Path, most: int = MAX_CONFIG) -> dict[str, Any]:
    """A JSON object in a file. Raises CaptureError."""
    try:
        if path.stat().st_size > most:
            raise CaptureError(f"{path} has more than {most} bytes")
        return _object(path, path.read_bytes())
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror or error}") from None


def _object(path: Path, content: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CaptureError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CaptureError(f"{path} is not a JSON object")
    return cast("dict[str, Any]", value)


def _files(folder: Path) -> list[Path]:
    """The files with the weights, all of which are there. Raises CaptureError."""
    index = folder / INDEX
    if index.is_file():
        names = read_json(index, MAX_HEADER).get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise CaptureError(f"{index} has no weight_map of tensors to files")
        files = [folder / Path(name).name for name in sorted(set(names.values()))]
    else:
        files = sorted(folder.glob("model*.safetensors"))
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        named = ", ".join(missing[:_SHOWN]) + (" …" if len(missing) > _SHOWN else "")
        raise CaptureError(
            f"{folder}: of {len(files)} files of safetensors {len(missing)} missing: {named}; the first megabytes of "
            "each are enough"
        )
    if not files:
        raise CaptureError(f"{folder} has no {INDEX} and no model.safetensors")
    return files


def _read_header(path: Path) -> Iterator[tuple[str, StoredTensor]]:
    """The tensors of one file. Raises CaptureError."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            size = int.from_bytes(start, "little")
            if len(start) == 8 and size > MAX_HEADER:
                raise CaptureError(f"{path} is no file of safetensors: its header would have {size} bytes")
            content = file.read(size)
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror or error}") from None
    if len(start) < 8 or len(content) < size:
        needed = 8 + size
        raise CaptureError(
            f"{path} ends in its header, after {len(start) + len(content)} bytes; it needs {needed} bytes "
            f"(curl -r 0-{needed - 1})"
        )
    for name, given in _object(path, content).items():
        match given:
            case _ if name == "__metadata__":
                pass
            case {"dtype": str(dtype), "shape": list(shape)} if len(shape) <= _MAX_DIMS and all(
                type(n) is int and 0 < n < _MAX_EXTENT for n in shape
            ):
                yield name, StoredTensor(dtype, tuple(shape))
            case _:
                raise CaptureError(f"{path}: the tensor {name[:100]!r} has no dtype and shape that safetensors knows")
