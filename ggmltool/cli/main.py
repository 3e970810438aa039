"""The command line: a group that imports a command only when it is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword

import click

from ggmltool.cli.command import Command, Group

COMMANDS: dict[str, str] = {
    "run": "Run the steps of a scenario, compute, and show the outputs.",
    "compare": "Compute a graph on two sides and find the bad kernel.",
    "plan": "Show devices, splits, copies and buffers on one screen.",
    "splits": "Show which backend every node gets and why, as ggml prints it.",
    "buffers": "Show the size of every buffer and what is in it at its peak.",
    "allocs": "Show the graph allocator's plan, and how it got there.",
    "hash": "Show the hash tables of allocator and scheduler.",
    "check": "Show how near the graph is to every limit of ggml.",
    "context": "Show the object maps of the contexts.",
    "tensor": "Show everything about one tensor.",
    "explain": "Explain placement, splits, reallocations, and error messages.",
    "lifetime": "Show who has a tensor's memory before and after it.",
    "trace": "Show the calls that ggml makes, in order.",
    "debug": "Step through what ggml does, forward and back.",
    "tui": "Walk through a run on a whole screen, forward and back.",
    "backends": "Show devices, buffer types and function tables.",
    "supports": "Show which backend supports which node, and why not.",
    "dot": "Draw the graph.",
    "record": "Write every decision of a run into a file.",
    "report": "Write a page that explains a graph.",
    "graph": "Print the graph as ggml_graph_print does.",
    "diff": "Show what differs between two plans, and where they diverge.",
    "verify": "Run the scenario on the real ggml too and show what differs.",
    "ops": "List the ops of ggml, or show one in full.",
    "types": "List the types of ggml, or show its tables of values.",
    "capture": "Write the graph that llama.cpp builds for a model as a scenario.",
    "place": "Show where llama.cpp would put a captured model, and whether it fits.",
    "fit": "Find the best way to put a model on your devices.",
    "sweep": "Place a captured model in many ways, and find the best that fits.",
    "attach": "Look at a running program that uses ggml, and what it decides.",
    "import": "Summarize a GGML_SCHED_DEBUG log.",
    "schema": "Print the JSON Schema of a scenario, or of what --json prints.",
    "sample": "List the samples, or print one of them.",
    "help": "Show a page of the manual.",
    "man": "Print the manual page.",
}
"""Every command and its one line of help, so that `--help` imports none of them."""

QUESTIONS = frozenset(
    {"graph", "allocs", "check", "compare", "context", "hash", "lifetime", "supports", "tensor", "verify"}
)
"""The commands that derive from the question of their name in `ask/`."""

MODULES = {
    command: module
    for module, commands in {
        "debug": "tui record trace",
        "logs": "import",
        "pictures": "buffers dot",
        "place": "sweep",
        "plans": "plan splits explain",
        "reference": "help man schema sample ops types",
    }.items()
    for command in commands.split()
}
"""The modules of commands that share one."""

EPILOG = """\
A scenario is a YAML or JSON file, also .gz (`ggmltool help scenario`), or the name of a sample:
`ggmltool plan moe`; `-` reads standard input. By default it is graph.yaml in the current folder, else the sample
matmul. Every option can be set in the environment: GGMLTOOL_COLOR, or GGMLTOOL_PLAN_GRAPH for `plan --graph`.

Exit status: 0 fine, 1 ggml would have failed (or `diff` or `verify` found a
difference), 2 wrong use or a bad file.
"""


class LazyGroup(Group):
    """Imports the module of a command, in `ggmltool.cli` or `ggmltool.ask`, when it is needed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in QUESTIONS:
            from ggmltool.cli import derive

            asked, name = import_module(f"ggmltool.ask.{cmd_name}"), cmd_name.title()
            command = derive.command(getattr(asked, name, None) or getattr(asked, f"{name}Question"))
        else:
            module = import_module(f"ggmltool.cli.{MODULES.get(cmd_name, cmd_name)}")
            command = getattr(module, f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name)
        if not isinstance(command, Command):
            raise TypeError(f"{cmd_name} is no command")
        command.short_help = COMMANDS[cmd_name]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            from ggmltool.cli.errors import suggestion

            ctx.fail(f"No such command {name!r}.{suggestion(name, COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from ggmltool.ggml.releases.table import DEFAULT, RELEASES
        from ggmltool.version import __version__

        others = ", ".join(release.title for release in RELEASES.values() if release is not DEFAULT)
        click.echo(f"ggmltool {__version__}\nggml {DEFAULT.title} by default; --ggml takes {others}, too")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "GGMLTOOL"},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_version,
    help="Show the versions of ggmltool and of the ggml it follows.",
)
def cli() -> None:
    """See what ggml does to a graph: backends, splits, copies, buffers, values."""


def main(args: Sequence[str] | None = None) -> None:
    """The console script: runs a command and leaves with its exit status."""
    from ggmltool.cli.errors import run_and_report

    sys.exit(run_and_report(cli, args))
