"""Every view of a scenario under every version of ggml: a view, ggml's refusal or a clear message, no traceback."""

from __future__ import annotations

import pytest

from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from tests.cli.conftest import Call

VIEWS = (
    "plan", "plan --json", "plan --step reserve", "splits", "splits --format table", "splits --debug 2 --no-causes",
    "splits --pass 1", "splits --pass 4", "splits --bytes", "splits --by op,backend", "buffers",
    "buffers --step reserve", "buffers --chart", "buffers --chunks", "buffers --copies", "allocs", "allocs --trace",
    "allocs --format gdb", "hash", "hash --sched", "hash --format gdb", "check", "check --json", "lifetime",
    "context", "tensor", "trace", "trace --decisions", "backends", "backends --interface", "supports", "dot",
    "dot --style ggmltool", "graph", "run -v", "run --json", "explain split 0",
)  # fmt: skip
SCENARIOS = ("allocator", "arena", "inplace", "matmul", "outgrown", "packed-weights", "pipeline", "preallocated",
             "transformer", "versions-memory", "versions-splits", "views")  # fmt: skip


@pytest.mark.parametrize("version", [name for name in RELEASES if name != DEFAULT.name])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_view_has_an_answer(call: Call, version: str, scenario: str) -> None:
    for view in VIEWS:
        result = call(*view.split(), "--ggml", version, scenario)
        assert result.status in (0, 1, 2), view
        assert "internal error" not in result.err, view
        assert result.out or result.err, view
