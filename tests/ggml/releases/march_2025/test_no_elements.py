"""Views without rows: the old ggml_nbytes adds up their strides all the same, and less than nothing is very much."""

from __future__ import annotations

from typing import Any

import ggmltool


def plan(release: str, alignment: int, rows: list[int], alone: bool = False) -> dict[str, Any]:
    """The plan of a view, in rows of 64 bytes, that a device reads, and of another node there unless it is `alone`."""
    others = {} if alone else {"z": {"op": "sqr", "src": ["x"], "backend": "G0"}}
    source = {
        "ggmltool": 1,
        "ggml": release,
        "backends": [{"name": "G0", "profile": "custom", "alignment": alignment}, "CPU"],
        "contexts": {"c": {"buft": "CPU", "tensors": {"x": "f32[16, 8]"}}},
        "graphs": {
            "main": {
                "nodes": {
                    "v": {"op": "view", "src": ["x"], "ne": rows, "nb": [4, 64], "offset": 0},
                    "y": {"op": "cont", "src": ["v"], "backend": "G0"},
                    **others,
                }
            }
        },
        "steps": ["alloc main"],
    }
    return ggmltool.load(source).run()[0]


def test_what_is_rounded_up_to_all_that_a_size_can_say_takes_nothing() -> None:
    old, new = plan("2025-03", 128, [4, 0]), plan("0.26", 128, [4, 0])
    assert old["ok"]
    assert old["buffer_sizes"] == new["buffer_sizes"]


def test_there_is_no_room_for_it_in_a_buffer_of_no_bytes() -> None:
    error = plan("2025-03", 128, [4, 0], alone=True)["error"]
    assert error["condition"].startswith("(char *)addr + ggml_backend_buffer_get_alloc_size(buffer, tensor) <= ")


def test_more_than_there_is_stops_ggml_in_its_words() -> None:
    error = plan("2025-03", 16, [4, 0])["error"]
    assert (error["function"], error["message"]) == ("ggml_dyn_tallocr_alloc", "not enough space in the buffer")


def test_a_view_without_columns_has_the_bytes_of_its_strides() -> None:
    assert plan("2025-03", 16, [0, 4])["buffer_sizes"]["G0"] > plan("0.26", 16, [0, 4])["buffer_sizes"]["G0"]
