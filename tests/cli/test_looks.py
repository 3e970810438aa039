"""What every feature of every command looks like: the command lines of `looks.txt` against their golden files."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.conftest import Call
from tests.golden import FLOAT32, check_golden

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
