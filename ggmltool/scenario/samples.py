"""The sample graphs that ship with ggmltool."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT = "matmul.yaml"
"""What commands show when nobody names a scenario."""

FILES = (".yaml", ".yml", ".json", ".yaml.gz", ".yml.gz", ".json.gz")
"""What the names of scenarios, and of files with devices, end in."""
ENDINGS = (*FILES, ".ggtrace")


def samples_folder() -> Path:
    """Where the samples lie: inside an installed package, or at the root of a checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "sample_graphs"
    return installed if installed.is_dir() else package.parent / "sample_graphs"


def samples() -> list[Path]:
    """Every sample, by name."""
    return sorted(p for p in samples_folder().glob("*.*") if p.name.removesuffix(".gz").endswith((".yaml", ".json")))


def find_sample(name: str) -> Path | None:
    """The sample of this name (without endings), None if there is none."""
    return next((path for path in samples() if sample_name(path) == name), None)


def sample_name(path: Path) -> str:
    """What a sample is called: its file's name without the endings.

    >>> sample_name(Path("gemma-3-270m.json.gz"))
    'gemma-3-270m'
    """
    return path.name.removesuffix(".gz").rpartition(".")[0]


def scenario_path(argument: str) -> str:
    """What to load for a name: what lies there, else the sample of that name.

    Raises ScenarioError if neither is there and a sample or a file beside it has a name much like it.
    """
    if argument == "-" or os.path.lexists(argument):
        return argument
    sample = find_sample(argument)
    if sample is not None:
        return str(sample)
    from ggmltool.scenario.errors import ScenarioError, did_you_mean
    from ggmltool.scenario.text.text import elsewhere, files_beside

    if hint := elsewhere(argument):
        raise ScenarioError("there is no such file", argument, expected=hint)
    hint = did_you_mean(argument, [*map(sample_name, samples()), *files_beside(argument, ENDINGS)])
    if hint:
        raise ScenarioError("there is no such file, and no such sample", argument, expected=hint)
    return argument
