"""`ggmltool lifetime`: who has a tensor's memory before it and after it, and whether two tensors collide."""

from __future__ import annotations

import click

from ggmltool.cli.complete import complete_words
from ggmltool.cli.moment import Look, moment_command
from ggmltool.cli.scenario import is_scenario


@moment_command(what_if=True)
@click.argument("names", nargs=-1, metavar="NAME [OTHER]", shell_complete=complete_words)
def lifetime(look: Look, names: tuple[str, ...]) -> int:
    """Show who has the bytes of the tensor NAME before it and who gets them next, in program order.

    A tensor is alive from the node that creates it to the last one that needs it; then its memory may go to others.
    With OTHER: do the two share bytes, are both alive at once, and who overwrites whom? NAME may be a view, an input, a
    weight, or a copy that the scheduler made. Nodes have their numbers in the graph, as in `explain` and
    GGML_SCHED_DEBUG's print; the scheduler's copies have none.

    \b
    Example:
      ggmltool lifetime kq graph.yaml
      ggmltool lifetime kq probs graph.yaml
      ggmltool lifetime --after 2 kq graph.yaml
    """
    from ggmltool.inspect.lifetime import Lifetimes

    wanted, scenario = _sorted([*names, *([look.scenario] if look.scenario is not None else [])])
    found = Lifetimes(look.naming(scenario).open_for(wanted[-1], "lifetime NAME"), look.moment)
    facts = [found.of(name) for name in wanted]
    if len(facts) == 2 and facts[0].tensor == facts[1].tensor:
        raise click.UsageError(f"{facts[0].tensor} is named twice; name two different tensors, or one.")
    state = found.watched.at
    if look.json:
        from ggmltool.views.memory.documents import LifetimeDocument

        return look.answer(state, LifetimeDocument.of(state.plan, facts, found.nodes), say=False)
    from ggmltool.views.memory.lifetime import lifetime_view

    return look.answer(state, lifetime_view(facts, found.turns, state.title, found.watched.heading, look.style))


def _sorted(given: list[str]) -> tuple[list[str], str | None]:
    """Names and the scenario: of two words the second is a scenario if there is one of that name."""
    if not given or len(given) > 3:
        raise click.UsageError("Usage: `lifetime NAME [OTHER] [SCENARIO]`.")
    if len(given) == 3 or (len(given) == 2 and is_scenario(given[1])):
        return given[:-1], given[-1]
    return given, None
