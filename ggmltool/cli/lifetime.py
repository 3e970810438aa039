"""`ggmltool lifetime`: who has a tensor's memory before it and after it, and whether two tensors collide."""

from __future__ import annotations

import click

from ggmltool.cli.command import Command
from ggmltool.cli.options import (
    complete_words,
    ggml_option,
    json_option,
    moment_options,
    output_option,
    scenario_argument,
    what_if_options,
)
from ggmltool.cli.output import Output, status_of
from ggmltool.cli.scenario import is_scenario, open_for
from ggmltool.inspect.opened import Moment, WhatIf


@click.command(cls=Command)
@click.argument("names", nargs=-1, metavar="NAME [OTHER]", shell_complete=complete_words)
@scenario_argument
@moment_options
@what_if_options
@ggml_option
@json_option
@output_option
def lifetime(
    names: tuple[str, ...], scenario: str | None, moment: Moment, what_if: WhatIf, json: bool, output: Output
) -> int:
    """Show who has the bytes of the tensor NAME before it and who gets them next, in program order.

    A tensor is alive from the node that creates it to the last one that needs it; then its memory may go to others.
    With OTHER: do the two share bytes, are both alive at once, and who overwrites whom? NAME may be a view, an input, a
    weight, or a copy that the scheduler made. Nodes are numbered as ggml computes them, with the scheduler's copies, as
    in `allocs`.

    \b
    Example:
      ggmltool lifetime kq graph.yaml
      ggmltool lifetime kq probs graph.yaml
      ggmltool lifetime --after 2 kq graph.yaml
    """
    given = [*names, *([scenario] if scenario is not None else [])]
    wanted, file = _sorted(given)
    from ggmltool.inspect.lifetime import Lifetimes

    found = Lifetimes(open_for(wanted[-1], file, "lifetime NAME").what_if(what_if), moment)
    facts = [found.of(name) for name in wanted]
    if len(facts) == 2 and facts[0].tensor == facts[1].tensor:
        raise click.UsageError(f"{facts[0].tensor} is named twice; name two different tensors, or one.")
    state = found.watched.at
    if json:
        from ggmltool.views.json_text import json_text
        from ggmltool.views.memory.lifetime import lifetime_json

        output.write(json_text(state.stamped(lifetime_json(facts, found.nodes, state.graph, state.kind))))
    else:
        from ggmltool.views.memory.lifetime import lifetime_view

        output.write(lifetime_view(facts, found.nodes, state.title, found.watched.heading, output.style))
    return status_of(state, say=not json)


def _sorted(given: list[str]) -> tuple[list[str], str | None]:
    """Names and the scenario: of two words the second is a scenario where there is one of that name."""
    if not given or len(given) > 3:
        raise click.UsageError("Usage: `lifetime NAME [OTHER] [SCENARIO]`.")
    if len(given) == 3 or (len(given) == 2 and is_scenario(given[1])):
        return given[:-1], given[-1]
    return given, None
