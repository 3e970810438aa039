"""What the sessions with gdb answered, of `sessions.yaml`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml


class Figure(NamedTuple):
    """What a seed prints at a line to `command`, typed for the `nth` time; `asks` is typed here in its place."""

    seed: int
    line: int
    command: str
    prints: str
    asks: str = ""
    nth: int = 1


TABLE: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("sessions.yaml").read_text("utf-8"))
FIGURES = {session["name"]: [Figure(**figure) for figure in session["figures"]] for session in TABLE["sessions"]}
COMMANDS: dict[int, list[int]] = TABLE["commands"]
LEFT = {
    seed: {line: reason["why"] for reason in TABLE["left"].get(seed, []) for line in reason["lines"]}
    for seed in COMMANDS
}


def is_printed(prints: str, answer: str) -> bool:
    """Whether an answer is a figure, with anything for its …."""
    return re.fullmatch(".*".join(map(re.escape, prints.split("…"))), answer, re.DOTALL) is not None
