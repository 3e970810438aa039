"""Reference data: every file is read, has nothing but what is asked for, and names only what there is."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

import ggmltool
import ggmltool.data
from ggmltool.cli.main import cli
from ggmltool.data import load
from ggmltool.ggml.devices.profiles import PROFILES
from ggmltool.ggml.messages import FILES, Message, messages
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.table import RELEASES, own_data
from ggmltool.inspect.gauges import limits_of

PACKAGE = Path(ggmltool.__file__).parent
DATA = Path(ggmltool.data.__file__).parent
TOML = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.toml"))}

ALL = """
from ggmltool.structs.layout import layout, layout_names
from ggmltool.estimate.rates import rates_of
from ggmltool.ask.diff.rules import changes
from ggmltool.inspect.gauges import limits_of
from ggmltool.ggml.messages import messages
from ggmltool.inspect.messages.conditions import assertions
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ask.backends.record import profile_info
from ggmltool.state.story.calls import calls_of
from ggmltool.ggml.releases.interfaces import duties, tables_of
from ggmltool.ask.ops.record import op_facts
from ggmltool.scenario.versions import days
from ggmltool.sources.llama.place.weights import weight_of
for name in layout_names():
    layout(name)
changes()
assertions()
days()
messages()
op_facts()
for release in RELEASES:
    limits_of(release)
    tables_of("CPU", release)
    duties(release)
    calls_of(release)
    for profile in profiles_of(RELEASES[release]).values():
        profile_info(profile)
weight_of("output_norm.weight")
rates_of("RTX 3090")
"""
"""What reads every file."""

WATCHED = """
import atexit, json, sys
opened = []
sys.addaudithook(lambda event, args: event == "open" and str(args[0]).endswith(".toml") and opened.append(args[0]))
atexit.register(lambda: print(json.dumps(opened), file=sys.stderr))
"""


def files_read(code: str) -> list[str]:
    """The files of data that a program reads, in the order in which it does."""
    done = subprocess.run([sys.executable, "-c", WATCHED + code], capture_output=True, text=True, check=True)
    return [Path(path).relative_to(PACKAGE).as_posix() for path in json.loads(done.stderr.splitlines()[-1])]


def test_every_file_is_read_by_something_and_once() -> None:
    assert sorted(files_read(ALL)) == sorted(TOML)


@pytest.mark.parametrize("command", ["plan", "splits", "buffers", "run"])
def test_to_plan_the_days_are_read_and_no_texts(command: str) -> None:
    sample = PACKAGE.parent / "sample_graphs" / "matmul.yaml"
    code = f"from ggmltool.cli.main import cli\ncli([{command!r}, {str(sample)!r}], standalone_mode=False)\n"
    assert files_read(code) == ["data/since.toml"]


@pytest.mark.parametrize("name", TOML)
def test_a_file_begins_with_what_is_in_it_and_has_no_long_lines_of_prose(name: str) -> None:
    head, *lines = TOML[name].splitlines()
    assert re.fullmatch(r"# \S.{20,}", head)
    assert not [line for line in lines if len(line) > 120 and not line.startswith("    ")]


def test_a_text_over_several_lines_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.toml").write_text('a = """\none\n  two"""\nb = [["three  four"]]\n')
    monkeypatch.setattr(ggmltool.data, "files", lambda _: tmp_path)
    assert load("x.toml", dict[str, object]) == {"a": "one two", "b": [["three  four"]]}


def test_a_key_that_nothing_reads_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.toml").write_text(
        '[a]\ntexts = []\nfunctions = []\nmeans = ""\nshapes = ""\nremedy = ""\nhint = ""\n'
    )
    monkeypatch.setattr(ggmltool.data, "files", lambda _: tmp_path)
    with pytest.raises(msgspec.ValidationError, match="`hint`"):
        load("x.toml", dict[str, Message])


def test_no_message_stands_in_two_files() -> None:
    assert sum(len(load(f"messages/{name}.toml", dict[str, Message])) for name in FILES) == len(messages())


def advised() -> set[str]:
    """The keys of messages that the engine's refusals ask for advice of."""
    keys = set()
    for path in (PACKAGE / "ggml").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "advice" and node.args:
                keys.add(ast.literal_eval(node.args[0]))
    return keys


def test_the_engine_asks_for_messages_that_there_are() -> None:
    assert len(advised()) >= 20
    assert advised() <= messages().keys()


def own(release: str, name: str) -> dict[str, Any]:
    """What a file in the folder of a release says; nothing if it has none."""
    return own_data(RELEASES[release], name, dict[str, Any]) or {}


@pytest.mark.parametrize("release", [name for name, of in RELEASES.items() if of.like and own(name, "limits.toml")])
def test_limits_of_a_release_are_limits_that_differ_from_those_of_the_one_it_is_like(release: str) -> None:
    like = RELEASES[release].like
    assert like is not None
    before = limits_of(like.name)
    otherwise = own(release, "limits.toml")
    absent, changed = set(otherwise.get("absent", ())), otherwise.get("changed", {})
    assert absent.isdisjoint(changed)
    assert absent | changed.keys() <= before.keys()
    for key, changes in changed.items():
        assert all(getattr(before[key], name) != value for name, value in changes.items())


def test_the_limits_that_an_error_names_are_there() -> None:
    named = set()
    for path in (PACKAGE / "ggml").rglob("*.py"):
        named |= set(re.findall(r'\)\.of\("(\w+)"', path.read_text("utf-8")))
    assert len(named) > 5
    assert all(named <= {*limits_of(name), *own(name, "limits.toml").get("absent", ())} for name in RELEASES)


@pytest.mark.parametrize("release", [name for name in RELEASES if own(name, "interfaces.toml")])
def test_tables_of_functions_name_fields_of_their_structs(release: str) -> None:
    today = load("functions.toml", dict[str, dict[str, Any]])
    file = own(release, "interfaces.toml")
    structs = file.get("structs", today)
    for backend in file["backends"].values():
        assert backend.get("like", "CPU") in file["backends"] or "structs" not in file
        for part, table in backend.items():
            if part != "like":
                fields = set(structs[f"ggml_backend_{part}_i".replace("backend_backend", "backend")])
                assert {*table.get("null", ()), *table.get("named", ())} <= fields
    assert set(file.get("null", ())) <= {field for table in today.values() for field in table}
    assert file.get("if_null", {}).keys() <= today["ggml_backend_i"].keys()


def test_the_devices_that_are_told_of_are_those_that_are_known() -> None:
    file = load("devices.toml", dict[str, dict[str, Any]])
    assert list(file) == list(PROFILES)
    for release in RELEASES:
        for name, changed in own(release, "devices.toml").items():
            assert name in profiles_of(RELEASES[release])
            assert all(file[name][key] != text for key, text in changed.items())


def test_every_file_is_in_the_table_of_what_there_is() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", (DATA / "README.md").read_text("utf-8"), re.MULTILINE)
    files = {name.removeprefix("data/") for name in TOML if name.startswith("data/")}
    assert {name for name in files for row in rows if fnmatch(name, row)} == files
    assert all(any(fnmatch(name, row) for name in files) for row in rows)


def test_a_release_has_no_data_but_what_the_page_says() -> None:
    text = (DATA / "README.md").read_text("utf-8").partition("What is of one release")[2].partition("##")[0]
    of_releases = {Path(name).name for name in TOML if name.startswith("ggml/releases/")}
    assert of_releases == set(re.findall(r"`(\w+\.toml)`", text))


OUTSIDE = {
    "reset",
    "GGML_ASSERT(buffer)",
    "cast",
    "cont",
    "sudo sysctl iogpu.wired_limit_mb",
    "llama-server --list-devices",
}
"""What else stands between backticks in messages: a step, an assertion, an op, other programs."""


@pytest.mark.parametrize("key", messages())
def test_commands_that_a_message_names_have_the_options_that_it_names(key: str) -> None:
    of = [messages()[key], *messages()[key].cases]
    named = [m.ask for m in of if m.ask]
    named += [span for m in of for text in (m.means, m.shapes, m.remedy) for span in re.findall(r"`([^`]+)`", text)]
    for line in set(named) - OUTSIDE:
        name, *words = line.removeprefix("ggmltool ").split()
        command = cli.get_command(click.Context(cli), name)
        assert command is not None, line
        options = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
        assert {word for word in words if word.startswith("-")} <= options
