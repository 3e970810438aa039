"""The structs and enums of each ggml are those of its sources: what gdb says of them is recorded in `ptype/`.

Recorded by `record.py` of objects that gcc 12 made with -g of ggml.c, ggml-alloc.c and ggml-backend.c (.cpp) as they
were then. The sources of 0.25 and 0.27 were not there to compile: theirs is 0.26's without and with the fields that
came with the functions that tell their libraries.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

from ggmltool.debugger.expressions.commands import written_out
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.structs.layout import Layout, layout, layout_names
from ggmltool.structs.mirrors import mirrors
from ggmltool.structs.types import CType, Language, Member

LANGUAGES: tuple[Language, ...] = ("c", "c++")
RECORDED = Path(__file__).parent / "ptype"


def recorded(name: str) -> dict[str, tuple[str, int | None]]:
    """What gdb said of each type: the text, and the size of a struct."""
    out = {}
    for part in re.split(r"^# ", (RECORDED / f"{name}.txt").read_text("utf-8"), flags=re.MULTILINE)[1:]:
        tag, text = part.split("\n", 1)
        lines = text.rstrip("\n").split("\n")
        size = int(lines.pop()) if lines[-1].isdecimal() else None
        out[tag] = ("\n".join(lines), size)
    return out


def found(types: Layout, tag: str) -> CType:
    return types.structs[tag] if tag in types.structs else types.enums[tag]


@pytest.mark.parametrize("name", layout_names())
def test_types_are_those_of_the_sources(name: str) -> None:
    types, said = layout(name), recorded(name)
    assert set(types.structs) <= set(said)
    for tag, (text, size) in said.items():
        texts = [f"type = {written_out(found(types, tag), language)}" for language in LANGUAGES]
        assert text in texts, tag
        if size is not None and tag in types.structs:
            assert types.structs[tag].size == size, tag


@pytest.mark.parametrize("name", RELEASES)
def test_every_release_has_its_types(name: str) -> None:
    release, types = RELEASES[name], layout(name)
    assert types.structs["ggml_tensor"].size == release.tensor_size
    assert types.structs["ggml_cgraph"].size == release.cgraph_size
    assert types.structs["ggml_object"].size == release.object_size


@pytest.mark.parametrize("name", layout_names())
def test_ctypes_lays_structs_out_alike(name: str) -> None:
    made = mirrors(name)
    # ctypes has no _Alignas.
    aligned = ["ggml_backend_sched"] if name in ("2023-12", "2024-01") else []
    for tag in layout(name).structs.keys() - aligned:
        struct = layout(name).structs[tag]
        offsets = [(field, getattr(made[tag], field).offset) for field, *_ in made[tag]._fields_]
        assert (offsets, ctypes.sizeof(made[tag])) == (_places(struct.members), struct.size), tag


def test_functions_are_called_as_they_are_declared() -> None:
    made = mirrors("0.26").prototype("ggml_backend_i", "cpy_tensor_async")
    assert (made._restype_, made._argtypes_) == (ctypes.c_bool, (ctypes.c_void_p,) * 4)
    made = mirrors("0.26").prototype("ggml_backend_buffer_i", "memset_tensor")
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    assert (made._restype_, made._argtypes_) == (None, (pointer, pointer, ctypes.c_uint8, size, size))


def test_the_newest_libraries_share_the_structs_that_have_one_name() -> None:
    own = {"ggml_backend_sched", "ggml_backend_buffer_type", "ggml_backend_buffer_type_i", "ggml_backend_i"}
    known = {tag: struct.members for tag, struct in layout("0.20.2").structs.items() if tag not in own}
    for name in ("0.21", "0.25", "0.26", "0.27"):
        for tag, members in known.items():
            assert _places(layout(name).structs[tag].members) == _places(members), (name, tag)


def _places(members: dict[str, Member] | None) -> list[tuple[str, int]]:
    return [(m.name, m.offset) for m in (members or {}).values()]
