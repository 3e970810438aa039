"""`ggmltool explain`: why a node runs where it does, why a split begins, and what ggml's messages mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ggmltool.cli.command import Command
from ggmltool.cli.complete import complete_sides, complete_words
from ggmltool.cli.errors import FINE, GGML_FAILED, CliError
from ggmltool.cli.options import (
    ggml_option,
    json_option,
    moment_options,
    output_option,
    scenario_argument,
    what_if_options,
)
from ggmltool.cli.output import Output, status_of
from ggmltool.cli.scenario import open_for, open_scenario
from ggmltool.inspect.opened import Moment, WhatIf
from ggmltool.inspect.watched import Watched

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


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="WHAT...", shell_complete=_complete)
@scenario_argument
@moment_options
@what_if_options
@ggml_option
@json_option
@output_option
def explain(
    words: tuple[str, ...], scenario: str | None, moment: Moment, what_if: WhatIf, json: bool, output: Output
) -> int:
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
    given = [*words, *([scenario] if scenario is not None else [])]
    if not given:
        raise click.UsageError(f"What should be explained? NODE, {', '.join(list(FORMS.values())[1:])}.")
    form = given.pop(0) if given[0] in FORMS else "node"
    if form == "error":
        return _error(given, moment, what_if, json, output)
    if form == "realloc":
        return _realloc(given, moment, what_if, json, output)
    if form == "split":
        return _split(given, moment, what_if, json, output)
    return _node(given, moment, what_if, json, output)


def _named(given: list[str], form: str) -> tuple[str, str | None]:
    """What is explained, and the scenario where one is named. Raises UsageError for too few words, or too many."""
    if not given or len(given) > 2:
        raise click.UsageError(f"Usage: `explain {FORMS[form]} [SCENARIO]`.")
    return given[0], given[1] if len(given) > 1 else None


def _node(given: list[str], moment: Moment, what_if: WhatIf, json: bool, output: Output) -> int:
    from ggmltool.inspect.node import explain_node
    from ggmltool.views.explain.node import explain_node_json, explain_node_view

    name, scenario = _named(given, "node")
    opened = open_for(name, scenario, "explain NODE")
    state, facts = explain_node(opened.what_if(what_if), moment, name)
    if json:
        return _write_json(state, explain_node_json(facts, state.plan), output)
    output.write(explain_node_view(facts, state.plan, state.title, state.heading, output.style))
    return status_of(state)


def _split(given: list[str], moment: Moment, what_if: WhatIf, json: bool, output: Output) -> int:
    from ggmltool.inspect.split import explain_split
    from ggmltool.views.explain.split import explain_split_json, explain_split_view

    number, scenario = _named(given, "split")
    if not number.lstrip("#").isdecimal() or len(number) > 9:
        raise CliError(
            f"a split is named by its number, not {number!r}; `explain node {number}` explains a node of that name"
        )
    state, facts = explain_split(open_scenario(scenario).what_if(what_if), moment, int(number.lstrip("#")))
    if json:
        return _write_json(state, explain_split_json(facts, state.plan), output)
    output.write(explain_split_view(facts, state.plan, state.title, state.heading, output.style))
    return status_of(state)


def _realloc(given: list[str], moment: Moment, what_if: WhatIf, json: bool, output: Output) -> int:
    from ggmltool.cli.sides import named_sides
    from ggmltool.inspect.realloc import explain_realloc
    from ggmltool.views.explain.realloc import explain_realloc_json, explain_realloc_view

    if len(given) not in (2, 3):
        raise click.UsageError(f"Usage: `explain {FORMS['realloc']} [SCENARIO]`.")
    _no_moment(moment, "realloc")
    title, first, second = named_sides(given, moment.graph, what_if)
    facts = explain_realloc(first, second)
    if json:
        from ggmltool.views.json_text import json_text

        output.write(json_text(explain_realloc_json(facts)))
    else:
        output.write(explain_realloc_view(facts, title, output.style))
    return FINE


def _error(given: list[str], moment: Moment, what_if: WhatIf, json: bool, output: Output) -> int:
    from ggmltool.ggml.messages.match import find, find_all, nearest
    from ggmltool.views.explain.error import explain_error_json, explain_error_view, nearest_text

    if moment.graph is not None or str(what_if):
        raise click.UsageError("`explain error` takes a text; leave out options of graph and scheduler.")
    _no_moment(moment, "error")
    text = _content(given[0]) if given == ["-"] or _is_file(given) else " ".join(given)
    if not text.strip():
        raise click.UsageError(
            f"Usage: `explain {FORMS['error']}`, with a message of ggml, a log, or `-` for standard input."
        )
    found = find(text)
    near = nearest(text) if found is None else []
    others = [m for m in find_all(text) if m.key != found.key] if found is not None else []
    if json:
        from ggmltool.views.json_text import json_text

        output.write(json_text(explain_error_json(found, near, others)))
    elif found is None:
        raise CliError(nearest_text(near), GGML_FAILED)
    else:
        output.write(explain_error_view(found, others, output.style))
    return FINE if found is not None else GGML_FAILED


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
    """Raises UsageError where a moment is named for what has none."""
    if moment.after is not None or moment.step != "alloc":
        raise click.UsageError(f"`explain {form}` takes neither --after nor --step.")


def _write_json(state: Watched, document: dict[str, Any], output: Output) -> int:
    from ggmltool.views.json_text import json_text

    output.write(json_text(state.stamped(document)))
    return status_of(state, say=False)
