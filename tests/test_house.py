"""How the house is laid out: no circles of modules, and a release known by its value alone."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import ggmltool
from ggmltool.cli.options import ggml_option
from ggmltool.ggml.releases.table import DEFAULT, RELEASES

PACKAGE = Path(ggmltool.__file__).parent
FOLDERS = [release.folder for release in RELEASES.values()]
PAGE = (PACKAGE / "docs" / "house.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`((?:[a-z_0-9]+/)+(?:[a-z_0-9]+\.(?:py|toml))?)`", PAGE)))
RECIPES = re.findall(r"^## ([^\n]*\?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)

CIRCLE = ("ggmltool.ggml.buffer", "ggmltool.ggml.tensor")
"""The one circle of modules: ggml.h has this one too."""

DOCUMENTED = {"Buffer", "Chunk", "Error"}
"""Rows of JSON documents that are called as what they tell of."""


@cache
def trees() -> Mapping[str, ast.Module]:
    """The syntax trees of all modules, by name."""
    out = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        out[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text("utf-8"))
    return out


@cache
def nodes(name: str) -> tuple[ast.AST, ...]:
    """All nodes of a module's tree that these tests look at."""
    looked_at = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.Call, ast.Compare)
    return tuple(node for node in ast.walk(trees()[name]) if isinstance(node, looked_at))


@cache
def imported(name: str) -> set[str]:
    """The modules of ours that a module imports anywhere: at its top, in a function, for its types."""
    found: set[str] = set()
    for node in nodes(name):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in trees() else node.module)
    return {module for module in found if module in trees() and module != name}


def test_no_modules_import_each_other_but_the_one_circle_of_ggml() -> None:
    graph = {name: imported(name) for name in trees()}
    one, other = CIRCLE
    assert other in graph[one]
    assert one in graph[other]
    graph[other] = graph[other] - {one}
    TopologicalSorter(graph).prepare()  # it raises CycleError


def test_no_two_public_classes_have_one_name() -> None:
    """A release's own form of one of ggml's has ggml's name in the release's folder."""
    homes: dict[str, list[str]] = {}
    for name, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name)
    releases = re.compile(rf"ggmltool\.ggml\.releases\.({'|'.join(FOLDERS)})\.")
    twice = {name for name, of in homes.items() if len([m for m in of if not releases.match(m)]) > 1}
    assert twice == DOCUMENTED


def test_only_its_own_folder_and_the_table_know_the_modules_of_a_release() -> None:
    folders = tuple(f"ggmltool.ggml.releases.{folder}" for folder in FOLDERS)
    for name in trees():
        for module in imported(name):
            if not module.startswith(folders):
                continue
            folder = next(folder for folder in folders if module.startswith(folder))
            in_table = name == "ggmltool.ggml.releases.table" and module == folder
            in_table = in_table or name == "ggmltool.ggml.releases.parts"
            # A part goes on from the same part of another release: its rules from the rules there.
            part = name.rpartition(".")[2]
            of_another = name.startswith(folders) and module in (
                folder,
                f"{folder}.devices",
                f"{folder}.rules",
                f"{folder}.{part}",
            )
            assert in_table or of_another or name.startswith(folder), f"{name} imports {module}"


def test_nothing_asks_for_the_class_of_a_release() -> None:
    """A release says what it is by its fields, a scheduler by its methods."""
    classes = {
        node.name
        for name in trees()
        if name.startswith("ggmltool.ggml.releases.")
        for node in nodes(name)
        if isinstance(node, ast.ClassDef)
    } | {"Scheduler", "AnyScheduler", "MeasuringScheduler", "ReservingRun", "MeasuredRun"}
    for name in trees():
        for node in nodes(name):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
                asked = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
                assert not asked & classes, f"{name}:{node.lineno}"


def test_nothing_outside_of_them_knows_a_release_by_its_name() -> None:
    for name in trees():
        if name.startswith("ggmltool.ggml.releases."):
            continue
        for node in nodes(name):
            if isinstance(node, ast.Compare):
                texts = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
                assert not texts & RELEASES.keys(), f"{name}:{node.lineno}"
                assert not texts & {"reserve", "measure"} or ".steps" not in ast.unparse(node), f"{name}:{node.lineno}"


@pytest.mark.parametrize("name", NAMED)
def test_what_the_page_on_the_house_names_is_there(name: str) -> None:
    assert (PACKAGE / name).exists() or (PACKAGE.parent / name).exists()


def test_every_room_is_on_the_page() -> None:
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name[0] not in "_."}
    assert rooms - {"sample_graphs"} == set(re.findall(r"^\| `(\w+)/` \|", PAGE, re.MULTILINE))


@pytest.mark.parametrize(("question", "recipe"), RECIPES)
def test_a_recipe_has_ten_lines_at_most(question: str, recipe: str) -> None:
    assert 3 <= len(recipe.strip().splitlines()) <= 10, question


def test_a_plan_imports_the_parts_of_its_own_release_only() -> None:
    code = (
        "import sys, ggmltool; ggmltool.load('matmul').plan();"
        "print([m for m in sys.modules if 'releases.' in m and '_202' in m and not m.endswith('.release')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    others = [f"ggmltool.ggml.releases.{release.folder}" for release in RELEASES.values() if release is not DEFAULT]
    loaded = ast.literal_eval(done.stdout)
    assert [module for module in loaded if module.startswith(tuple(f"{other}." for other in others))] == []


def test_the_help_of_ggml_names_every_release() -> None:
    command = ggml_option(lambda: None)
    (option,) = command.__click_params__  # type: ignore[attr-defined]
    assert all(name in option.help for name in RELEASES)


ASKED_BY_THE_COMMAND_LINE = {
    "bounds", "dtypes", "errors", "events", "op", "ops.cpu.tables", "plan", "tensor",
    "releases.parts", "releases.release", "releases.table", "version",
}  # fmt: skip
"""Names and values of the engine; a rule of ggml's is asked for in inspect."""


def test_the_command_line_knows_no_rule_of_ggml() -> None:
    for name in trees():
        if name.startswith("ggmltool.cli"):
            engine = {m.removeprefix("ggmltool.ggml.") for m in imported(name) if m.startswith("ggmltool.ggml.")}
            assert engine <= ASKED_BY_THE_COMMAND_LINE, name
