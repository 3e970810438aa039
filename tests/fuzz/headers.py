"""Mutations of GGUF files: of every field of the header, of its bytes, of its length."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import Any

from ggmltool.ggml.dtypes import TYPES
from tests.fuzz import junk
from tests.fuzz.bases import packed

TENSORS = {"w": ("f32", (8, 4)), "q": ("q4_0", (32, 2)), "blk.0.attn_q.weight": ("f16", (4,))}
_STRING, _ARRAY = 8, 9
_SIZES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "I", 7: "B", 10: "Q", 11: "q", 12: "Q"}


@dataclass(slots=True)
class Field:
    """A number of `kind` (as struct's letters), or bytes for ""."""

    kind: str
    value: Any

    def raw(self) -> bytes:
        """As it stands in the file."""
        return self.value if not self.kind else packed(self.kind, self.value)


def _string(text: bytes) -> list[Field]:
    return [Field("Q", len(text)), Field("", text)]


def _value(kind: int, value: Any) -> list[Field]:
    if kind == _STRING:
        return _string(value)
    if kind == _ARRAY:
        inner, items = value
        return [Field("I", inner), Field("Q", len(items)), *(f for item in items for f in _value(inner, item))]
    return [Field(_SIZES[kind], value)]


def fields() -> list[Field]:
    """A small file of which everything is right, field by field."""
    metadata: list[tuple[bytes, int, Any]] = [
        (b"general.architecture", _STRING, b"llama"),
        (b"general.alignment", 4, 32),
        (b"llama.block_count", 4, 1),
        (b"llama.rope.freq_base", 6, 0x461C4000),
        (b"split.no", 2, 0),
        (b"tokenizer.ggml.tokens", _ARRAY, (_STRING, [b"a", b"b", b"cc"])),
        (b"tokenizer.ggml.scores", _ARRAY, (6, [0, 0, 0])),
        (b"nested", _ARRAY, (_ARRAY, [(4, [1, 2]), (4, [3])])),
    ]
    out = [Field("", b"GGUF"), Field("I", 3), Field("Q", len(TENSORS)), Field("Q", len(metadata))]
    for key, kind, value in metadata:
        out += [*_string(key), Field("I", kind), *_value(kind, value)]
    offset = 0
    for name, (type_name, ne) in TENSORS.items():
        type_ = TYPES[type_name]
        out += [*_string(name.encode()), Field("I", len(ne)), *(Field("Q", n) for n in ne)]
        out += [Field("I", type_.id), Field("Q", offset)]
        nbytes = type_.row_size(ne[0])
        for n in ne[1:]:
            nbytes *= n
        offset += -(-nbytes // 32) * 32
    return out


def mutated(rng: random.Random) -> bytes:
    """A file with some fields, bytes or its end changed."""
    header = fields()
    for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
        field = rng.choice(header)
        if field.kind:
            field.value = junk.integer(rng) if rng.random() < 0.6 else rng.randrange(45)
        elif rng.random() < 0.5:
            field.value = junk.text(rng).encode("utf-8", "surrogatepass")
        elif rng.random() < 0.5:
            header.remove(field)
        else:
            header.insert(rng.randrange(len(header)), field)
    raw = bytearray(b"".join(field.raw() for field in header))
    raw += bytes(-len(raw) % 32 + 256)
    match rng.randrange(9):
        case 0:
            for _ in range(rng.randint(1, 4)):
                raw[rng.randrange(len(raw))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        case 1:
            del raw[rng.randrange(len(raw)) :]
        case 2:
            at = rng.randrange(len(raw))
            raw[at : at + rng.randint(0, 9)] = struct.pack("<Q", junk.integer(rng) & ((1 << 64) - 1))
    return bytes(raw)
