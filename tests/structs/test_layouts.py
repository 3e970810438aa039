"""The structs and enums of each ggml are those of its sources: what gdb says of them is recorded in `ptype/`.

Recorded by `record.py` of objects that gcc 12 made with -g of ggml.c, ggml-alloc.c and ggml-backend.c (.cpp) as they
were then. The sources of 0.25 and 0.27 were not there to compile: theirs is 0.26's without and with the fields by whose
functions the oracle knows their libraries.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ggmltool.debugger.expressions.ptype import written_out
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.oracle import structs as mirrors
from ggmltool.structs.layout import Layout, layout, layout_names
from ggmltool.structs.types import CType, Language

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
    assert tuple(types.structs["ggml_tensor"].members or ()) == release.tensor_fields
    assert tuple(types.structs["hash_node"].members or ()) == release.hash_node_fields


@pytest.mark.parametrize(
    ("tag", "mirror"),
    [
        ("ggml_tensor", mirrors.Tensor),
        ("ggml_cgraph", mirrors.CGraph),
        ("ggml_backend_sched", mirrors.Sched),
        ("ggml_backend_sched_split", mirrors.SchedSplit),
        ("ggml_gallocr", mirrors.Gallocr),
        ("node_alloc", mirrors.NodeAlloc),
        ("ggml_backend_buffer", mirrors.Buffer),
    ],
)
def test_structs_lie_as_those_that_are_read_of_the_real_library(tag: str, mirror: type) -> None:
    members = layout("0.20.2").structs[tag].members or {}
    named = {field[0]: getattr(mirror, field[0]).offset for field in mirror._fields_}  # type: ignore[attr-defined]
    assert {name: member.offset for name, member in members.items()} == named
