"""Steps that use memory which ggml has freed: every command that runs them says so, and shows no value of it."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Call
from tests.test_users import SAMPLES

SAMPLE = "use-after-free"
WHY = "freed in step 3, alloc large, when the CPU compute buffer grew from 64 B to 4 KiB"


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("command", ["run", "verify"])
def test_it_says_which_step_freed_the_memory_and_what_avoids_it(call: Call, command: str) -> None:
    result = call(command, SAMPLE)
    assert result.status == 1
    text = flat(result.out)
    assert f"Step 6, compute small, uses freed memory: a, b, product ({WHY})." in text
    assert "No result: product." in text
    assert "reserve the largest graph first" in text


def test_no_value_of_it_is_shown(call: Call) -> None:
    result = call("run", "--json", SAMPLE)
    document = json.loads(result.out)
    assert (result.status, document["ok"]) == (1, False)
    assert document["outputs"]["product"] is None
    assert document["use_after_free"] == [
        {
            "step": 6,
            "did": "compute small",
            "tensors": ["a", "b", "product"],
            "results": ["product"],
            "freed": {"step": 3, "did": "alloc large", "buft": "CPU", "old_size": 64, "new_size": 4096},
        }
    ]


def test_what_avoids_it_does(call: Call) -> None:
    text = (SAMPLES / f"{SAMPLE}.yaml").read_text()
    anew = text.replace("compute small  ", "alloc small\n  - compute small  ")
    reserved = text.replace("steps:", "steps:\n  - reserve large")
    for changed in (anew, reserved.replace("compute small  ", "set: {a: [2], b: [3]}\n  - compute small  ")):
        result = call("run", "-", stdin=changed.encode())
        assert result.status == 0, result.out
        assert "product · f32 [1]\n  6" in result.out


def test_a_step_that_computes_another_graph_says_which(call: Call) -> None:
    text = (SAMPLES / f"{SAMPLE}.yaml").read_text()
    text = text[: text.index("  - compute large")] + "  - compute small\n"
    result = call("run", "-", stdin=text.encode())
    assert result.status == 0
    assert "computed sum: the scheduler holds large" in result.out
    assert "product" not in result.out


def test_set_and_get_mean_the_tensors_of_an_older_build(call: Call) -> None:
    text = (SAMPLES / f"{SAMPLE}.yaml").read_text()
    text = text[: text.index("  - compute large")] + "  - {set: {a: [5]}}\n  - {get: [product]}\n"
    result = call("run", "-", stdin=text.encode())
    assert result.status == 1
    assert "Step 4, set a, uses freed memory: a (" in flat(result.out)
    assert "Step 5, get product, uses freed memory: product (" in flat(result.out)


def test_the_trace_and_the_debugger_show_it_where_it_happens(call: Call) -> None:
    result = call("trace", SAMPLE)
    assert result.status == 1
    assert "use after free: a, used by product; step 3 freed it when CPU grew from 64 to 4096 bytes" in result.out
    commands = ["break ggml_backend_sched_compute_splits", "run", "continue", "next"]
    said = call("debug", SAMPLE, "--batch", *(part for c in commands for part in ("-ex", c)))
    assert "use after free: a, used by product; step 3 freed it" in said.out


def test_the_tensor_and_its_lifetime_say_it(call: Call) -> None:
    assert (
        f"memory     CPU (compute), offset 0: {WHY}"
        in call("tensor", "--after", "3", "product", SAMPLE, columns=200).out
    )
    text = flat(call("lifetime", "--after", "3", "product", SAMPLE).out)
    assert f"product (MUL f32[1]) has 4 B at 0 in CPU (compute): {WHY}." in text
    row = json.loads(call("tensor", "--json", "--after", "6", "product", SAMPLE).out)["tensor"]
    assert row["freed"] == {"step": 3, "did": "alloc large", "buft": "CPU", "old_size": 64, "new_size": 4096}


def test_in_python_a_value_of_it_is_an_error() -> None:
    import ggmltool
    from ggmltool.ggml.errors import UseAfterFree

    scenario = ggmltool.load(SAMPLE).opened.scenario
    run = scenario.start(values=True)
    for step in scenario.model.steps:
        run.step(step)
    with pytest.raises(UseAfterFree, match="product lies in freed memory: use after free"):
        run.get("product")
    assert issubclass(UseAfterFree, ggmltool.Error)
