"""What the samples teach."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

from ggmltool.scenario.samples import sample_name, samples


class SampleInfo(NamedTuple):
    """A sample: its name, its file's name, and the first line of its comment."""

    name: str
    file: str
    shows: str


def teaches(text: str) -> str:
    """The first sentence of the comment that a sample begins with; "" if it begins with none.

    >>> teaches("# Two devices: one splits. And more.\\n# Learn here: …\\n")
    'Two devices: one splits'
    """
    first = text.split("\n", 1)[0]
    return first.lstrip("# ").split(". ")[0].rstrip(". ") if first.startswith("#") else ""


def sample_infos() -> list[SampleInfo]:
    """Every sample, by name."""
    return [
        SampleInfo(
            sample_name(path),
            path.name,
            teaches(path.read_text("utf-8")) if path.suffix == ".yaml" else f"A real model: {_captured(path)}",
        )
        for path in samples()
    ]


def _captured(path: Path) -> str:
    """The name of a captured graph, which stands in the second line of its file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = [file.readline() for _ in range(2)]
    return lines[1].partition('": "')[2].rstrip('",\n')
