"""`ggmltool debug`, `tui`, `record` and `trace`: a run at a prompt, on a whole screen, in a file, as text."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ggmltool.ask.trace import TraceQuestion
from ggmltool.cli.command import Command, current_settings
from ggmltool.cli.derive import Asking, question_command
from ggmltool.cli.errors import FINE, GGML_FAILED, CliError
from ggmltool.cli.options import depth_option, ggml_option, memory_option, output_to, scenario_argument, zeros_option
from ggmltool.cli.output import Output, note
from ggmltool.cli.scenario import open_scenario
from ggmltool.inspect.ready import check_run, computed_graphs
from ggmltool.show.table import Style
from ggmltool.show.text import count, ggml_error, printable

if TYPE_CHECKING:
    from ggmltool.debugger.prompt import PromptCommand
    from ggmltool.ggml.releases.release import Release
    from ggmltool.inspect.opened import Opened

_ORDER = "ggmltool.debug.order"


class _Ordered(Command):
    """Remembers in which order -ex and -x stand on the line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        order = self.make_parser(ctx).parse_args(list(args))[2]
        ctx.meta[_ORDER] = [param.name for param in order if param.name in ("eval_command", "command")]
        return super().parse_args(ctx, args)


@click.command(cls=_Ordered)
@scenario_argument
@click.option("-ex", "--eval-command", multiple=True, metavar="CMD", help="Do this command at the start.")
@click.option(
    "-x",
    "--command",
    multiple=True,
    metavar="SCRIPT",
    type=click.Path(exists=True, dir_okay=False, allow_dash=False),
    help="Do the commands of this file at the start.",
)
@click.option("--batch", is_flag=True, help="Leave after -ex and -x, with status 1 if one of them failed.")
@click.option("--echo", is_flag=True, help="Print each command of -ex, -x and standard input behind the prompt.")
@click.option(
    "--compute/--no-compute",
    default=None,
    help="Run every step, or only reserve, alloc and reset (default: every step, if all weights have values).",
)
@zeros_option
@memory_option
@ggml_option
@click.pass_context
def debug(
    ctx: click.Context,
    scenario: str | None,
    eval_command: tuple[str, ...],
    command: tuple[str, ...],
    batch: bool,
    echo: bool,
    compute: bool | None,
    zeros: bool,
    release: Release | None,
) -> int:
    """Step through what ggml does, forward and back, at a prompt like gdb's.

    \b
    `help` at the prompt lists its commands. A line of the program is a decision
    of ggml with its reason; the functions are ggml's, and expressions are C over
    its structs. `ggmltool help debug` is the manual.

    \b
    Example:
      ggmltool debug graph.yaml
      ggmltool debug moe --batch -ex "break split 1" -ex run -ex bt -ex "info splits"
    """
    from ggmltool.debugger.prompt import Prompt
    from ggmltool.debugger.session import DebugSession
    from ggmltool.debugger.terminal import Terminal
    from ggmltool.state.story.history import record_history

    opened = open_scenario(scenario, release)
    history = record_history(opened.scenario, _computes(opened, compute, zeros))
    interactive = not batch and sys.stdin.isatty() and sys.stdout.isatty()
    terminal = Terminal(Output().style, interactive)
    session = DebugSession(history, _title(opened), terminal)
    session.settings.confirm = not batch
    if not batch and current_settings().verbosity >= 0:
        events = count(len(history.points), "event")
        terminal.write(f"Reading {session.title}... {events}, decided by ggml {opened.model.ggml}.\n")
        terminal.write('Type "help" for help, "run" or "start" to begin.\n')
    prompt = Prompt(session, terminal, echo)
    fine = prompt.given(_given(ctx, eval_command, command))
    if batch:
        return FINE if fine else GGML_FAILED
    if interactive:
        prompt.talk()
    elif not session.left:
        prompt.read(sys.stdin)
    return FINE


def _title(opened: Opened) -> str:
    """What the program is called: the name of its file, or of the sample."""
    return printable(Path(opened.argument).name) if opened.argument != "-" else "standard input"


def _given(ctx: click.Context, commands: tuple[str, ...], scripts: tuple[str, ...]) -> list[PromptCommand]:
    """The commands and scripts in the order in which they stand on the line; those of the environment come last."""
    from ggmltool.debugger.prompt import PromptCommand

    left: dict[str, list[str]] = {"eval_command": list(commands), "command": list(scripts)}
    order: list[Any] = [*ctx.meta[_ORDER], *(name for name in left for _ in left[name])]
    return [PromptCommand(left[name].pop(0), name == "command") for name in order if left[name]]


def _computes(opened: Opened, compute: bool | None, zeros: bool) -> bool:
    """Whether all steps are done; where nothing is said, if their weights have values. Raises InspectError."""
    from ggmltool.state.errors import InspectError

    if compute is False or not computed_graphs(opened.model):
        return compute is not False
    try:
        check_run(opened, zeros)
    except InspectError as error:
        if compute:
            raise
        note(f"Only planning, without computing: {error}")
        return False
    return True


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
        check_run(opened, zeros)
    from ggmltool.debugger.prompt import Prompt
    from ggmltool.debugger.session import DebugSession
    from ggmltool.debugger.terminal import Terminal
    from ggmltool.state.story.history import record_history

    color = current_settings().color
    colored = color == "always" or (color == "auto" and not os.environ.get("NO_COLOR"))

    terminal = Terminal(Style(), interactive=False)
    prompt = Prompt(DebugSession(record_history(opened.scenario, computes), opened.title, terminal), terminal)
    prompt.show(opened, dark=not light, colored=colored)
    return FINE


@click.command(cls=Command)
@scenario_argument
@click.option("--compute/--no-compute", default=False, help="Do every step, or only those that plan (default).")
@zeros_option
@memory_option
@ggml_option
@output_to(".ggtrace", text=False)
def record(
    scenario: str | None,
    compute: bool,
    zeros: bool,
    release: Release | None,
    output: Output,
) -> int:
    """Write a record of a run: every decision with its reason, and what it changed, in order.

    Every command takes the record in place of a scenario, and has the release and the steps that were recorded; what
    is in it, `ggmltool help record` says. Values are not kept.

    \b
    Example:
      ggmltool record moe -o moe.ggtrace
      ggmltool plan moe.ggtrace
    """
    if output.to_terminal:
        raise CliError("a record cannot be shown on a terminal; name a file with -o graph.ggtrace")
    opened = open_scenario(scenario, release)
    if compute:
        check_run(opened, zeros)
    from ggmltool.state.story.history import record_history
    from ggmltool.state.story.record import record_bytes

    history = record_history(opened.scenario, compute)
    output.write(record_bytes(history))
    if history.error is not None:
        note(ggml_error(history.error))
    return FINE if history.error is None else GGML_FAILED


@question_command(TraceQuestion)
@click.option(
    "--measured", is_flag=True, help="For Perfetto, compute the steps here and show how long each node takes."
)
@depth_option
def trace(asking: Asking[TraceQuestion], measured: bool, n_depth: int) -> int:
    question, output = asking.question, asking.output
    if measured and (asking.format != "perfetto" or not question.compute):
        raise click.UsageError("--measured computes, and is shown with --perfetto or -o FILE.perfetto.json.")
    if question.decisions and asking.format == "perfetto":
        raise click.UsageError("--decisions are lines of text; leave them out with --perfetto.")
    opened = asking.open()
    if asking.format != "perfetto":
        answer = question.ask(opened)
        if answer.facts.error is not None:
            note(ggml_error(answer.facts.error))
        return asking.print(answer)
    from ggmltool.ask.trace.perfetto import measured_trace, planned_trace
    from ggmltool.show.perfetto import perfetto_text

    if measured:
        check_run(opened, question.zeros)
    found = (measured_trace if measured else planned_trace)(opened, n_depth)
    note(f"Durations: {found.about}")
    if found.error is not None:
        note(ggml_error(found.error))
    output.write(perfetto_text(found).encode())
    return FINE if found.error is None else GGML_FAILED
