"""The README and the pages of the manual show what really comes out."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args

import pytest

import ggmltool
from ggmltool.ask.diff.rules import ReleaseChange, changes
from ggmltool.ggml.ops.registry import COMPOSITES
from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from ggmltool.scenario.load import ContextKeys, GraphKeys, TopKeys
from ggmltool.scenario.nodes.long_form import KEYS
from ggmltool.scenario.spec import BackendKeys, BufferTypeKeys, SchedulerKeys, Usage
from ggmltool.scenario.steps import ALL_GRAPH_STEPS, OTHER_STEPS
from ggmltool.scenario.values import key_names
from tests.attach.programs import started
from tests.cli.conftest import Call
from tests.needs import attachable, compiled, library, real_vulkan
from tests.sources.models import cached
from tests.sources.warm import warm

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = {"README": README} | {
    path.stem: path.read_text("utf-8") for path in sorted((ROOT / "ggmltool" / "docs").glob("*.md"))
}
WIDTH, WIDTH_OF_A_PAGE = 110, 78
"""Columns of what is shown; `ggmltool help` shows a page on a terminal of 80."""
CONSOLE = [
    (command, shown, WIDTH if page == "README" else WIDTH_OF_A_PAGE)
    for page, text in PAGES.items()
    for command, shown in re.findall(r"```console\n\$ ggmltool ([^\n]*)\n(.*?)```", text, re.DOTALL)
]
BASH = {
    page: [line for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    for page, text in PAGES.items()
    if "```bash" in text
}
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
QUESTIONS = [
    command
    for _, command in re.findall(
        r"^\| ((?:[^|\\]|\\\|)+?) \| `ggmltool ([^`]+)` \|$", "\n".join(PAGES.values()), re.MULTILINE
    )
]
ANSWERS = {
    command: part.replace("⏎", "\n")
    for command, _, part in (
        line.partition(" => ")
        for line in Path(__file__).with_name("answers.txt").read_text("utf-8").split("\n")[1:]
        if line
    )
}
"""What the tables of questions promise: a part of what each command prints."""


def run(*args: str, folder: Path = ROOT, check: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": str(WIDTH)}
    return subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, cwd=folder, env=environment, check=check, input=stdin
    )


@pytest.mark.parametrize(("command", "shown", "width"), CONSOLE, ids=[command for command, _, _ in CONSOLE])
def test_a_command_prints_what_a_page_shows(
    call: Call, monkeypatch: pytest.MonkeyPatch, command: str, shown: str, width: int
) -> None:
    monkeypatch.chdir(ROOT)
    assert call(*shlex.split(command), columns=width).out.replace("\r\n", "\n").strip("\n") == shown.strip("\n")


def test_in_a_process_of_its_own_a_command_prints_it_too() -> None:
    command, shown, _ = CONSOLE[0]
    assert run("-m", "ggmltool", *shlex.split(command)).stdout.strip("\n") == shown.strip("\n")


NOT_IN_A_DIFFERENCE = (
    "split-count", "hash", "lost-data", "alloc-once", "used-experts", "event-per-split", "alloc-size", "failed-reserve",
    "alloc-buffer-n", "weights-last", "experts-callback", "device-orders", "device-scratch",
)  # fmt: skip
"""Rules that no plan of a sample shows: they need 257 splits, addresses, or steps on which ggml fails, or they are of
computing, or of devices that are none of ggml's."""


@pytest.mark.parametrize("command", ANSWERS)
def test_a_question_is_answered_by_its_command(call: Call, command: str) -> None:
    if command.startswith("verify"):
        library()
    *before, last = command.split(" \\| ggmltool ")
    piped = "".join(call(*shlex.split(c), columns=WIDTH).out for c in before)
    result = call(*shlex.split(last), columns=WIDTH, stdin=piped.encode())
    assert ANSWERS[command] in result.out + result.err
    assert result.status == any(word in command for word in ("preallocated", "buffer-not-set", "diff ", "--inject"))


def test_no_two_commands_of_the_readme_write_one_file() -> None:
    """N4: who goes through it from top to bottom was told that report.html exists."""
    written = re.findall(r"ggmltool [^`\n]*? -o (\S+?)[`\s]", README)
    assert len(written) > 5
    assert len(written) == len(set(written))


def test_every_question_has_its_answer_here() -> None:
    assert len(QUESTIONS) >= 20
    assert set(QUESTIONS) == set(ANSWERS)


@pytest.mark.parametrize("code", PYTHON)
def test_the_python_example_runs(code: str) -> None:
    assert run("-c", code).stdout


def test_the_readme_is_short_and_has_its_two_commands() -> None:
    assert len(README.splitlines()) <= 275
    assert len(re.findall(r"^```sh$", README, re.MULTILINE)) == 2


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_links_to_is_there(page: str) -> None:
    folder = ROOT if page == "README" else ROOT / "ggmltool" / "docs"
    for link in re.findall(r"\]\(([^)]+)\)", PAGES[page]):
        file, _, part = link.partition("#")
        if "://" in link:
            continue
        target = folder / file if file else folder / f"{page}.md"
        assert target.exists(), link
        titles = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.MULTILINE) if part else []
        assert not part or part in [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles], link


def test_the_readme_names_every_page() -> None:
    named = set(re.findall(r"\(ggmltool/docs/(\w+)\.md\)", README))
    assert named == set(PAGES) - {"README"}


@pytest.mark.parametrize("change", changes(), ids=[change.key for change in changes()])
def test_every_rule_that_changed_is_in_the_table_and_its_sample_shows_it(call: Call, change: ReleaseChange) -> None:
    row = f"| {change.since} | {change.key} | {change.before} | {change.now} | "
    rows = [line for line in PAGES["releases"].splitlines() if line.startswith(row)]
    assert len(rows) == 1
    sample = rows[0].removeprefix(row).strip(" |`")
    if not sample:
        assert change.key in NOT_IN_A_DIFFERENCE
        return
    result = call("diff", "--ggml", *sample.split(), columns=WIDTH)
    assert result.status == 1
    assert f"{change.key} · since {change.since} · {change.area}\n" in result.out


STANDS_FOR = {
    '--prompt "The capital of France is"': "--tokens 2,30,40",
    "2,818,5279": "2,18,52",
    "529,7001": "29,70",
    "Qwen3-8B/": "model.gguf",
    "model-bf16.gguf": "model.gguf",
    "python transcribe.py ggml-tiny.en.bin": "graphs --iterations 4",
    "./my-program its arguments": "graphs",
    "8192..131072": "65536..131072",
    "4096..131072": "65536..131072",
}
"""What the little model, which has no vocabulary and 304 tokens, gets in place of a text and of other tokens, and of
many contexts."""
PROCESS = "41271"
"""The number of a process, for which a program of the tests stands."""
SAYS_A_DIFFERENCE = ("ggmltool diff", "ggmltool compare")
"""Commands whose exit status 1 is an answer."""
PROGRAMS = {
    "curl": ": the model is there already",
    "ggmltool": 'exec "$PYTHON" -m ggmltool "$@"',
    "llama-cli": """{
for graph in model model placed; do
  echo "graph_reserve: reserving a graph for ubatch with n_tokens =  512, n_seqs =  1, n_outputs = 1"
  "$PYTHON" -m ggmltool splits $graph.json.gz
done; } >&2""",
    "llama-eval-callback": """mkdir -p dumped; "$PYTHON" -m ggmltool run --dump dumped --quiet france.json.gz > run.txt
echo '{"path": "model.gguf", "tokens": [2, 30, 40], "n_ctx": 1024}' | "$PYTHON" -m tests.sources.eval_printer""",
}
"""What stands for the programs that a page calls: they do to the little model what llama.cpp would."""
NEEDS = {
    "model.gguf": lambda: pytest.importorskip("xllamacpp"),
    "ggmltool attach": attachable,
    "--with library": library,
    "--with vulkan": real_vulkan,
    "verify": library,
}
"""What a page needs whose lines have this."""


@pytest.mark.parametrize("page", BASH)
def test_every_line_for_a_shell_runs_in_order(
    call: Call, tmp_path: Path, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a folder with nothing but a model: what a line needs, one before it makes.

    The lines of one page start every process as users do, and as many.
    """
    for used, needed in NEEDS.items():
        if any(used in line for line in BASH[page]):
            needed()
    (tmp_path / "bin").mkdir()
    for name, text in PROGRAMS.items():
        (tmp_path / "bin" / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    shutil.copy(cached("llama"), tmp_path / "model.gguf")
    with ExitStack() as running:
        if page != "README":
            running.enter_context(warm())
            monkeypatch.setenv("GGMLTOOL_FIT_JOBS", "1")
            monkeypatch.setenv("GGMLTOOL_SWEEP_JOBS", "1")
        stands_for = STANDS_FOR
        if any(PROCESS in line for line in BASH[page]):
            (tmp_path / "bin" / "graphs").symlink_to(compiled())
            monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
            process = running.enter_context(started([compiled(), "--forever", "--pause", "1"]))
            stands_for = {**STANDS_FOR, PROCESS: str(process.pid)}
        for line in BASH[page]:
            command = line.partition("  # ")[0]
            for text, other in stands_for.items():
                command = command.replace(text, other)
            status, err = _shell(call, command, tmp_path)
            assert status in ((0, 1) if command.startswith(SAYS_A_DIFFERENCE) else (0,)), (line, err)
            assert "Traceback" not in err, line


def _shell(call: Call, command: str, folder: Path) -> tuple[int, str]:
    """What a line comes to: exit status and standard error."""
    if command.startswith("ggmltool "):
        ran = call(*shlex.split(command)[1:])
        return ran.status, ran.err
    environment = os.environ | {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYTHON": sys.executable,
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=folder, env=environment, check=False
    )
    return done.returncode, done.stderr


FOLDER = Path(ggmltool.__file__).parent / "docs"
PAGE = (FOLDER / "scenario.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
EVERY_EXAMPLE = [
    example
    for path in sorted(FOLDER.glob("*.md"))
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
        ("Top level", key_names(TopKeys)),
        ("Contexts", key_names(ContextKeys)),
        ("Tensors and nodes", KEYS),
        ("Graphs", key_names(GraphKeys)),
        ("Backends", key_names(BackendKeys)),
        ("Buffer types", key_names(BufferTypeKeys)),
        ("Scheduler", key_names(SchedulerKeys)),
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
    assert all(f"`{usage}`" in SECTIONS["Contexts"] for usage in get_args(Usage))
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
    page, _, _ = (FOLDER / "releases.md").read_text("utf-8").partition("`ggmltool --version`")
    rows = re.findall(r"^\| `([^`]+)`( \(default\))? \| [^|]+\| ([^|]*) ?\|$", page, re.MULTILINE)
    assert [name for name, *_ in rows] == list(RELEASES)
    assert [name for name, default, _ in rows if default] == [DEFAULT.name]
    assert [tuple(re.findall("`([^`]+)`", names)) for *_, names in rows] == [r.names[1:] for r in RELEASES.values()]
