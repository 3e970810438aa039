"""The scenario that a command works on, and what its views need to know of its tensors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggmltool.cli.command import current_settings
from ggmltool.cli.output import detail, log_lines, note
from ggmltool.cli.progress import WRITER, progress, waiting_for
from ggmltool.inspect.opened import Opened, Work, environment_number
from ggmltool.scenario.samples import DEFAULT, ENDINGS, find_sample, sample_name, samples_folder, scenario_path

if TYPE_CHECKING:
    from ggmltool.ggml.bounds import Bounds
    from ggmltool.ggml.releases.release import Release
    from ggmltool.scenario.text.text import Readable

MINE = "graph.yaml"
"""The file that is taken if nobody names one."""


def open_scenario(argument: str | None, release: Release | None = None) -> Opened:
    """Load the scenario that the command line names: a file, `-` or a sample; by default graph.yaml, else a sample.

    Raises ScenarioError for a mistake in it, and for a name that is neither a file's nor a sample's.
    """
    if argument is not None:
        return opened(scenario_path(argument), argument, release=release)
    path = default_scenario()
    if path == MINE:
        note(f"No scenario named; using {MINE}")
        return opened(path, path, release=release)
    name = sample_name(Path(path))
    note(f"No scenario named; using the sample {name}")
    return opened(path, name, release=release)


def open_for(name: str, scenario: str | None, usage: str, release: Release | None = None) -> Opened:
    """Load the scenario in which something called `name` is looked for, as `open_scenario` does.

    Raises CliError if no scenario is named and the name is that of a file of one: then the other word is missing, as
    `usage` says.
    """
    if scenario is None and name.endswith(ENDINGS):
        from ggmltool.cli.errors import CliError

        raise CliError(f"{name} is a scenario; also name what to look for in it: `ggmltool {usage} {name}`")
    return open_scenario(scenario, release)


def opened(path: str, argument: str, stream: Readable | None = None, release: Release | None = None) -> Opened:
    """Load a scenario that the user names `argument`, as `release`, by default its own.

    `stream` is its content where that was opened already. Raises as `open_scenario` does.
    """
    from ggmltool.scenario.load import load_spec
    from ggmltool.scenario.scenario import LoadedScenario

    bounds, checks_memory = _bounds_asked_for()
    with waiting_for(path, WRITER):
        model = load_spec(path, stream=stream, ggml=release, bounds=bounds)
    if model.left_out:
        note(f"ggml {model.ggml} does not have {', '.join(dict.fromkeys(model.left_out))}: ignored")
    options = "" if release is None else f"--ggml {release.name}"
    scenario = LoadedScenario(model)
    level = environment_number("GGML_SCHED_DEBUG")
    if level and current_settings().verbosity > 0:
        from ggmltool.ask.splits.sched_debug import split_printer

        scenario.on_debug = split_printer(level, detail)
    work = Work(progress, note, of_command=True, checks_memory=checks_memory)
    return Opened(scenario, argument, options, log_lines, current_settings().verbosity > 0, work)


def _bounds_asked_for() -> tuple[Bounds, bool]:
    """The bounds that the command's options set, and whether it checks memory before it computes."""
    from ggmltool.ggml.bounds import MAX_OPERATIONS, NO_END, Bounds

    ctx = click.get_current_context(silent=True)
    meta = ctx.meta if ctx is not None else {}
    checks = meta.get("ggmltool.memory_check")
    return Bounds(meta.get("ggmltool.operations", MAX_OPERATIONS), NO_END if checks is False else None), bool(checks)


def default_scenario() -> str:
    """graph.yaml in the current folder, else the sample."""
    return MINE if Path(MINE).is_file() else str(samples_folder() / DEFAULT)


def is_scenario(argument: str) -> bool:
    """Whether a word on the command line names a scenario, where it could also name something else."""
    return (
        argument == "-" or argument.endswith(ENDINGS) or os.path.lexists(argument) or find_sample(argument) is not None
    )
