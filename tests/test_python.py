"""What somebody sees who works with ggmltool in Python, in a notebook or with data frames."""

from __future__ import annotations

import dataclasses
import importlib.util
import pickle
import re
import subprocess
import sys
import traceback
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

import ggmltool
from tests.sources.models import cached

RELU = {
    "ggmltool": 1,
    "contexts": {"c": {"tensors": {"x": "f32[4]"}}},
    "graphs": {"main": {"nodes": {"y": "relu(x)", "z": "sqr(y)"}}},
}
WRONG = {
    "ggmltool": 1,
    "contexts": {"c": {"tensors": {"a": "f32[2, 3]", "b": "f32[3, 2]"}}},
    "graphs": {"main": {"nodes": {"y": "mul_mat(a, b)"}}},
}


def test_a_sample_is_loaded_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U27"""
    assert len(ggmltool.load("transformer").plan().nodes) == 31
    with pytest.raises(ggmltool.ScenarioError, match='did you mean "transformer"'):
        ggmltool.load("transformr")
    monkeypatch.chdir(tmp_path)
    Path("moe").write_text("{}")
    with pytest.raises(ggmltool.ScenarioError, match="no format version"):
        ggmltool.load("moe")


def test_the_package_shows_its_own_names_and_nothing_else() -> None:
    """U27"""
    assert {"Scenario", "Plan", "load", "capture", "ScenarioError", "GgmlError"} <= set(dir(ggmltool))
    assert not {"Any", "TYPE_CHECKING", "annotations"} & set(dir(ggmltool))
    for name in dir(ggmltool):
        assert not isinstance(getattr(ggmltool, name), ModuleType)
    code = "import sys, ggmltool; sys.exit(len({'numpy', 'msgspec', 'yaml', 'click', 'rich'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_model_is_captured() -> None:
    """U27"""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed")
    scenario = ggmltool.capture(cached("llama"), ggmltool.CaptureOptions(n_ctx=64, phase="token"))
    assert scenario.plan(step="reserve").ok
    with pytest.raises(ggmltool.CaptureError, match="nowhere"):
        ggmltool.capture("nowhere.gguf")


def test_a_plan_is_a_line_and_in_a_notebook_two_tables() -> None:
    """U28"""
    plan = ggmltool.load("transformer").plan()
    assert repr(plan) == "<Plan alloc main: 31 nodes, 3 splits, CUDA0 10624 bytes, CPU 14336 bytes>"
    page = ElementTree.fromstring(f"<div>{plan._repr_html_()}</div>")
    assert [len(table) for table in page.iter("table")] == [3, 4]
    large = ggmltool.load("gemma-3-270m-ngl9").plan()
    assert len(repr(large)) < 200
    assert "122 more splits" in large._repr_html_()
    assert len(large._repr_html_()) < 10_000


def test_names_in_a_notebook_are_text() -> None:
    """U28 R3"""
    hostile = "<script>\ufe0f&amp;"
    source = {**RELU, "graphs": {hostile: {"nodes": {"y": "relu(x)"}}}}
    plan = ggmltool.load(source).plan()
    assert "&lt;script&gt;\\ufe0f&amp;amp;" in plan._repr_html_()
    assert "\ufe0f" not in plan._repr_html_() + repr(plan)


def test_a_refused_plan_says_why_in_a_notebook() -> None:
    """U28"""
    plan = ggmltool.load("preallocated").plan()
    assert "refused" in repr(plan)
    assert "cannot run the operation" in plan._repr_html_()


def test_rows_are_dataclasses_and_make_a_data_frame() -> None:
    """U28"""
    plan = ggmltool.load("pipeline").plan()
    for rows in (plan.nodes, plan.leafs, plan.splits, plan.copies):
        assert all(dataclasses.is_dataclass(row) for row in rows)
        assert [f.name for f in dataclasses.fields(rows[0])] == list(dataclasses.asdict(rows[0]))  # type: ignore[arg-type]
    assert [dataclasses.asdict(n)["id"] for n in plan.nodes] == [n.id for n in plan.nodes]  # type: ignore[call-overload]
    if importlib.util.find_spec("pandas") is None:
        return
    frame = importlib.import_module("pandas").DataFrame(plan.nodes)
    assert {"id", "op", "backend", "offset"} <= set(frame.columns)


def test_a_plan_says_which_function_a_unary_op_computes() -> None:
    """U29"""
    plan = ggmltool.load(RELU).plan()
    assert [(n.op, n.op_desc) for n in plan.nodes] == [("UNARY", "RELU"), ("SQR", "SQR")]
    assert [n["op_desc"] for n in plan.as_dict()["nodes"]] == ["RELU", "SQR"]
    old = ggmltool.load("four-passes").plan()
    assert "UNARY" in {n.op for n in old.nodes} - {n.op_desc for n in old.nodes}
    glu = ggmltool.load({**RELU, "graphs": {"main": {"nodes": {"y": "geglu(x)"}}}}).plan()
    assert (glu.nodes[0].op, glu.nodes[0].op_desc) == ("GLU", "GEGLU")


def test_an_error_of_ggmls_says_where_and_what_it_means() -> None:
    """U30"""
    with pytest.raises(ggmltool.GgmlAssert) as caught:
        ggmltool.load(WRONG)
    told = "".join(traceback.format_exception(caught.value))
    assert "GGML_ASSERT(ggml_can_mul_mat(a, b)) failed\n" in told
    assert 'in ggml_mul_mat, for <dict>: node "y"' in told
    assert "the rows must be equally long" in told
    assert caught.value.message == "GGML_ASSERT(ggml_can_mul_mat(a, b)) failed"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_no_docstring_names_a_page_that_is_not_shipped() -> None:
    """U31"""
    package = Path(ggmltool.__file__).parent
    for file in package.rglob("*.py"):
        text = file.read_text("utf-8")
        assert "SPEC.md" not in text, file
        for page in re.findall(r"\b(docs/\w+\.md)\b", text):
            assert (package / page).is_file(), (file, page)
