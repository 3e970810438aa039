"""Which library has which structs: told by the version that it says, and by its exports."""

from __future__ import annotations

import pytest

from ggmltool.structs.layout import layout_names, layouts_of

N = "ggml_backend_buft_alloc_buffer_n"
COPY = "ggml_backend_sched_set_copy_callback"
REALLOC = "ggml_backend_sched_set_realloc_callback"
MAY = "ggml_is_contiguously_allocated"


@pytest.mark.parametrize(
    ("version", "exports", "name"),
    [
        ("0.9.1", (), "0.9.1"),
        ("0.9.2", (), "0.9.1"),
        ("0.9.4", (), "0.9.3"),
        ("0.9.11", (), "0.9.5"),
        ("0.13.1", (), "0.10"),
        ("0.18.0", (), "0.10"),
        ("0.19.0-dev", (), "0.18.1"),
        ("0.20.2", (), "0.20.2"),
        ("0.24.0", (), "0.21"),
        ("0.26.0", (), "0.21"),
        ("0.26.0", (N,), "0.25"),
        ("0.26.0", (N, COPY), "0.26"),
        ("0.27.0", (N, COPY, REALLOC), "0.27"),
    ],
)
def test_a_version_and_its_exports_name_a_layout(version: str, exports: tuple[str, ...], name: str) -> None:
    assert layouts_of(version, exports)[0] == name


def test_a_library_without_a_version_may_have_any_of_those_before() -> None:
    found = layouts_of("", ())
    assert found[:4] == ("2025-09", "2025-08", "2025-07", "2025-03")
    assert layouts_of("", (MAY,))[:4] == ("2025-09", "2025-08", "2025-07", "2025-05")
    assert not any(name.startswith("0.") for name in found)
    assert layouts_of("0.0.2034", ()) == layouts_of("0.9.0-dev", ()) == found


def test_every_layout_is_that_of_some_library() -> None:
    everything = (N, COPY, REALLOC, MAY)
    assert set(layouts_of("99.0", everything)) | set(layouts_of("", everything)) == set(layout_names())
