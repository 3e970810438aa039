"""The command lines of `looks.txt` against their golden files, and those of `refusals.txt`: one message each."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.conftest import SAMPLES, Call
from tests.golden import FLOAT32, check_golden
from tests.sources.library import HAS_LIBRARY
from tests.sources.models import cached

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
ROOT, LOGS = HERE.parents[1], HERE.parent / "sources" / "logs"
PASTED = ("  ggmltool ", "  ggml_", "  more: ggmltool ")
"""How lines begin that are never broken: commands to paste, and the words of ggml."""
GGMLS = {"dot", "trace", "splits", "graph"}
"""Commands whose text is ggml's or Graphviz's, whatever the width."""


class Look(NamedTuple):
    """A line of the table at one of its widths; `end` is what stands behind its arrow."""

    file: str
    columns: int
    words: list[str]
    end: list[str]


def looks() -> list[Look]:
    out = []
    for line in (HERE / "looks.txt").read_text("utf-8").splitlines()[3:]:
        name, widths, rest = line.split(" | ")
        command, _, end = rest.partition(" => ")
        for width in widths.split():
            file = name if name.endswith(".json") else f"{name}{f'_{width}' if ' ' in widths else ''}.txt"
            out.append(Look(file, int(width), shlex.split(command), end.split(", ")))
    return out


@pytest.mark.parametrize("look", looks(), ids=lambda look: look.file)
def test_it_looks_as_accepted(call: Call, look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(LOGS if look.words[-1].startswith("LOGS/") else ROOT)
    result = call(*(word.removeprefix("LOGS/") for word in look.words), columns=look.columns)
    assert (result.status, bool(result.err)) == (int(look.end[0] or 0), "said" in look.end), result.err
    check_golden(GOLDEN / look.file, result.out, FLOAT32 if look.words[0] in ("run", "compare") else None)
    if look.words[0] not in GGMLS and not {"--json", "csv", "yaml"} & set(look.words) and "wide" not in look.end:
        assert max(len(line) for line in result.out.splitlines() if not line.startswith(PASTED)) <= look.columns


LINES = (HERE / "refusals.txt").read_text("utf-8").splitlines()[1:]


@pytest.mark.usefixtures("warmed")
@pytest.mark.parametrize("line", LINES, ids=lambda line: line.partition(" => ")[0])
def test_wrong_use_is_answered_in_one_message(call: Call, line: str) -> None:
    if line.startswith("attach") and sys.platform != "linux":
        pytest.skip("attach works on Linux alone")
    command, said = line.replace("LOGS/", f"{LOGS}/").split(" => ")
    if "MODEL:" in command and not HAS_LIBRARY:
        pytest.skip("needs llama.cpp: the package xllamacpp, of the extra test")
    words = [str(cached(w.removeprefix("MODEL:"))) if w.startswith("MODEL:") else w for w in shlex.split(command)]
    result = call(*words, stdin=(SAMPLES / "moe.yaml").read_bytes() if words[-1] == "-" else b"")
    assert (result.status, result.out) == (2, "")
    assert said in " ".join(result.err.split())
    assert "Traceback" not in result.err
    assert not list(Path().iterdir())
