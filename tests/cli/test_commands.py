"""Every command on the samples: text against golden files, JSON by its content."""

from __future__ import annotations

import gzip
import json

import pytest

import ggmltool
from tests.cli.conftest import SAMPLES, Call
from tests.needs import library


def test_run_shows_the_product_of_the_simple_example(call: Call) -> None:
    result = call("run", SAMPLES / "matmul.yaml")
    rows = [line.split() for line in result.out.splitlines()[-3:]]
    assert rows == [["60", "55", "50", "110"], ["90", "54", "54", "126"], ["42", "29", "28", "64"]]


def test_run_json_has_the_plans_and_the_outputs(call: Call) -> None:
    document = json.loads(call("run", "--json", SAMPLES / "matmul.yaml").out)
    assert (document["ggmltool"], document["kind"], document["ok"]) == (1, "run", True)
    assert [plan["step"] for plan in document["plans"]] == ["reserve", "alloc"]
    assert document["outputs"]["result"] == [[[[60, 55, 50, 110], [90, 54, 54, 126], [42, 29, 28, 64]]]]


def test_run_shows_the_tensors_that_are_asked_for(call: Call) -> None:
    document = json.loads(call("run", "--json", "-t", "gate", "-t", "x", SAMPLES / "transformer.yaml").out)
    assert list(document["outputs"]) == ["gate", "x"]


def test_run_without_computing_only_plans(call: Call) -> None:
    document = json.loads(call("run", "--json", "--no-compute", SAMPLES / "gemma-3-270m.json.gz").out)
    assert [plan["step"] for plan in document["plans"]] == ["reserve", "alloc"]
    assert document["outputs"] == {}


@pytest.mark.parametrize("step", ["reserve", "alloc"])
def test_plan_json_is_the_plan_of_the_python_interface(call: Call, step: str) -> None:
    path = SAMPLES / "transformer.yaml"
    document = json.loads(call("plan", "--json", "--step", step, path).out)
    assert document == json.loads(json.dumps(ggmltool.load(path).plan(step=step).as_dict()))


@pytest.mark.parametrize("sample", ["matmul.yaml", "transformer.yaml", "moe.yaml", "gemma-3-270m-ngl9.json.gz"])
def test_the_real_library_agrees_with_the_samples(call: Call, sample: str) -> None:
    library()
    result = call("verify", SAMPLES / sample)
    assert result.status == 0
    assert "does the same" in result.out


@pytest.mark.parametrize(("option", "outputs"), [("--values", 1), ("--no-values", 0)])
def test_verify_compares_values_where_it_is_told_to(call: Call, option: str, outputs: int) -> None:
    library()
    compared = json.loads(call("verify", "--json", option, SAMPLES / "transformer.yaml").out)["compared"]
    assert compared == {"plans": 2, "nodes": 62, "outputs": outputs}
    assert ("the values of" in call("verify", option, SAMPLES / "transformer.yaml").out) == bool(outputs)


def test_verify_says_what_differs(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    library()
    from ggmltool import oracle

    def lying(model: object) -> object:
        run = oracle.OracleRun(*[getattr(real, name) for name in ("plans", "debug", "values", "trace")])
        run.plans[0]["nodes"][0]["offset"] = 7
        run.values[0]["result"] = run.values[0]["result"] + 1
        return run

    from ggmltool.scenario.spec import Step

    model = ggmltool.load(SAMPLES / "matmul.yaml").model
    model.steps.append(Step("get", tensors=("result",)))
    real = oracle.run(model)
    monkeypatch.setattr(oracle, "run", lying)
    result = call("verify", SAMPLES / "matmul.yaml", columns=100)
    assert result.status == 1
    assert "2 differences from the real ggml" in result.out
    assert "reserve main: nodes[0] (result).offset" in result.out
    assert "values of result" in result.out


def test_verify_without_the_library_says_how_to_get_it(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from ggmltool import oracle

    def missing(model: object) -> None:
        raise oracle.OracleUnavailable("The real ggml library is missing. Get it with …")

    monkeypatch.setattr(oracle, "run", missing)
    result = call("verify", SAMPLES / "matmul.yaml")
    assert result.status == 2
    assert "The real ggml library is missing. Get it with" in result.err


def test_scenarios_come_from_standard_input_too(call: Call) -> None:
    text = (SAMPLES / "matmul.yaml").read_bytes()
    assert "60   55   50  110" in call("run", "-", stdin=text).out
    assert "60   55   50  110" in call("run", "-", stdin=gzip.compress(text)).out


def test_another_graph_of_the_file_by_name(call: Call) -> None:
    scenario = {
        "ggmltool": 1,
        "backends": ["CPU"],
        "contexts": {"c": {"tensors": {"x": "f32[4]"}}},
        "graphs": {"one": {"nodes": {"a": "sqr(x)"}}, "two": {"nodes": {"b": "sqrt(x)"}}},
    }
    text = json.dumps(scenario).encode()
    assert json.loads(call("plan", "--json", "-", stdin=text).out)["graph"] == "one"
    assert json.loads(call("plan", "--json", "--graph", "two", "-", stdin=text).out)["nodes"][0]["id"] == "b"
    wrong = call("plan", "--graph", "twoo", "-", stdin=text)
    assert wrong.status == 2
    assert "two" in wrong.err
    assert "did you mean" in wrong.err
