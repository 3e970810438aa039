"""The recipes of `ggmltool help house`, each followed in a copy of the package, which then does the new thing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ggmltool

PACKAGE = Path(ggmltool.__file__).parent
SAMPLES = PACKAGE.parent / "sample_graphs"


class Copy:
    """A copy of the package, in which files are written and lines are added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(PACKAGE, folder / "ggmltool", ignore=shutil.ignore_patterns("__pycache__", "sample_graphs"))
        (folder / "sample_graphs").symlink_to(SAMPLES)

    def write(self, path: str, text: str) -> None:
        file = self.folder / "ggmltool" / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")

    def add(self, path: str, behind: str, text: str) -> None:
        """Add text behind a passage that is there once, or with none at the end."""
        file = self.folder / "ggmltool" / path
        before = file.read_text("utf-8")
        if behind:
            assert before.count(behind) == 1, (path, behind)
        at = before.index(behind) + len(behind) if behind else len(before)
        file.write_text(before[:at] + text + before[at:], "utf-8")

    def replace(self, path: str, old: str, new: str) -> None:
        """Another passage for one that is there once."""
        file = self.folder / "ggmltool" / path
        text = file.read_text("utf-8")
        assert text.count(old) == 1, (path, old)
        file.write_text(text.replace(old, new), "utf-8")

    def python(self, *args: str, status: int = 0) -> str:
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "COLUMNS": "120", "NO_COLOR": "1"}
        done = subprocess.run(
            [sys.executable, *args], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stderr
        return done.stdout

    def ggmltool(self, *args: str, status: int = 0) -> str:
        return self.python("-m", "ggmltool", *args, status=status)


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_an_op(copy: Copy) -> None:
    copy.add("ggml/op.py", '    GLU = 100, "glu(x)"\n', '    HALVE = 101, "x/2"\n')
    copy.add(
        "ggml/ops/elementwise.py",
        "",
        '''

@constructor(Op.HALVE, since="2024-01-02", example="x: f32[4, 2]; halve(x)", shape="-> a.type[a.ne]")
def halve(ctx: Context, a: Tensor) -> Tensor:
    """ggml_halve: half of each element."""
    return ctx.dup_tensor(a).set_op(Op.HALVE, (), a)


_function_kernel(Op.HALVE, lambda xp, v: v / 2)
''',
    )
    shown = copy.ggmltool("ops", "halve")
    assert "HALVE · op 101 · x/2" in shown
    assert "ggml_halve: half of each element." in shown
    x = '{"type": "f32", "ne": [2], "data": [3, 8]}'
    scenario = f'{{"ggmltool": 1, "backends": ["CPU"], "contexts": {{"i": {{"tensors": {{"x": {x}}}}}}}, '
    scenario += '"graphs": {"main": {"nodes": {"y": "halve(x)"}}}}'
    code = f"import ggmltool; print(ggmltool.load({scenario}).compute()['y'].ravel().tolist())"
    assert copy.python("-c", code) == "[1.5, 4.0]\n"


def test_a_device(copy: Copy) -> None:
    copy.write(
        "ggml/devices/toy.py",
        '''"""A device that adds and multiplies float32, and nothing else. From src/ggml-toy/ggml-toy.cpp."""

from ggmltool.ggml.devices.combinators import ALWAYS, by_op, f32
from ggmltool.ggml.devices.profile import Profile
from ggmltool.ggml.devices.unsupported import asserts

RULES = by_op({"NONE RESHAPE VIEW PERMUTE TRANSPOSE": ALWAYS, "ADD MUL": f32(0, 1)})
PROFILE = Profile("Toy", others=False, rules=RULES, unsupported=asserts("ggml_backend_toy_compute"))
''',
    )
    copy.add("ggml/devices/profiles.py", "_KNOWN = {\n", '    "Toy": ("toy.PROFILE", r"Toy\\d*"),\n')
    copy.add(
        "data/devices.toml", "", '\n[Toy]\nnames = "Toy0, Toy1, …"\ndescription = "a toy"\nleaves_out = "all else"\n'
    )
    assert "a toy" in copy.ggmltool("backends", "--device", "Toy0")
    scenario = '{"ggmltool": 1, "backends": ["Toy0", "CPU"], "contexts": {"i": {"tensors": {"x": "f32[4]"}}}, '
    scenario += '"graphs": {"main": {"nodes": {"y": "add(x, x)", "z": "exp(y)"}}}}'
    code = f"import ggmltool; print([s.backend for s in ggmltool.load({scenario}).plan().splits])"
    assert copy.python("-c", code) == "['Toy0', 'CPU']\n"


def release(copy: Copy, more: str = "") -> None:
    """The recipe of a release, with `more` that is otherwise in it."""
    copy.write(
        "ggml/releases/ggml_0_99/__init__.py",
        f'''"""ggml 0.99.0, as llama.cpp b99999 carries it."""

from dataclasses import replace

from ggmltool.ggml.releases.ggml_0_26 import RELEASE as BEFORE

RELEASE = replace(
    BEFORE, name="0.99", date="2027-01-01", commit="", folder="ggml_0_99", like=BEFORE, build="b99999", near=(),
    library=None, {more}
)
''',
    )
    imported = "from ggmltool.ggml.releases.ggml_0_26 import RELEASE as GGML_0_26\n"
    copy.add("ggml/releases/table.py", imported, "from ggmltool.ggml.releases.ggml_0_99 import RELEASE as NEW\n")
    copy.add("ggml/releases/table.py", "    for release in (\n", "        NEW,\n")


def test_a_release(copy: Copy) -> None:
    release(copy)
    assert copy.python("-c", "import ggmltool; print(ggmltool.load('matmul', '0.99').plan().ggml)") == "0.99\n"
    assert copy.ggmltool("splits", "--ggml", "b99999", "matmul") == copy.ggmltool("splits", "--ggml", "0.26", "matmul")


def test_a_rule_of_a_new_release(copy: Copy) -> None:
    copy.add("ggml/releases/release.py", "    keeps_for_devices: bool = False\n", "    inputs_first: bool = False\n")
    copy.replace(
        "ggml/sched/assign.py",
        "ids[i] = len(s.backends) - 1\n",
        "ids[i] = 0 if s.rules.inputs_first else len(s.backends) - 1\n",
    )
    release(copy, "rules=replace(BEFORE.rules, inputs_first=True),")
    copy.add("ask/diff/side.py", "SWITCHES = {\n", '    "inputs_first": "inputs-first",\n')
    copy.add(
        "data/changes.toml",
        "",
        """
[[changes]]
key = "inputs-first"
since = "2027-01-01"
build = "b99999"
area = "assignment"
before = "inputs stand on the last backend"
now = "inputs stand on the first backend"
""",
    )
    tensors = '{"x": {"type": "f32", "ne": [4], "flags": ["input"]}}'
    scenario = f'{{"ggmltool": 1, "backends": ["CUDA0", "CPU"], "contexts": {{"i": {{"tensors": {tensors}}}}}, '
    scenario += '"graphs": {"main": {"nodes": {"y": "exp(x)"}}}}'
    (copy.folder / "graph.json").write_text(scenario, "utf-8")
    shown = copy.ggmltool("diff", "--ggml", "0.26,0.99", "graph.json", status=1)
    assert "inputs stand on the first backend" in shown


def test_a_question(copy: Copy) -> None:
    copy.write(
        "ask/leafs/__init__.py",
        '''"""`leafs`: the leafs of a graph."""

from __future__ import annotations

from typing import Annotated

from ggmltool.ask.moment import OfMoment, answer
from ggmltool.ask.question import Option


class Leafs(OfMoment["LeafNames"], frozen=True, kw_only=True):
    """Show the leafs of the graph.

    \\b
    Example:
      ggmltool leafs graph.yaml
    """

    inputs: Annotated[bool, Option("Show those alone that are flagged input.")] = False

    def ask(self, opened):
        from ggmltool.ask.leafs.record import leaf_names
        from ggmltool.inspect.watched import watch

        at = watch(self.of(opened), self.moment)
        return answer(at, leaf_names(at.plan, self.inputs))
''',
    )
    copy.write(
        "ask/leafs/record.py",
        '''"""The leafs of a plan."""

from typing import Literal

from ggmltool.show.document import StepDocument, head


class LeafNames(StepDocument, kw_only=True):
    """`leafs --json`: the names of the leafs."""

    view = "leaf_names"
    kind: Literal["leafs"] = "leafs"
    leafs: tuple[str, ...]


def leaf_names(plan, inputs):
    return LeafNames(**head(plan), leafs=tuple(leaf.id for leaf in plan.leafs))
''',
    )
    copy.write(
        "ask/leafs/text.py",
        '''"""The leafs as text."""


def leaf_names(answer, style):
    return "".join(f"{name}\\n" for name in answer.facts.leafs)
''',
    )
    copy.add("cli/main.py", "QUESTIONS = frozenset(\n    {", '"leafs", ')
    copy.add("cli/main.py", "COMMANDS: dict[str, str] = {\n", '    "leafs": "Show the leafs.",\n')
    copy.add(
        "api/scenario.py", "from ggmltool.ask.lifetime import Lifetime\n", "from ggmltool.ask.leafs import Leafs\n"
    )
    copy.add("api/scenario.py", "    lifetime = method(Lifetime)\n", "    leafs = method(Leafs)\n")
    copy.add("ask/reference/schemas.py", '    "ask.hash.record",\n', '    "ask.leafs.record",\n')
    assert copy.ggmltool("leafs", "matmul") == "a\nb\n"
    assert '"leafs": ["a", "b"]' in copy.ggmltool("leafs", "--json", "matmul")
    assert "--inputs" in copy.ggmltool("leafs", "--help")
    assert "the names of the leafs" in copy.ggmltool("schema", "leafs")
    assert copy.python("-c", "import ggmltool; print(ggmltool.load('matmul').leafs().facts.leafs)") == "('a', 'b')\n"
