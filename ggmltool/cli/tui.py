"""`ggmltool tui`: the debugger on a whole screen."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from ggmltool.cli.command import Command, current_settings
from ggmltool.cli.errors import FINE, CliError
from ggmltool.cli.options import ggml_option, scenario_argument
from ggmltool.cli.scenario import open_scenario
from ggmltool.cli.values import check_run, memory_option, zeros_option
from ggmltool.show.table import Style

if TYPE_CHECKING:
    from ggmltool.ggml.releases.release import Release

PLANNING = ("reserve", "alloc", "measure", "reset")
"""The steps in which nothing is computed."""


@click.command(cls=Command)
@scenario_argument
@click.option(
    "--compute/--no-compute",
    default=None,
    help="Do every step, or only those that plan (default, unless there is none such).",
)
@click.option("--light/--dark", default=False, help="Colors for a light or a dark (default) ground; `t` changes them.")
@zeros_option
@memory_option
@ggml_option
def tui(
    scenario: str | None,
    compute: bool | None,
    light: bool,
    zeros: bool,
    memory_check: bool,
    release: Release | None,
) -> int:
    """Walk through a run on a whole screen, forward and back: the graph, a map of the memory, every event with its
    reason, and the story of a tensor. Press `?` there for the keys.

    \b
    Example:
      ggmltool tui graph.yaml
      ggmltool tui --light inplace
    """
    if find_spec("textual") is None:
        raise CliError("`ggmltool tui` needs Textual; install it with `pip install 'ggmltool[tui]'`")
    opened = open_scenario(scenario, release)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CliError("`ggmltool tui` needs a terminal for its input and output; `ggmltool trace` prints what happens")
    steps = opened.model.steps
    computes = not any(step.kind in PLANNING[:3] for step in steps) if compute is None else compute
    if computes:
        check_run(opened.model, zeros)
        if memory_check:
            from ggmltool.inspect.ready import check_memory

            check_memory(opened)
    from ggmltool.debugger.prompt import Prompt
    from ggmltool.debugger.session import Session
    from ggmltool.debugger.terminal import Terminal
    from ggmltool.inspect.history.history import record_history

    color = current_settings().color
    colored = color == "always" or (color == "auto" and not os.environ.get("NO_COLOR"))

    terminal = Terminal(Style(), interactive=False)
    prompt = Prompt(Session(record_history(opened.scenario, computes), opened.title, terminal), terminal)
    prompt.show(opened, dark=not light, colored=colored)
    return FINE
