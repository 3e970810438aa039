"""The session with gdb on contexts, tensors and views: what it printed comes out of the sample `arena`.

Addresses are simulated; what is compared is how far things lie apart.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SAMPLES, Call
from tests.cli.test_seeds import squeezed
from tests.golden import check_golden

ARENA = SAMPLES / "arena.yaml"
GOLDEN = Path(__file__).parent / "golden" / "seeds"

SHOWN = {
    "arena_context": ("context", ("struct ggml_cgraph 0 96", "nodes 96 16384", "leafs 16480 16384")),
    "arena_x": (
        "tensor --format gdb x",
        (
            "type = GGML_TYPE_F32",
            "ne = {10, 1, 1, 1}, nb = {4, 40, 40, 40}, op = GGML_OP_NONE",
            "op_params = {0 <repeats 16 times>}, flags = 0",
            "src = {0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0}",
            "view_src = 0x0, view_offs = 0",
            r"""name = "x", '\000' <repeats 62 times>, extra = 0x0, padding = "\000\000\000\000\000\000\000"}""",
        ),
    ),
    "arena_view": (
        "tensor --format gdb half",
        ("ne = {5, 1, 1, 1}, nb = {4, 20, 20, 20}, op = GGML_OP_VIEW", "view_offs = 20"),
    ),
    "arena_matrix": (
        "tensor --strides matrix",
        ("0 2 4", "1 3 8", "| 0,0 | 1,0 | 0,1 | 1,1 | 0,2 | 1,2 |"),
    ),
    "arena_values": ("run -t x -t twice", ("1 2 3 4 5 6 7 8 9 10", "12 14 16 18 20")),
}
"""What was printed: the command that shows it, and how its lines read, spaces squeezed."""


@pytest.mark.parametrize("name", SHOWN)
def test_what_the_session_printed_comes_out(call: Call, name: str) -> None:
    command, shows = SHOWN[name]
    result = call(*command.split(), ARENA, columns=100)
    assert (result.status, result.err) == (0, "")
    check_golden(GOLDEN / f"{name}.txt", result.out)
    out, at = squeezed(result.out), 0
    for text in shows:
        at = out.find(squeezed(text), at)
        assert at >= 0, text


@pytest.fixture
def arena(call: Call) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(call("context", "--json", ARENA).out)
    return document


def tensor(call: Call, id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call("tensor", "--json", id, ARENA).out)["tensor"]
    return found


def test_every_object_starts_a_header_behind_the_one_before(arena: dict[str, Any]) -> None:
    """`p *(struct ggml_object*) mem_buffer`: offs = 32; `p sizeof(struct ggml_object)`: 32."""
    for context in arena["contexts"]:
        end = 0
        for thing in context["objects"]:
            assert thing["offset"] == end + 32
            end = thing["offset"] + thing["size"]


def test_the_structs_are_those_of_0_20_2_as_the_sample_says(arena: dict[str, Any]) -> None:
    """`p sizeof(struct ggml_tensor)`: 384; `p sizeof(struct ggml_cgraph)`: 80; `p obj_size`: 65640, in the session."""
    objects = [thing for context in arena["contexts"] for thing in context["objects"]]
    assert {thing["size"] for thing in objects if thing["type"] == "tensor"} == {336}
    assert [thing["size"] for thing in objects if thing["type"] == "graph"] == [82576]
    comment = re.sub(r"\n# ", " ", ARENA.read_text("utf-8"))
    for said in ("takes 336 bytes", "prints 384", "takes 96, not 80", "(82576 bytes, not 65640)"):
        assert said in comment


def test_the_arrays_of_the_graph_lie_as_far_apart_as_in_the_session(arena: dict[str, Any]) -> None:
    """`p 0x7ffff6ba4080 - 0x7ffff6ba0080`: 16384; the hash set has 4099 slots of 8 bytes."""
    layout = {part["field"]: (part["offset"], part["nbytes"]) for part in arena["cgraph"]["layout"]}
    assert layout["leafs"][0] - layout["nodes"][0] == 16384 == 2048 * 8
    assert layout["visited_hash_set.keys"][1] == 4099 * 8


def test_a_view_points_to_its_source_and_lies_in_its_memory(call: Call) -> None:
    """`p x` and `p a` print one address; the elements of the view are those of x from the offset on."""
    x, half = tensor(call, "x"), tensor(call, "half")
    printed = call("tensor", "--format", "gdb", "half", ARENA).out
    assert half["view_src"] == "x"
    assert half["view_offs"] == 20 == 5 * 4
    assert int(half["data"]) - int(x["data"]) == 20
    assert f"view_src = {x['address']:#x}" in printed.replace("\n ", "")


def test_a_context_on_cuda_pads_each_tensor_to_128_bytes(call: Call) -> None:
    """`p alignment`: 128; `p this_size`: 128 for the 40 bytes of x."""
    x, factor = tensor(call, "x"), tensor(call, "factor")
    assert x["nbytes"] == 40
    assert int(factor["data"]) - int(x["data"]) == 128
