"""Every sample graph is short, loads, plans, and the real library agrees with it."""

from __future__ import annotations

from pathlib import Path

import pytest

import ggmltool
from ggmltool.scenario.samples import DEFAULT, samples, samples_folder
from tests.lifetimes import memory_plan

SAMPLES = samples()
REFUSED = "preallocated.yaml"
"""The one that ggml does not plan."""
PLANNED = [path for path in SAMPLES if path.name != REFUSED]


def ids(path: Path) -> str:
    return path.name


def test_there_is_a_sample_for_each_thing_to_learn() -> None:
    names = {path.name for path in SAMPLES}
    assert {"matmul.yaml", "transformer.yaml", "moe.yaml", "gemma-3-270m.json.gz"} <= names
    assert (samples_folder() / DEFAULT).is_file()


@pytest.mark.parametrize("path", [p for p in SAMPLES if p.suffix == ".yaml"], ids=ids)
def test_a_sample_is_short_and_says_what_it_teaches(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.startswith("# ")
    assert f"sample_graphs/{path.name}" in text
    assert len(text.splitlines()) <= 100


@pytest.mark.parametrize("step", ["reserve", "alloc"])
@pytest.mark.parametrize("path", PLANNED, ids=ids)
def test_a_sample_is_planned(path: Path, step: str) -> None:
    plan = ggmltool.load(path).plan(step=step)
    assert plan.ok
    assert plan.nodes


@pytest.mark.parametrize("path", PLANNED, ids=ids)
def test_the_lifetimes_fill_the_buffers_and_never_overlap(path: Path) -> None:
    events: list[object] = []
    plan = ggmltool.load(path).plan(events=events.append)
    memory = memory_plan(events)  # type: ignore[arg-type]
    shared: set[str] = set()
    for name, buft in plan.backends:
        spare = 64 if plan.tallocs and name == "CPU" else 0
        assert dict(plan.buffer_sizes)[name] == (0 if buft in shared else sum(memory.chunk_sizes(buft)) + spare)
        shared.add(buft)
    end = len(memory.nodes)
    for i, a in enumerate(memory.lifetimes):
        for b in memory.lifetimes[:i]:
            apart_in_memory = (a.buft, a.chunk) != (b.buft, b.chunk) or (
                a.offset >= b.offset + b.size or b.offset >= a.offset + a.size
            )
            a_end, b_end = (end if x.end is None else x.end for x in (a, b))
            assert apart_in_memory or a.start > b_end or b.start > a_end


def test_the_product_is_that_of_the_simple_example() -> None:
    result = ggmltool.load(samples_folder() / "matmul.yaml").compute()["result"]
    assert result[0, 0].tolist() == [[60, 55, 50, 110], [90, 54, 54, 126], [42, 29, 28, 64]]


def test_the_transformer_block_changes_devices_twice() -> None:
    plan = ggmltool.load(samples_folder() / "transformer.yaml").plan()
    assert [split.backend for split in plan.splits] == ["CUDA0", "CPU", "CUDA0"]


def test_from_32_tokens_on_the_experts_are_offloaded(tmp_path: Path) -> None:
    """What the sample's comment promises."""
    text = (samples_folder() / "moe.yaml").read_text("utf-8")
    few = ggmltool.load(samples_folder() / "moe.yaml").plan()
    assert {node.backend for node in few.nodes if node.op == "MUL_MAT_ID"} == {"CPU"}
    (tmp_path / "many.yaml").write_text(text.replace(", 4]", ", 32]"), "utf-8")
    many = ggmltool.load(tmp_path / "many.yaml").plan()
    assert {(node.backend, node.cause) for node in many.nodes if node.op == "MUL_MAT_ID"} == {("CUDA0", "1.off")}
