"""`trace` and the debugger tell one story: the calls of a trace are the stacks of the debugger."""

from __future__ import annotations

import pytest

import ggmltool
from ggmltool.ggml.events import Computed, Grown, Synchronized, TensorCopied, TensorWritten
from ggmltool.inspect.history.history import record_history
from ggmltool.inspect.trace import trace_steps
from ggmltool.views.compute.calls import Call, calls_of


def paths_of(calls: list[Call]) -> set[tuple[str, ...]]:
    """The functions on the way to each call, the outermost first."""
    out = set()
    path: list[str] = []
    for call in calls:
        if not call.is_note:
            path = [*path[: call.depth], call.text.partition("(")[0]]
            out.add(tuple(path))
    return out


@pytest.mark.parametrize(
    ("sample", "release"),
    [
        ("four-passes", "2024-01"),
        ("priority", "2025-03"),
        ("pipeline", "0.20.2"),
        ("pipeline", "0.26"),
        ("outgrown", "0.20.2"),
    ],
)
def test_the_way_to_every_call_is_the_debuggers_stack(sample: str, release: str) -> None:
    scenario = ggmltool.load(sample, ggml=release)
    history = record_history(scenario, compute=True)
    steps = calls_of(trace_steps(scenario, compute=True))
    told = paths_of([call for step in steps for call in step])
    kinds = (Computed, Grown, Synchronized, TensorCopied, TensorWritten)
    stacks = {history.functions(at)[-2::-1] for at, p in enumerate(history.points) if isinstance(p.event, kinds)}
    assert stacks
    assert stacks <= told


def test_january_2024_copies_as_its_source_does_and_writes_before_it_computes() -> None:
    found = trace_steps(ggmltool.load("four-passes"), compute=True)
    calls = [call.text for call in calls_of(found)[-1] if not call.is_note]
    copy = calls.index("ggml_backend_tensor_copy_async(tok → CUDA0#tok, 512 bytes)")
    assert calls[copy + 1 : copy + 4] == [
        "ggml_backend_tensor_set_async(CUDA0#tok, offset 0, 512 bytes)",
        "ggml_backend_cuda_set_tensor_async(CUDA0)",
        "cudaMemcpyAsync",
    ]
    write = calls.index("ggml_backend_tensor_set(bias, offset 0, 128 bytes)")
    assert write < calls.index("ggml_backend_graph_compute(CPU)  split 2: out, shifted, result")
    assert not any("graph_compute_async" in call for call in calls)


def test_arguments_of_a_copy_in_january_2024_are_those_of_its_split() -> None:
    history = record_history(ggmltool.load("four-passes"), compute=True)
    at = next(at for at, point in enumerate(history.points) if isinstance(point.event, TensorCopied))
    assert [frame.function for frame in history.stack(at)[:3]] == [
        "ggml_backend_cuda_set_tensor_async",
        "ggml_backend_tensor_set_async",
        "ggml_backend_tensor_copy_async",
    ]
    copied = history.labels(at)["CUDA0#tok"]
    for frame in history.stack(at)[:2]:
        arguments = dict(frame.arguments)
        assert (arguments["tensor"].index, arguments["backend"].index) == (copied, 0)  # type: ignore[union-attr]
