"""U25: the pages of the manual say what the loader takes, all of it and nothing else, and their examples load."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from typing import Any

import pytest

import ggmltool
from ggmltool.ggml.ops.composites import COMPOSITES
from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from ggmltool.scenario.devices.backends import BACKEND_KEYS, BUFFER_TYPE_KEYS, SCHEDULER_KEYS
from ggmltool.scenario.load import CONTEXT_KEYS, GRAPH_KEYS, TOP_KEYS, USAGES
from ggmltool.scenario.nodes.long_form import KEYS
from ggmltool.scenario.steps import ALL_GRAPH_STEPS, OTHER_STEPS
from tests.cli.conftest import Call, call

__all__ = ["call"]

PAGES = Path(ggmltool.__file__).parent / "docs"
PAGE = (PAGES / "scenario.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
EVERY_EXAMPLE = [
    example
    for path in sorted(PAGES.glob("*.md"))
    for example in re.findall(r"```yaml\n(.*?)```", path.read_text("utf-8"), re.DOTALL)
]
HERE: dict[str, Any] = {"ggmltool": 1, "contexts": {"c": {"buft": "CPU", "tensors": {"x": {"type": "f32", "ne": [4]}}}}}


def keys_of(section: str, head: str = "key") -> list[str]:
    """The first column of the table in a section whose first heading this is."""
    table = re.search(rf"^\| {head} \|.*\n\|[ -|]*\n((?:\|.*\n)+)", SECTIONS[section], re.MULTILINE)
    assert table is not None
    return re.findall(r"^\| `([^`]+)`", table[1], re.MULTILINE)


def known(what: str, scenario: dict[str, Any]) -> list[str]:
    """The keys that the loader names where it is given one that it does not know."""
    with pytest.raises(ggmltool.ScenarioError) as caught:
        ggmltool.load(scenario)
    told = re.search(rf'{what} has no (?:key|kind) "\?+"; (?:its keys|the kinds) are (.*)', str(caught.value))
    assert told is not None, caught.value
    return told[1].split(", ")


def with_data(data: object) -> dict[str, Any]:
    return {**HERE, "contexts": {"c": {"tensors": {"x": {"type": "f32", "ne": [4], "data": data}}}}}


@pytest.mark.parametrize(
    ("section", "keys"),
    [
        ("Top level", TOP_KEYS),
        ("Contexts", CONTEXT_KEYS),
        ("Tensors and nodes", KEYS),
        ("Graphs", GRAPH_KEYS),
        ("Backends", BACKEND_KEYS),
        ("Buffer types", BUFFER_TYPE_KEYS),
        ("Scheduler", SCHEDULER_KEYS),
    ],
)
def test_a_table_has_the_keys_that_the_loader_knows(section: str, keys: tuple[str, ...]) -> None:
    """U25"""
    assert sorted(keys_of(section)) == sorted(keys)


def test_the_tables_of_steps_data_and_supports_are_whole() -> None:
    """U25"""
    assert sorted(keys_of("Steps", "step")) == sorted((*ALL_GRAPH_STEPS, *OTHER_STEPS))
    assert sorted(keys_of("Data")) == sorted([*known("data", with_data({"??": 1})), "tensor"])
    supports = {**HERE, "backends": [{"name": "G", "supports": {"??": 1}}, "CPU"]}
    assert sorted(keys_of("Backends", "key of `supports`")) == sorted(known("supports", supports))


@pytest.mark.parametrize("kind", ["normal", "uniform", "arange"])
def test_the_options_of_data_that_is_made_up_are_those_of_the_loader(kind: str) -> None:
    """U25"""
    row = re.search(rf"^\| `{kind}` \| `{{([^}}]*)}}`", SECTIONS["Data"], re.MULTILINE)
    assert row is not None
    assert row[1].split(", ") == known(kind, with_data({kind: {"??": 1}}))


def test_words_that_a_key_takes_are_named() -> None:
    """U25"""
    assert all(f"`{usage}`" in SECTIONS["Contexts"] for usage in USAGES)
    composed = SECTIONS["Tensors and nodes"].rpartition("A ggml function that is not an op")[2].partition("Of `y:")[0]
    assert set(COMPOSITES) == set(re.findall(r"`(\w+)`", composed))


@pytest.mark.parametrize("example", EVERY_EXAMPLE)
def test_an_example_loads_and_runs(example: str, tmp_path: Path) -> None:
    """U25"""
    file = tmp_path / "example.yaml"
    file.write_text(example)
    scenario = ggmltool.load(file)
    plans = scenario.run()
    assert all(plan["ok"] for plan in plans)
    assert bool(plans) == bool(scenario.model.graphs)


def test_the_examples_have_every_key_somewhere() -> None:
    """U25"""
    text = "\n".join(EXAMPLES)
    of_2024 = {"ggml", "cpu_base_misalign", "tallocr", "measure"}
    rare = {"profile", "meta", "view_src", "view_offs", "npy", "gguf", "tensor", "except", "max_tensor_size", "engine",
            "graph_optimize", "events", "buft", "host", "rates", "row_padding", "copy_callback",
            "uncomputed"}  # fmt: skip
    for section in SECTIONS.keys() - {"Schema and editors"}:
        for key in keys_of(section, "step" if section == "Steps" else "key"):
            assert re.search(rf"\b{key}\b", text) or key in of_2024 | rare, key


def test_help_lists_the_pages_and_shows_one(call: Call) -> None:
    """U25"""
    assert re.search(r"^  scenario +The scenario file$", call("help").out, re.MULTILINE)
    assert call("help", "scenario").out == PAGE
    shown = call("help", "scenario", tty=True, columns=80)
    assert "\x1b[1m" in shown.out
    assert "```" not in shown.out
    assert "|" not in re.sub("\x1b[^m]*m", "", shown.out).partition("Top level")[2].partition("Contexts")[0]
    assert call("help", "plan", columns=80).out == call("plan", "--help", columns=80).out
    assert "Did you mean 'scenario'?" in call("help", "scenaro").err
    assert call("help", "scenario", "-o", "page.md").err == "Wrote page.md\n"
    assert Path("page.md").read_text("utf-8") == PAGE


def test_a_page_has_no_colours_where_none_are_wanted(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in call("help", "scenario", tty=True, columns=80).out


def test_the_manual_page_and_the_readme_lead_to_it(call: Call) -> None:
    """U25"""
    assert "help scenario" in call("man").out.replace("\\-", "-")
    assert "help scenario" in " ".join(call("--help").out.split())
    readme = Path(__file__).parents[1] / "README.md"
    assert "(ggmltool/docs/scenario.md)" in readme.read_text("utf-8")
    assert importlib.metadata.version("ggmltool")


def test_the_page_on_releases_has_all_of_them_with_their_names() -> None:
    page, _, _ = (PAGES / "releases.md").read_text("utf-8").partition("`ggmltool --version`")
    rows = re.findall(r"^\| `([^`]+)`( \(default\))? \| [^|]+\| ([^|]*) ?\|$", page, re.MULTILINE)
    assert [name for name, *_ in rows] == list(RELEASES)
    assert [name for name, default, _ in rows if default] == [DEFAULT.name]
    assert [tuple(re.findall("`([^`]+)`", names)) for *_, names in rows] == [r.names[1:] for r in RELEASES.values()]
