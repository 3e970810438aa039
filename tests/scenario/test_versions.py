"""Scenarios for a version of ggml: how it is chosen, and what it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ggmltool
from ggmltool import ScenarioError
from ggmltool.ggml.devices.profiles import PROFILES
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.graph_copy import Copier
from ggmltool.ggml.op import KEY_NAMES
from ggmltool.ggml.releases.parts import copier_of, profiles_of
from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from ggmltool.scenario.dump import dump
from ggmltool.scenario.versions import days

MARCH = "2025-03"


def of(nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    tensors = {"x": "f32[64, 64]", "y": "f32[64, 64]", "i": "i64[64]"}
    return {"ggmltool": 1, "contexts": {"c": {"tensors": tensors}}, "graphs": {"main": {"nodes": nodes}}, **more}


def refusal(scenario: dict[str, Any] | Path, ggml: str | None = None) -> str:
    with pytest.raises(ScenarioError) as caught:
        ggmltool.load(scenario, ggml=ggml)
    return str(caught.value)


def test_every_release_has_its_parts() -> None:
    assert [release.name for release in RELEASES.values()] == list(RELEASES)
    for name, release in RELEASES.items():
        scenario = ggmltool.load({"ggmltool": 1, "graphs": {"main": {"nodes": {}}}}, ggml=release)
        assert scenario.start().start().release is release
        assert profiles_of(release)["CPU"].ggml == name
        assert issubclass(copier_of(release), Copier)


def test_the_caller_chooses_before_the_file_and_the_default_is_today() -> None:
    nodes = {"z": "add(x, y)"}
    assert ggmltool.load(of(nodes)).model.release is DEFAULT
    assert ggmltool.load(of(nodes, ggml=MARCH)).model.ggml == MARCH
    assert ggmltool.load(of(nodes, ggml=MARCH), ggml=DEFAULT.name).model.release is DEFAULT
    assert ggmltool.load(of(nodes), ggml=MARCH).plan().ggml == MARCH


def test_a_written_scenario_keeps_its_version() -> None:
    model = ggmltool.load(of({"z": "add(x, y)"}, ggml=MARCH)).model
    assert dump(model)["ggml"] == MARCH
    assert ggmltool.load(dump(model)).model == model


@pytest.mark.parametrize("quote", ["", '"'])
def test_yaml_may_quote_it_or_not(quote: str, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"ggmltool: 1\nggml: {quote}{MARCH}{quote}\ngraphs: {{main: {{nodes: {{}}}}}}\n")
    assert ggmltool.load(file).model.ggml == MARCH


def test_an_unknown_version_is_an_error_with_its_place_and_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("ggmltool: 1\nggml: 2025-3\n")
    assert refusal(file).endswith('a.yaml:2:7: "2025-3" is not a ggml that ggmltool knows; did you mean "2025-03"?')
    assert f"ggml is {' or '.join(RELEASES)}" in refusal(of({}), ggml="5")


def test_a_key_that_the_version_lacks_is_an_error_in_a_file_for_it_and_left_out_of_others() -> None:
    off = {"op_offload": False, "parallel": True}
    said = refusal(of({"z": "add(x, y)"}, ggml=MARCH, scheduler=off))
    assert (
        said == "<dict>: scheduler.op_offload: ggml 2025-03 has no op_offload; available since 2025-05-11; leave it out"
    )
    model = ggmltool.load(of({"z": "add(x, y)"}, scheduler=off), ggml=MARCH).model
    assert model.left_out == ("scheduler.op_offload",)
    assert (model.scheduler.op_offload, model.scheduler.parallel) == (True, True)


@pytest.mark.parametrize("node", ["scale(x, s=2)", "pad(x, 1, 1, 0, 0)", "soft_max(x)", "gelu(x)"])
def test_ops_that_were_there_are_fine(node: str) -> None:
    assert ggmltool.load(of({"z": node}, ggml=MARCH)).plan().ok


def test_the_tables_of_days_name_types_that_there_are() -> None:
    assert days().types.keys() <= set(TYPES)
    assert days().profiles.keys() <= PROFILES.keys()
    assert days().ops_until.keys().isdisjoint(KEY_NAMES)


def test_a_device_whose_rules_are_not_known_is_an_error() -> None:
    said = refusal(of({}, ggml=MARCH, backends=["Vulkan0", "CPU"]))
    assert said.startswith(
        "<dict>: backends[0]: the rules that Vulkan had in ggml 2025-03 are not known here; known are "
    )
    custom = [{"name": "Vulkan0", "profile": "custom"}, "CPU"]
    assert ggmltool.load(of({"z": "add(x, y)"}, ggml=MARCH, backends=custom)).plan().ok


def test_an_output_that_is_a_view_leaves_its_root_as_it_is() -> None:
    nodes = {"z": "add(x, y)", "v": {"op": "reshape", "src": ["z"], "ne": [4096], "flags": ["output"]}}
    flags = {
        ggml: ggmltool.load(of(nodes), ggml=ggml).model.graphs["main"].nodes[0].flags for ggml in ("0.20.2", MARCH)
    }
    assert flags == {"0.20.2": 2, MARCH: 0}


@pytest.mark.parametrize("name", ["0.26", "0.26.0", "b11549", 0.26])
def test_a_release_goes_by_its_version_and_by_its_build(name: str | float) -> None:
    model = ggmltool.load(of({"z": "add(x, y)"}, ggml=name)).model
    assert model.ggml == "0.26"
    assert ggmltool.load(dump(model)).model.ggml == "0.26"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("0.27", '"0.27" is not a ggml that ggmltool knows; it decides as 0.26 does, but ggml_conv_1d ends in permute'),
        ("b11739", "it decides as 0.26 does, but ggml_conv_1d"),
        ("b11434", "it decides as 0.26 does, but its scheduler copies the used experts itself"),
        ("0.26.1", "did you mean"),
    ],
)
def test_a_ggml_that_decides_nearly_as_a_release_is_told_so(name: str, said: str) -> None:
    assert said in refusal(of({}, ggml=name))


def test_no_two_releases_go_by_one_name() -> None:
    named = [
        name for release in RELEASES.values() for name in (*release.names, *(n for r in release.near for n in r.names))
    ]
    assert len(named) == len(set(named))
