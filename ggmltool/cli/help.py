"""`ggmltool help`: the pages of the manual, and the help of commands."""

from __future__ import annotations

from pathlib import Path

import click

from ggmltool.cli.command import Command
from ggmltool.cli.errors import CliError, suggestion
from ggmltool.cli.main import COMMANDS
from ggmltool.cli.options import json_option, output_option
from ggmltool.cli.output import Output

PAGES = Path(__file__).resolve().parent.parent / "docs"


def _complete_topics(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in (*_pages(), *COMMANDS) if name.startswith(incomplete)]


@click.command(cls=Command)
@click.argument("topic", required=False, metavar="[TOPIC]", shell_complete=_complete_topics)
@json_option
@output_option
@click.pass_context
def help(ctx: click.Context, topic: str | None, json: bool, output: Output) -> int:
    """Show a page of the manual, or list the pages. TOPIC can also be a command, whose --help is shown.

    A terminal gets the page laid out; a pipe or a file gets Markdown.

    \b
    Example:
      ggmltool help scenario
      ggmltool help
    """
    from ggmltool.ask.answer import Answer
    from ggmltool.ask.reference.record import Page, TopicInfo, Topics

    pages = _pages()
    if topic is None:
        infos = tuple(TopicInfo(name, text.partition("\n")[0].removeprefix("# ")) for name, text in pages.items())
        return output.answer(Answer(Topics(topics=infos)), "json" if json else "text")
    if topic in pages:
        if not json and not output.to_terminal:
            output.write(pages[topic])
            return 0
        return output.answer(Answer(Page(topic=topic, text=pages[topic])), "json" if json else "text")
    root = ctx.find_root()
    group = root.command
    command = group.get_command(root, topic) if isinstance(group, click.Group) else None
    if command is None:
        hint = suggestion(topic, (*pages, *COMMANDS)) or " `ggmltool help` lists the topics."
        raise CliError(f"there is no help on {topic!r}.{hint}")
    if json:
        raise click.UsageError("--json has pages of the manual, not the help of a command.")
    with click.Context(command, info_name=topic, parent=root) as inner:
        output.write(command.get_help(inner) + "\n")
    return 0


def _pages() -> dict[str, str]:
    """The pages by topic."""
    return {path.stem: path.read_text("utf-8") for path in sorted(PAGES.glob("*.md"))}
