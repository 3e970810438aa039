"""`ggmltool explain`: why a node runs where it does, why a split begins, and what ggml's messages mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ggmltool.ask.explain import ExplainNode, ExplainSplit, message_of, realloc_of
from ggmltool.cli.complete import complete_sides, complete_words
from ggmltool.cli.errors import GGML_FAILED, CliError
from ggmltool.cli.moment import Look, moment_command
from ggmltool.inspect.opened import Moment

_MOST_READ = 64 << 20
"""Bytes of a log that are looked at."""

FORMS = {"node": "node NODE", "split": "split N", "realloc": "realloc A B", "error": "error TEXT"}
"""What can be explained, by the first word, and what belongs behind it; a node needs no first word."""


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    given = [*(ctx.params.get("words") or ()), *filter(None, [ctx.params.get("scenario")])]
    if given[:1] == ["realloc"]:
        return complete_sides(ctx, param, incomplete)
    forms = [] if given else [form for form in FORMS if form.startswith(incomplete)]
    return [*map(CompletionItem, forms), *complete_words(ctx, param, incomplete)]


@moment_command(what_if=True)
@click.argument("words", nargs=-1, metavar="WHAT...", shell_complete=_complete)
def explain(look: Look, words: tuple[str, ...]) -> int:
    """Explain a decision of ggml: which rules were asked, which one decided, and what would change it.

    \b
    WHAT is one of these:
      NODE     why it runs on its backend: every rule that was asked, what each
               backend answers, and changes that would move it
      split N  why a new split begins there, what it copies and for which nodes,
               and changes that make fewer splits
      realloc A B
               would the memory planned for A serve B? A and B are graphs of the
               scenario, or two scenarios (FILE:GRAPH, or --graph for both)
      error TEXT
               what a message of ggml or llama.cpp means, what causes it, what to
               do. TEXT is a line of a log, a part of one, a file, or `-` for
               standard input
    A node called `split`, `realloc` or `error` is `node NAME`. Every change that
    is shown was verified by planning.

    \b
    Example:
      ggmltool explain kq graph.yaml
      ggmltool explain split 1 graph.yaml
      ggmltool explain realloc prompt token graph.yaml
      ggmltool explain error "tensor buffer not set"
    """
    given = [*words, *([look.scenario] if look.scenario is not None else [])]
    if not given:
        raise click.UsageError(f"What should be explained? NODE, {', '.join(list(FORMS.values())[1:])}.")
    form = given.pop(0) if given[0] in FORMS else "node"
    if form == "error":
        return _error(look, given)
    if form == "realloc":
        return _realloc(look, given)
    if form == "split":
        return _split(look, given)
    return _node(look, given)


def _named(given: list[str], form: str) -> tuple[str, str | None]:
    """What is explained, and the scenario where one is named. Raises UsageError for too few words, or too many."""
    if not given or len(given) > 2:
        raise click.UsageError(f"Usage: `explain {FORMS[form]} [SCENARIO]`.")
    return given[0], given[1] if len(given) > 1 else None


def _node(look: Look, given: list[str]) -> int:
    name, scenario = _named(given, "node")
    opened = look.naming(scenario).open_for(name, "explain NODE")
    return look.print(ExplainNode(name, **look.moment._asdict()).ask(opened))


def _split(look: Look, given: list[str]) -> int:
    number, scenario = _named(given, "split")
    if not number.lstrip("#").isdecimal() or len(number) > 9:
        raise CliError(
            f"a split is named by its number, not {number!r}; `explain node {number}` explains a node of that name"
        )
    opened = look.naming(scenario).open()
    return look.print(ExplainSplit(int(number.lstrip("#")), **look.moment._asdict()).ask(opened))


def _realloc(look: Look, given: list[str]) -> int:
    from ggmltool.cli.diff import named_sides

    if len(given) not in (2, 3):
        raise click.UsageError(f"Usage: `explain {FORMS['realloc']} [SCENARIO]`.")
    _no_moment(look.moment, "realloc")
    title, first, second = named_sides(given, look.moment.graph, look.what_if, look.release)
    return look.print(realloc_of(first, second, title))


def _error(look: Look, given: list[str]) -> int:
    if look.moment.graph is not None or str(look.what_if):
        raise click.UsageError("`explain error` takes a text; leave out options of graph and scheduler.")
    _no_moment(look.moment, "error")
    text = _content(given[0]) if given == ["-"] or _is_file(given) else " ".join(given)
    if not text.strip():
        raise click.UsageError(
            f"Usage: `explain {FORMS['error']}`, with a message of ggml, a log, or `-` for standard input."
        )
    answer = message_of(text)
    if not answer.fine and not look.json:
        raise CliError(answer.text(), GGML_FAILED)
    return look.print(answer)


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


def _no_moment(moment: Moment, form: str) -> None:
    """Raises UsageError if a moment is named for what has none."""
    if moment.after is not None or moment.step != "alloc":
        raise click.UsageError(f"`explain {form}` takes neither --after nor --step.")
