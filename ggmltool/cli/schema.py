"""`ggmltool schema`: the JSON Schema of the scenario file, and of what commands print with --json."""

from __future__ import annotations

from typing import Any

import click

from ggmltool.cli.command import Command
from ggmltool.cli.errors import CliError
from ggmltool.cli.options import json_option, output_option
from ggmltool.cli.output import Output


def _complete_schemas(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in _names() if name.startswith(incomplete)]


@click.command(cls=Command)
@click.argument("name", required=False, metavar="[NAME]", shell_complete=_complete_schemas)
@json_option
@output_option
def schema(name: str | None, json: bool, output: Output) -> int:
    """Print a JSON Schema, or list them. NAME is `scenario`, the file that an editor completes and checks with its
    schema, or the `kind` of what a command prints with --json.

    \b
    Example:
      ggmltool schema
      ggmltool schema plan -o plan.schema.json
      ggmltool schema scenario -o scenario.schema.json
    """
    if name is None:
        from ggmltool.ask.answer import Answer
        from ggmltool.ask.reference.schemas import schemas

        return output.answer(Answer(schemas()), "json" if json else "text")
    import json as library

    output.write(library.dumps(_schema(name), indent=2, ensure_ascii=False) + "\n")
    return 0


def _names() -> list[str]:
    """The names of the schemas."""
    from ggmltool.ask.reference.schemas import schemas

    return [schema.name for schema in schemas().schemas]


def _schema(name: str) -> dict[str, Any]:
    from ggmltool.ask.reference.schemas import kinds, schema_of
    from ggmltool.scenario.errors import did_you_mean

    if name == "scenario":
        from ggmltool.scenario.schema import scenario_schema

        return scenario_schema()
    there = kinds()
    if name not in there:
        hint = did_you_mean(name, _names()) or "`ggmltool schema` lists them"
        raise CliError(f"no document is called {name!r}; {hint}")
    return schema_of(name, there[name])
