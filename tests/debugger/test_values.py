"""What lies in memory: before a node is computed and after it, forward and back, as the run has it."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from ggmltool.ggml.events import Computed
from ggmltool.ggml.state import TensorState
from ggmltool.state.story.history import History
from tests.debugger.sessions import history_of, prompt_of


@pytest.fixture(scope="module")
def history() -> History:
    return history_of("matmul", compute=True)


def numbers(text: str) -> list[float]:
    """The values of an array as it is printed."""
    return [float(value) for value in text.split("{")[1].strip("}\n").split(", ")]


def test_a_result_is_there_once_it_is_computed_and_not_before(history: History) -> None:
    prompt = prompt_of(history)
    prompt.said("run")
    after = numbers(prompt.said("p *(float*)result->data@12"))
    assert after == history.values(len(history.points) - 1, "result").reshape(-1).tolist()
    assert prompt.said("x/2fw result").split(":")[1].split() == [f"{value:g}" for value in after[:2]]
    computed = next(at for at, point in enumerate(history.points) if isinstance(point.event, Computed))
    prompt.said(f"goto {computed}")
    assert prompt.said("p ((float*) result->data)[3]") == "$2 = 0\n"
    prompt.said(f"goto {computed + 1}")
    assert prompt.said("p ((float*) result->data)[3]") == f"$3 = {after[3]:g}\n"
    prompt.said("reverse-step")
    assert prompt.said("p ((float*) result->data)[3]") == "$4 = 0\n"


@pytest.mark.parametrize("sample", ["transformer", "moe", "views", "offload"])
def test_bytes_are_those_of_the_run(sample: str) -> None:
    history = history_of(sample, compute=True)
    last = len(history.points) - 1
    compared = 0
    newest = {cell.id: cell for _, cell in sorted(history.cells(last).items()) if isinstance(cell, TensorState)}
    for cell in newest.values():
        if not cell.data or not cell.id or cell.type != "f32" or cell.nb[0] != 4:
            continue
        row = cell.ne[0]
        found = np.array(struct.unpack(f"<{row}f", history.bytes_at(last, cell.data, 4 * row)), np.float32)
        assert np.array_equal(found, history.values(last, cell.id).reshape(-1)[:row], equal_nan=True), cell.id
        compared += 1
    assert compared


def test_a_history_without_computing_has_no_bytes() -> None:
    history = history_of("matmul", compute=False)
    assert history.bytes_at(len(history.points) - 1, 0x10000040, 4) == b""
