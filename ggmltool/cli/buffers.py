"""`ggmltool buffers`: the answer of the question, as text, a drawing or a pickle."""

from __future__ import annotations

from typing import Any

import click

from ggmltool.ask.buffers import Buffers
from ggmltool.cli.derive import Asking, question_command
from ggmltool.cli.errors import CliError
from ggmltool.cli.moment import option_of
from ggmltool.cli.output import note
from ggmltool.cli.pictures import PICTURES, check_picture, picture_of


@question_command(Buffers)
def buffers(asking: Asking[Buffers[Any]]) -> int:
    question, format, output, view = asking.question, asking.format, asking.output, asking.question.view
    picture = format if format in PICTURES else None
    if picture is not None and view not in ("", "chart"):
        raise click.UsageError(f"only --chart is a drawing; leave out {option_of(view)}, or name a .txt or .json file.")
    if picture is not None and (question.all or question.ascii):
        wrong = option_of("all" if question.all else "ascii")
        raise click.UsageError(f"{wrong} is for text; leave it out for a drawing.")
    if question.chart and format in ("json", "csv"):
        raise click.UsageError("--chart is a drawing; --json without it has the tensors at the peak.")
    if format == "pickle" and view:
        raise click.UsageError(f"a pickle has what is allocated and freed; leave out {option_of(view)}.")
    if format == "pickle" and output.to_terminal:
        raise CliError("a pickle cannot be shown on a terminal; name a file with -o memory.pickle")
    check_picture(picture, output, "map")
    if picture is None and format != "pickle":
        return asking.answer()
    from ggmltool.inspect.built import graph_numbers

    opened = asking.open()
    answer = question.ask(opened)
    plan, memory = answer.facts.plan, answer.facts.memory
    numbers = graph_numbers(opened.scenario, plan.graph)
    if picture is not None:
        from ggmltool.ask.buffers.svg import map_svg

        drawn = map_svg(plan, memory, answer.title, numbers)
        return output.answer(answer, picture, picture_of(drawn, picture, answer.title, output))
    from ggmltool.ask.buffers.torch_snapshot import devices_of, snapshot_pickle

    named = (f"{number} is {name}" for number, name in enumerate(devices_of(plan, memory)))
    note(f"Devices in the viewer: {', '.join(named) or 'none, no memory is planned'}")
    return output.answer(answer, "pickle", snapshot_pickle(plan, memory, answer.facts.tensors, numbers))
