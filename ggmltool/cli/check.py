"""`ggmltool check`: every limit of ggml with its gauge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggmltool.cli.command import Command
from ggmltool.cli.errors import FINE, GGML_FAILED
from ggmltool.cli.options import ggml_option, json_option, moment_options, output_option, scenario_argument
from ggmltool.cli.output import Output, log_lines
from ggmltool.cli.scenario import open_scenario
from ggmltool.inspect.opened import Moment

if TYPE_CHECKING:
    from ggmltool.inspect.limits import Checkup


@click.command(cls=Command)
@scenario_argument
@moment_options
@click.option("--all", is_flag=True, help="Check every graph, each on a fresh scheduler; the closest of each gauge.")
@ggml_option
@json_option
@output_option
def check(scenario: str | None, moment: Moment, all: bool, json: bool, output: Output) -> int:
    """Show every limit of ggml with its gauge: used, limit, where, and what ggml does beyond it.

    The exit status is 1 where a limit is breached, or ggml would not go on for another reason. Not a breach: an array
    that grows with a warning (a split's 30 inputs), a name that is cut.

    \b
    Example:
      ggmltool check model.yaml
      ggmltool check --all --step reserve model.yaml
      ggmltool check --after 3 model.yaml
    """
    if all and (moment.graph is not None or moment.after is not None):
        other = "--graph" if moment.after is None else "--after"
        raise click.UsageError(f"--all is for every graph, {other} for one; choose one.")
    from ggmltool.inspect.gauges import highest
    from ggmltool.inspect.limits import check_all
    from ggmltool.views.explain.check import breached

    opened = open_scenario(scenario)
    found, title, what = check_all(opened, moment, all)
    for one in found:
        log_lines(one.plan.log)
    several = highest({one.graph: one.gauges for one in found}) if len(found) > 1 else found[0].gauges
    ok = not breached(several) and not any(breached(one.gauges) or not one.plan.ok for one in found)
    if json:
        from ggmltool.views.explain.check import check_json
        from ggmltool.views.json_text import json_text

        after = {} if moment.after is None else {"after": moment.after}
        step = found[0].plan.step
        document = {"ggmltool": 1, "kind": "check", "ggml": found[0].plan.ggml, "step": step, "ok": ok, **after}
        graphs = [
            {"graph": one.graph, "ok": one.plan.ok, "gauges": check_json(one.gauges), **_error(one)} for one in found
        ]
        output.write(json_text(document | {"graphs": graphs}))
    else:
        from ggmltool.views.errors import ggml_error
        from ggmltool.views.explain.check import breach_text, check_view

        release = f"ggml {found[0].plan.ggml}"
        what = what if f", {release}" in title else f"{what} · {release}"
        text = check_view(several, title, what, output.style)
        for one in found:
            if one.plan.error is not None:
                about = f"{one.graph}: " if len(found) > 1 else ""
                lines = [about + ggml_error(dict(one.plan.error)), breach_text(one.breach, one.plan.ggml)]
                text += "\n" + "".join(f"{line}\n" for line in lines if line)
        output.write(text)
    return FINE if ok else GGML_FAILED


def _error(one: Checkup) -> dict[str, object]:
    if one.plan.error is None:
        return {}
    breach = None if one.breach is None else {"key": one.breach.limit, "used": one.breach.used}
    return {"error": dict(one.plan.error), "breach": breach}
