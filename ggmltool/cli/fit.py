"""`ggmltool fit`: the best way to put a model on devices, found by planning, and the line that runs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from ggmltool.ask.fit import FitQuestion
from ggmltool.ask.place.options import RULES, shares_of
from ggmltool.cli.derive import Asking, question_command
from ggmltool.cli.errors import CliError, value_of
from ggmltool.cli.models import FIELDS, ModelOptions, model_options
from ggmltool.cli.output import Output, ending_of, note
from ggmltool.cli.pictures import PICTURES, check_picture, picture_of

if TYPE_CHECKING:
    from ggmltool.ask.answer import Answer
    from ggmltool.ask.fit.record import FitShown
    from ggmltool.ask.fit.wishes import Wishes
    from ggmltool.sources.llama.search.candidates import SearchProgress

_NO_CONTEXT = "there is no chart: it shows speed over tokens of context, and this graph was captured from no context"


@question_command(FitQuestion)
@model_options(lists=True, doubled=True)
def fit(asking: Asking[FitQuestion], wanted: ModelOptions) -> int:
    check_picture(asking.format, asking.output, "chart")
    with value_of("-ts"):
        shares_of(asking.question.tensor_split)
    found = _found(asking, _wishes(asking, wanted))
    own = "scenario" if ending_of(asking.output.path) in FitQuestion.endings else "text"
    _write(found, asking.output, asking.format or own)
    return 0 if found.fine else 1


def _wishes(asking: Asking[FitQuestion], wanted: ModelOptions) -> Wishes:
    """What is asked for. Raises CliError for options of a context where there is no model to capture."""
    from ggmltool.sources.llama.model_file import is_model

    asked, scenario = asking.question, asking.scenario
    if scenario is None or not is_model(Path(scenario)):
        if wanted.given:
            raise CliError(f"{wanted.given[0]} changes the graph: name the model itself, MODEL.gguf, not its capture")
        return asked.wishes(scenario or "", True, {})
    searched = {name: getattr(wanted, field) for field, (_, name) in FIELDS.items() if field in ModelOptions.lists()}
    given: dict[str, Any] = {name: values for name, values in searched.items() if values}
    if "n_batch" in given:
        given["n_batch"] = max(given["n_batch"])
    none: dict[str, Any] = dict.fromkeys(ModelOptions.lists(), ())
    one, *others = wanted._replace(**none).each()
    if others:
        raise click.UsageError("--as and --outputs have one value here")
    asked = structs.replace(asked, **given, options=one.options, quantization=one.quantization)
    return asked.wishes(scenario, False, one.words)


def _found(asking: Asking[FitQuestion], wishes: Wishes) -> Answer[FitShown]:
    from ggmltool.ask.fit.record import fit as find
    from ggmltool.ask.fit.text import progress_text
    from ggmltool.cli.progress import progress

    opened, asked = None, asking.question
    if wishes.captured:
        opened = asking.open()
        opened.refuse_older(RULES)
        wishes = wishes._replace(argument=opened.argument)
    text = ""

    def told(now: SearchProgress) -> None:
        nonlocal text
        text = progress_text(now)

    with progress("searching", detail=lambda: text):
        resume = None if asked.resume is None else Path(asked.resume)
        return find(wishes, opened, asked.jobs, note, told, resume, asked.top)


def _write(found: Answer[FitShown], output: Output, format: str) -> None:
    """Raises CliError where there is nothing to write."""
    if format in PICTURES:
        from ggmltool.ask.fit.svg import chart_of

        if not found.fine:
            raise CliError("nothing fits, so there is no chart")
        if not all(candidate.n_ctx for candidate in found.rows):
            raise CliError(_NO_CONTEXT)
        output.write(picture_of(chart_of(found), format, found.title, output))
    elif format == "scenario":
        from ggmltool.cli.place import scenario_bytes

        if not found.fine:
            raise CliError("nothing fits, so there is no placement to write")
        output.write(scenario_bytes(found.facts.placed))
    else:
        output.answer(found, format)
