"""Core dumps in which the name of a file is no text are looked at all the same."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.attach.programs import core_by_gdb, environment
from tests.needs import attachable


def test_names_that_are_no_text_are_passed_over(tmp_path: Path) -> None:
    """X5"""
    made = attachable()
    whole = core_by_gdb([made], "ggml_backend_sched_graph_compute_async").read_bytes()
    names = [found.start() for found in re.finditer(re.escape(bytes(made)), whole)]
    assert names
    core = tmp_path / "core"
    for at in names[-2:]:
        core.write_bytes(whole[: at + 3] + b"\xff" + whole[at + 4 :])
        command = [sys.executable, "-m", "ggmltool", "attach", "--core", str(core), str(made)]
        ran = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")
