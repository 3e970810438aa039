"""`ggmltool check`: every limit of ggml with its gauge."""

from __future__ import annotations

import click

from ggmltool.cli.errors import FINE, GGML_FAILED
from ggmltool.cli.moment import Look, moment_command
from ggmltool.cli.output import log_lines


@moment_command()
@click.option(
    "--all",
    is_flag=True,
    help="Check every graph, each on a fresh scheduler, and show the highest value of each gauge.",
)
def check(look: Look, all: bool) -> int:
    """Show every limit of ggml with its gauge: used, limit, where, and what ggml does beyond it.

    The exit status is 1 if a limit is breached, or if ggml would fail for another reason. An array that grows with a
    warning (a split's 30 inputs) or a name that is cut is not a breach.

    \b
    Example:
      ggmltool check model.yaml
      ggmltool check --all --step reserve model.yaml
      ggmltool check --after 3 model.yaml
    """
    if all and (look.moment.graph is not None or look.moment.after is not None):
        other = "--graph" if look.moment.after is None else "--after"
        raise click.UsageError(f"--all checks every graph, {other} only one; choose one.")
    from ggmltool.inspect.limits import check_all
    from ggmltool.views.explain.check import all_is_fine

    found, title, what = check_all(look.open(), look.moment, all)
    for one in found:
        log_lines(one.plan.log)
    if look.json:
        from ggmltool.views.explain.documents import CheckDocument

        look.output.write_document(CheckDocument.of(found, look.moment.after))
    else:
        from ggmltool.views.explain.check import checked_view

        look.output.write(checked_view(found, title, what, look.style))
    return FINE if all_is_fine(found) else GGML_FAILED
