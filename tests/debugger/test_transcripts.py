"""Sessions at the prompt, line by line as somebody sees them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.debugger.sessions import history_of, transcript
from tests.golden import check_golden

HERE = Path(__file__).parent
SCRIPTS = sorted((HERE / "scripts").glob("*.ggdb"))
ROOT = re.compile(r"/\S*/sample_graphs")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_session_prints_what_it_printed(script: Path) -> None:
    first, *lines = script.read_text("utf-8").splitlines()
    sample = first.removeprefix("# ")
    said = transcript(history_of(sample), lines, sample)
    check_golden(HERE / "golden" / f"{script.stem}.txt", ROOT.sub("sample_graphs", said))
