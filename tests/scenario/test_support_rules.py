"""Devices of one's own: rules on ops by type, shape, strides and source, and the cases of a real device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ggmltool
from ggmltool.ggml.devices.cases import Basis
from ggmltool.inspect.decisions import answer
from ggmltool.scenario.dump import dump
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.run.run import Run
from ggmltool.scenario.scenario import LoadedScenario
from tests.scenarios import scenario_of

TENSORS = {
    "w": "q5_K[256, 64]", "w4": "q4_0[64, 64]", "wf": "f32[64, 129]", "x": "f32[256, 4]", "h": "f16[64, 64]",
    "y": "f32[64, 4]", "odd": "f32[33, 4]", "row": "f32[64]",
}  # fmt: skip
NODES = {
    "q5": "mul_mat(w, x)",
    "q4": "mul_mat(w4, y)",
    "f": "mul_mat(wf, y)",
    "half": "mul_mat(h, y)",
    "norm": "rms_norm(y, eps=1e-6)",
    "norm33": "rms_norm(odd, eps=1e-6)",
    "silu": "silu(y)",
    "relu": "relu(y)",
    "turned": "transpose(y)",
    "strided": "sum_rows(turned)",
    "sum": "sum_rows(y)",
    "add": "add(y, y)",
    "mixed": "add(y, row)",
    "soft": "soft_max(y)",
}


def scenario(supports: Any, folder: Path | None = None) -> dict[str, Any]:
    return scenario_of(TENSORS, NODES, backends=[{"name": "NPU0", "supports": supports}, "CPU"])


def started(supports: Any, folder: Path | None = None) -> Run:
    return LoadedScenario(load_spec(scenario(supports), folder=folder)).start()


def refusals(supports: Any, *names: str, folder: Path | None = None) -> list[str | None]:
    run = started(supports, folder)
    built = {t.id: t for t in run.build("main").nodes}
    return [run.backends[0].device.why_not(built[name]) for name in names or built]


RULES = [
    {
        "op": "mul_mat",
        "src0": {"types": ["q4_0", "f16"], "contiguous": True, "ne0": {"multiple": 32, "max": 4096}},
        "src1": {"types": ["f32"], "contiguous": True},
    },
    {"op": "mul_mat", "src0": {"types": ["f32"], "rows": {"max": 128}}},
    {"op": "rms_norm", "src0": {"ne0": {"multiple": 32}}},
    {"op": "sum_rows", "src0": {"contiguous": "rows"}},
    {"op": "silu"},
    {"op": "add", "same_type": ["src0", "src1"], "same_shape": ["src0", "src1"]},
    {"op": "soft_max", "src1": {"present": True}},
]


def test_a_node_of_an_op_with_rules_has_to_meet_one_of_them() -> None:
    assert refusals({"only": [], "rules": RULES}) == [
        "source 0 is q5_K, not q4_0 or f16",
        None,
        "the number of rows of source 0 is 129, more than 128",
        None,
        None,
        "ne[0] of source 0 is 33, no multiple of 32",
        None,
        "RELU is not supported",
        None,
        "rows of source 0 are not contiguous",
        None,
        None,
        "source 0 and source 1 differ in shape",
        "source 1 is missing",
    ]


def test_without_a_list_ops_without_rules_are_supported() -> None:
    assert refusals({"rules": RULES}, "relu", "f") == [None, "the number of rows of source 0 is 129, more than 128"]


def test_a_rule_for_any_op_is_asked_besides_the_ops_own() -> None:
    rules = [{"op": "any", "src": {"types": ["f32", "f16"]}, "result": {"bytes": {"max": "1KiB"}}}, {"op": "silu"}]
    assert refusals({"rules": rules}, "q4", "f", "silu", "turned") == [
        "source 0 is q4_0, not f32 or f16",
        "the size of the result is 2064 bytes, more than 1024",
        None,
        None,
    ]


def test_rules_on_a_known_profile_leave_its_other_ops() -> None:
    given = scenario(None)
    given["backends"][0] = {
        "name": "CUDA0",
        "supports": {"profile": True, "rules": [{"op": "rms_norm", "src0": {"ne0": [64, 128]}}]},
    }
    run = ggmltool.load(given).start()
    built = {t.id: t for t in run.build("main").nodes}
    device = run.backends[0].device
    assert device.why_not(built["norm33"]) == "ne[0] of source 0 is 33, not 64 or 128"
    without = ggmltool.load({**given, "backends": ["CUDA0", "CPU"]}).start()
    without.build("main")
    plain = without.backends[0].device
    others = [t for name, t in built.items() if name != "norm33"]
    assert [device.why_not(t) for t in others] == [plain.why_not(t) for t in others]


@pytest.mark.parametrize(
    "supports",
    [
        {"rules": RULES},
        {"only": ["add"], "rules": RULES},
        {"except": ["relu"], "rules": RULES},
        {"profile": True, "rules": RULES},
        {"rules": [{"op": "any", "src": {"nb1": {"multiple": 16}, "ne2": 1, "rows": [1, 4], "contiguous": "from 1"}}]},
    ],
)
def test_what_is_written_out_is_read_again_as_the_same(supports: Any) -> None:
    model = load_spec(scenario(supports))
    assert load_spec(dump(model)) == model


HEAD = '"backend_name","op_name","op_params","test_mode","supported","error_message","backend_reg_name"\n'


def rows(*cases: tuple[str, str, bool], backend: str = "CUDA0") -> str:
    return "".join(f'"{backend}","{op}","{params}","support","{int(yes)}","","CUDA"\n' for op, params, yes in cases)


CASES = rows(
    ("MUL_MAT", "type_a=q4_0,type_b=f32,m=16,n=1,k=256,bs=[1,1],nr=[1,1],per=[0,1,2,3],k_v=0,o=1", True),
    ("MUL_MAT", "type_a=q4_0,type_b=f32,m=64,n=4,k=64,bs=[1,1],nr=[1,1],per=[0,1,2,3],k_v=0,o=1", False),
    ("MUL_MAT", "type_a=q5_K,type_b=f32,m=16,n=1,k=256,bs=[1,1],nr=[1,1],per=[0,1,2,3],k_v=0,o=1", True),
    ("MUL_MAT", "type_a=q5_K,type_b=f32,m=16,n=1,k=256,bs=[2,3],nr=[1,1],per=[0,2,1,3],k_v=0,o=1", False),
    ("MUL_MAT", "type_a=f32,type_b=f32,m=16,n=1,k=256,bs=[1,1],nr=[1,1],per=[0,1,2,3],k_v=0,o=1", False),
    ("RMS_NORM", "type=f32,ne=[64,5,4,3],v=0,eps=0.000000,inplace=0", True),
    ("RMS_NORM", "type=f32,ne=[30,5,4,3],v=0,eps=0.000000,inplace=0", False),
    ("SUM_ROWS", "type=f32,ne=[10,5,4,3],permute=0,slice=0", True),
    ("SUM_ROWS", "type=f32,ne=[10,5,4,3],permute=1,slice=0", False),
    ("SILU", "type=f16,ne_a=[128,2,2,2],v=0", True),
    ("RMS_NORM_MUL_ADD", "type=f32,ne=[64,5,4,3]", True),
    ("SOME_OP_TO_COME", "type=f32,ne=[64,5,4,3]", True),
)


def test_cases_of_a_real_device_decide_and_say_how(tmp_path: Path) -> None:
    (tmp_path / "cuda.csv").write_text(HEAD + CASES)
    run = started({"csv": "cuda.csv"}, tmp_path)
    cases = run.model.backends[0].supports
    assert cases is not None
    assert cases.cases is not None
    nodes = run.build("main").nodes
    device = run.backends[0].device
    told = {}
    for t in nodes:
        measured = cases.cases.answer(t)
        given = answer(device, t)
        if not t.is_view_op:
            assert (given.op is None) == measured.supported
        told[t.id] = (measured.basis, measured.yes, measured.of, given.op)
    assert told["q4"] == (Basis.EXACT, 0, 1, "not supported in the same case of test-backend-ops")
    assert told["q5"] == (Basis.TYPES, 1, 1, None)
    assert told["f"] == (Basis.TYPES, 0, 1, "not supported in test-backend-ops with these types, 0 of 1 cases")
    assert told["half"] == (Basis.NO_CASE, 0, 0, "test-backend-ops has no case with these types")
    assert told["norm"] == (Basis.NEAREST, 1, 1, None)
    assert told["norm33"][:3] == (Basis.NEAREST, 0, 1)
    assert (told["sum"][3], told["strided"][:3]) == (None, (Basis.TYPES, 0, 1))
    assert told["silu"][0] is Basis.NO_CASE
    assert told["relu"][3] == "RELU is not supported"
    assert told["turned"][3] is None


def test_of_several_backends_one_is_chosen_and_rules_go_before_cases(tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text(HEAD + CASES + rows(("RELU", "type=f32,ne_a=[64,4,1,1],v=0", True), backend="B"))
    assert refusals({"csv": "all.csv", "backend": "B"}, "relu", "silu", folder=tmp_path) == [
        None,
        "SILU is not supported",
    ]
    rules = [{"op": "mul_mat", "src0": {"types": ["f32"]}}]
    assert refusals({"csv": "all.csv", "backend": "B", "rules": rules}, "f", "q4", folder=tmp_path) == [
        None,
        "source 0 is q4_0, not f32",
    ]
    with pytest.raises(ScenarioError, match=r'has no backend "NPU0"; it has "CUDA0", "B"; say which with `backend`'):
        started({"csv": "all.csv"}, tmp_path)
    with pytest.raises(ScenarioError, match=r'has no backend "CUDA1"; did you mean "CUDA0"\?'):
        started({"csv": "all.csv", "backend": "CUDA1"}, tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'there is no column "backend_name"'),
        ("op,what\n", 'there is no column "backend_name"; expected the CSV of `test-backend-ops support'),
        (HEAD, "has no backend"),
        (HEAD + '"a","ADD"\n', '"x.csv":2: this row has 2 columns, and the first line 7'),
        (HEAD + '"a","ADD","type=f32","support","maybe","",""\n', '"x.csv":2: supported is "maybe"; expected 1 or 0'),
        (HEAD + '"a","WHAT","type=f32","support","1","",""\n', "has no op of ggml's"),
        (HEAD + '"a","ADD","' + "x" * 5000 + '","support","1","",""\n', "op_params has 5000 characters"),
        (HEAD + '"a","AD"D","type=f32","support","1","",""\n', "is not CSV"),
    ],
)
def test_a_mistake_in_a_csv_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(ScenarioError) as caught:
        started({"csv": "x.csv"}, tmp_path)
    assert message in str(caught.value)


@pytest.mark.parametrize("file", ["../x.csv", "missing.csv", "/etc/hostname"])
def test_a_csv_lies_in_the_scenarios_folder(tmp_path: Path, file: str) -> None:
    with pytest.raises(ScenarioError, match=r"lies outside|there is no file"):
        started({"csv": file}, tmp_path)


def test_parameters_that_are_no_numbers_or_shapes_are_passed_over(tmp_path: Path) -> None:
    odd = rows(
        ("MUL_MAT", "type_a=f32,type_b=,m=[1,k=x,bs=[1],nr=,per=", True),
        ("FLASH_ATTN_EXT", "hsk=64,nh=4,nr23=[1],kv=,type_KV=nope", True),
        ("SET_ROWS", "type=f32,ne=[a,b],nr23=[1,1],r=2", False),
        ("ADD", "type=f32,ne=[1,2,3,4,5],nr=[1]", True),
        ("GEGLU", "split", True),
    )
    (tmp_path / "odd.csv").write_text(HEAD + odd)
    assert refusals({"csv": "odd.csv"}, "f", "add", folder=tmp_path) == [None, None]
