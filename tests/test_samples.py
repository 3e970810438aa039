"""Every sample graph is short, loads, plans, and the real library agrees with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ggmltool
from ggmltool.ggml.plan import Plan
from ggmltool.scenario.samples import DEFAULT, samples, samples_folder
from ggmltool.scenario.scenario import LoadedScenario
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


def test_from_32_tokens_on_the_experts_are_offloaded(tmp_path: Path) -> None:
    """What the sample's comment promises."""
    text = (samples_folder() / "moe.yaml").read_text("utf-8")
    few = ggmltool.load(samples_folder() / "moe.yaml").plan()
    assert {node.backend for node in few.nodes if node.op == "MUL_MAT_ID"} == {"CPU"}
    (tmp_path / "many.yaml").write_text(text.replace(", 4]", ", 32]"), "utf-8")
    many = ggmltool.load(tmp_path / "many.yaml").plan()
    assert {(node.backend, node.cause) for node in many.nodes if node.op == "MUL_MAT_ID"} == {("CUDA0", "1.off")}


def load(name: str) -> LoadedScenario:
    return ggmltool.load(samples_folder() / f"{name}.yaml")


def document_of(name: str, *texts: str) -> dict[str, Any]:
    """The sample as a dict, for a small change; `texts` must stand in it."""
    import yaml

    text = (samples_folder() / f"{name}.yaml").read_text("utf-8")
    assert all(t in text for t in texts)
    document: dict[str, Any] = yaml.safe_load(text)
    return document


def splits(plan: Plan) -> list[tuple[str, tuple[str, ...]]]:
    return [(split.backend, tuple(n.id for n in plan.nodes[split.i_start : split.i_end])) for split in plan.splits]


def test_a_device_of_a_process_answers_as_it_did_there() -> None:
    scenario = load("recorded")
    one, many = scenario.plan("one"), scenario.plan("many")
    assert splits(one) == [("Vulkan0", ("proj",)), ("CPU", ("act",)), ("Vulkan0", ("out",))]
    assert splits(many) == [("Vulkan0", ("projs", "acts", "outs"))]
    assert [n.alloc_size for n in one.nodes] == [320, 256, 256]


def test_a_debug_build_of_march_2025_says_why_it_plans_again() -> None:
    scenario = load("march-2025")
    run = scenario.start()
    plans = run.run(scenario.steps())
    assert all(plan.ok and plan.ggml == "2025-03" for plan in plans)
    again = (
        "ggml_gallocr_alloc_graph: cannot reallocate multi buffer graph automatically, call reserve",
        "ggml_backend_sched_alloc_splits: failed to allocate graph, reserving (backend_ids_changed = 0)",
    )
    of = "ggml_gallocr_reserve_n: reallocating"
    assert [plan.debug_log for plan in plans] == [
        (f"{of} CUDA0 buffer from size 0.00 MiB to 0.00 MiB", f"{of} CPU buffer from size 0.00 MiB to 0.00 MiB"),
        (),
        ("ggml_gallocr_needs_realloc: graph has different number of nodes", *again),
        (
            "ggml_gallocr_needs_realloc: src 0 (z) of node z (view) is not valid",
            *again,
            f"{of} CUDA0 buffer from size 0.00 MiB to 0.01 MiB",
            f"{of} CPU buffer from size 0.00 MiB to 0.00 MiB",
        ),
    ]
    today = ggmltool.load(samples_folder() / "march-2025.yaml", ggml="0.20.2").run()
    assert [plan["ok"] for plan in today] == [True, True, False]
    assert today[-1]["error"]["condition"] == "!sched->is_alloc"


def test_the_two_samples_on_priority_differ_in_the_usage_only() -> None:
    one, other = document_of("priority", "usage: weights"), document_of("priority-any", "usage: any")
    assert one["contexts"]["host"].pop("usage") == "weights"
    assert other["contexts"]["host"].pop("usage") == "any"
    assert {**one, "name": ""} == {**other, "name": ""}


def test_metal_runs_both_wide_products_first_and_needs_more_memory_for_it() -> None:
    scenario = load("node-order")
    plan = scenario.plan()
    assert [n.id for n in plan.nodes] == ["wide_a", "wide_b", "act_a", "act_b", "a", "b", "out"]
    document = document_of("node-order", "graph_optimize: false")
    document["backends"][0] = {"name": "MTL0", "graph_optimize": False}
    plain = ggmltool.load(document)
    assert [n.id for n in plain.plan().nodes] == [n.id for n in scenario.model.graphs["main"].nodes]
    assert (dict(plan.buffer_sizes)["MTL0"], dict(plain.plan().buffer_sizes)["MTL0"]) == (34 << 10, 20 << 10)
    assert (scenario.compute()["out"] == plain.compute()["out"]).all()


def test_packed_weights_stay_on_the_cpu_and_pinned_ones_go_to_the_gpu() -> None:
    plan = load("packed-weights").plan()
    assert [(n.id, n.backend, n.cause) for n in plan.nodes] == [
        ("up", "CPU", "1.wgt0"), ("act", "CUDA0", "2.sup"), ("plain", "CUDA0", "1.off"),
    ]  # fmt: skip
    document = document_of("packed-weights", "Give w_up 60 rows")
    document["contexts"]["packed"]["tensors"]["w_up"]["ne"] = [64, 60]
    document["contexts"]["pinned"]["tensors"]["w_plain"]["ne"] = [60, 64]
    document["contexts"]["pinned"]["tensors"]["w_plain"]["type"] = "f32"
    other = ggmltool.load(document).plan()
    assert [n.backend for n in other.nodes] == ["CUDA0", "CUDA0", "CUDA0"]
    assert [c.of for c in other.copies] == ["w_up", "x", "w_plain"]


def traced(ggml: str, step: str) -> list[str]:
    """The calls of a step of the sample on 2026, by a release."""
    text = str(ggmltool.load(samples_folder() / "versions-2026.yaml", ggml=ggml).trace())
    return [line.strip(" │├└─") for line in text.partition(f"\n{step}\n")[2].partition("\n\n")[0].splitlines()]


def test_since_0_21_a_split_without_inputs_waits_for_the_one_before() -> None:
    for ggml, waits in (("0.20.2", False), ("0.21", True), ("0.26", True)):
        calls = traced(ggml, "compute waits")
        before = calls[calls.index("ggml_backend_graph_compute_async(GPU1)  split 1: h1") - 1]
        assert (before == "ggml_backend_synchronize(GPU0)") == waits


def test_since_0_26_weights_in_host_memory_are_copied_last() -> None:
    for ggml, first, last in (("0.20.2", "wc", "c0"), ("0.26", "c0", "wc")):
        copied = [line for line in traced(ggml, "compute weights_last") if line.startswith("ggml_backend_tensor_copy")]
        assert [line.partition("(")[2].partition(" ")[0] for line in copied] == [first, last]


def test_since_0_26_the_scheduler_copies_experts_whole() -> None:
    expert = 64 * 16 * 4
    for ggml, experts in (("0.20.2", [2, 5]), ("0.26", [0])):
        sets = [line for line in traced(ggml, "compute whole_experts") if "tensor_set(GPU0#experts#0" in line]
        assert [int(line.partition("offset ")[2].partition(",")[0]) // expert for line in sets] == experts


def test_a_split_takes_more_than_30_inputs_since_0_26_and_inputs_that_no_node_reads_have_copies() -> None:
    path = samples_folder() / "versions-2026.yaml"
    for ggml, n_splits, copied in (("0.20.2", 2, ["c0", "p0"]), ("0.26", 1, ["c1", "c0", "p0"])):
        scenario = ggmltool.load(path, ggml=ggml)
        assert len(scenario.plan("many_inputs").splits) == n_splits
        assert list(dict.fromkeys(c.of for c in scenario.plan("pipeline_inputs", parallel=True).copies)) == copied
