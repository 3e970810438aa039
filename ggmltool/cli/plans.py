"""`ggmltool plan`, `splits` and `explain`: what ggml decides, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from ggmltool.ask.explain import Explain, ExplainNode, ExplainSplit, message_of, realloc_of
from ggmltool.ask.plan import PlanQuestion
from ggmltool.ask.splits import Splits
from ggmltool.cli.complete import complete_sides, complete_words
from ggmltool.cli.derive import Asking, question_command
from ggmltool.cli.errors import GGML_FAILED, CliError
from ggmltool.cli.logs import OpenedLog, open_either, refuse_moment, refuse_what_if
from ggmltool.cli.options import option_of, raw_option
from ggmltool.cli.output import note, status_of
from ggmltool.cli.scenario import open_for, open_scenario

if TYPE_CHECKING:
    from ggmltool.inspect.opened import Opened

_MOST_READ = 64 << 20
"""Bytes of a log that are looked at."""

FORMS = {"node": "node NODE", "split": "split N", "realloc": "realloc A B", "error": "error TEXT"}
"""What can be explained, by the first word, and what belongs behind it; a node needs no first word."""


@question_command(PlanQuestion)
def plan(asking: Asking[PlanQuestion]) -> int:
    opened = open_either(asking.scenario, asking.question.graph, asking.release)
    if not isinstance(opened, OpenedLog):
        return asking.answer(opened)
    from ggmltool.cli.logs import show_plan

    refuse_moment()
    refuse_what_if()
    return show_plan(opened, asking.json, asking.output)


@question_command(Splits)
@click.option(
    "--debug",
    type=click.IntRange(1, 2),
    help="Print ggml's text for this GGML_SCHED_DEBUG: 1 the splits, 2 their nodes, too (default: 2).",
)
@click.option(
    "--causes/--no-causes",
    default=None,
    help="Print the cause of each assignment (default), or leave it out as ggml's release builds do.",
)
@raw_option
def splits(asking: Asking[Splits[Any]], debug: int | None, causes: bool | None) -> int:
    question, format = asking.question, asking.format
    view = {"after_pass": "pass"}.get(question.view, question.view)
    printed = question.after_pass is not None and format == "text"
    detailed = debug is not None or causes is not None
    if view and not printed and (detailed or format == "text"):
        raise click.UsageError(
            f"--debug, --causes and --format text are for ggml's text; leave them out with {option_of(view)}."
        )
    if format not in (None, "text") and detailed:
        raise click.UsageError(f"--debug and --causes are for ggml's text; leave them out with --format {format}.")
    opened = open_either(asking.scenario, question.graph, asking.release)
    if isinstance(opened, OpenedLog):
        from ggmltool.cli.logs import refuse_moment, refuse_options, refuse_what_if, show_splits

        refuse_moment()
        refuse_what_if()
        refuse_options(
            **{"pass": "shows only the result of all passes", "seconds": "does not have what nodes are made of"}
        )
        return show_splits(opened, question, debug or 2, causes is not False, format, asking.output)
    if printed or (format in (None, "text") and not view):
        return _debug_text(asking, opened, debug or 2, causes is not False)
    return replace(asking, format=format if format in ("json", "csv") else "text").answer(opened)


def _debug_text(asking: Asking[Splits[Any]], opened: Opened, level: int, causes: bool) -> int:
    """ggml's debug print of one step: of its end, or (--pass --format text) of one pass."""
    from ggmltool.ask.splits.sched_debug import debug_text

    question = asking.question
    watched, text = debug_text(question.of(opened), question.moment, level, causes, question.after_pass)
    asking.output.write_ggml(text)
    status = status_of(watched)
    if watched.plan.ok and not watched.plan.nodes:
        note(f"The graph {watched.graph} has no nodes.")
    return status


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    given = [*(ctx.params.get("words") or ()), *filter(None, [ctx.params.get("scenario")])]
    if given[:1] == ["realloc"]:
        return complete_sides(ctx, param, incomplete)
    forms = [] if given else [form for form in FORMS if form.startswith(incomplete)]
    return [*map(CompletionItem, forms), *complete_words(ctx, param, incomplete)]


@question_command(Explain)
@click.argument("words", nargs=-1, metavar="WHAT...", shell_complete=_complete)
def explain(asking: Asking[Explain[Any]], words: tuple[str, ...]) -> int:
    given = [*words, *([asking.scenario] if asking.scenario is not None else [])]
    if not given:
        raise click.UsageError(f"What should be explained? NODE, {', '.join(list(FORMS.values())[1:])}.")
    form = given.pop(0) if given[0] in FORMS else "node"
    if form == "error":
        return _explain_error(asking, given)
    least, question = (2 if form == "realloc" else 1), asking.question
    if not least <= len(given) <= least + 1:
        raise click.UsageError(f"Usage: `explain {FORMS[form]} [SCENARIO]`.")
    scenario, options = given[1] if len(given) > 1 else None, asdict(question)
    if form == "realloc":
        from ggmltool.cli.diff import named_sides

        _no_moment(question, form)
        title, first, second = named_sides(given, question, asking.release)
        return asking.print(realloc_of(first, second, title))
    if form == "node":
        node = ExplainNode(given[0], **options)
        return asking.print(node.ask(open_for(given[0], scenario, "explain NODE", asking.release)))
    number = given[0].lstrip("#")
    if not number.isdecimal() or len(given[0]) > 9:
        raise CliError(
            f"a split is named by its number, not {given[0]!r}; `explain node {given[0]}` explains a node of that name"
        )
    return asking.print(ExplainSplit(int(number), **options).ask(open_scenario(scenario, asking.release)))


def _explain_error(asking: Asking[Explain[Any]], given: list[str]) -> int:
    if asking.question.graph is not None or str(asking.question.what_if):
        raise click.UsageError("`explain error` takes a text; leave out options of graph and scheduler.")
    _no_moment(asking.question, "error")
    text = _content(given[0]) if given == ["-"] or _is_file(given) else " ".join(given)
    if not text.strip():
        raise click.UsageError(
            f"Usage: `explain {FORMS['error']}`, with a message of ggml, a log, or `-` for standard input."
        )
    answer = message_of(text)
    if not answer.fine and not asking.json:
        raise CliError(answer.text(), GGML_FAILED)
    return asking.print(answer)


def _is_file(given: list[str]) -> bool:
    """Whether the text is the name of a file."""
    try:
        return len(given) == 1 and Path(given[0]).is_file()
    except OSError:
        return False


def _content(name: str) -> str:
    """What a log, or standard input for `-`, begins with: unpacked, whatever it is written in. Raises ScenarioError."""
    from ggmltool.sources.sched_log.stream import open_log

    with open_log(name, "<stdin>" if name == "-" else name) as lines:
        return lines.beginning(_MOST_READ).decode("utf-8", "replace")


def _no_moment(question: Explain[Any], form: str) -> None:
    """Raises UsageError if a moment is named for what has none."""
    if question.after is not None or question.step != "alloc":
        raise click.UsageError(f"`explain {form}` takes neither --after nor --step.")
