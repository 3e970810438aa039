"""`ggmltool sample`: the scenarios that ship with ggmltool, each teaching one thing."""

from __future__ import annotations

import click

from ggmltool.ask.answer import Answer
from ggmltool.ask.reference.record import sample_infos
from ggmltool.cli.command import Command
from ggmltool.cli.endings import ending_of
from ggmltool.cli.errors import CliError, suggestion
from ggmltool.cli.options import json_option, output_to
from ggmltool.cli.output import Output
from ggmltool.scenario.samples import sample_name, samples


def _complete_samples(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in map(sample_name, samples()) if name.startswith(incomplete)]


@click.command(cls=Command)
@click.argument("name", required=False, metavar="[NAME]", shell_complete=_complete_samples)
@json_option
@output_to(".yaml", ".yml", ".json")
def sample(name: str | None, json: bool, output: Output) -> int:
    """List the samples, or print one of them: a commented scenario that teaches one thing.

    Graphs captured from a real model are compressed; they are printed uncompressed unless -o names a .gz file.

    \b
    Example:
      ggmltool sample
      ggmltool sample priority -o graph.yaml
    """
    if name is None:
        return output.answer(Answer(sample_infos()), "json" if json or ending_of(output.path) == ".json" else "text")
    if json:
        raise click.UsageError("--json lists the samples; it does not go with a name.")
    paths = {sample_name(path): path for path in samples()}
    path = paths.get(name) or next((p for p in paths.values() if p.name == name), None)
    if path is None:
        hint = suggestion(name, paths) or " `ggmltool sample` lists them."
        raise CliError(f"no sample is called {name!r}.{hint}")
    data = path.read_bytes()
    if path.suffix == ".gz":
        import gzip

        data = gzip.decompress(data)
    elif ending_of(output.path) == ".json":
        raise CliError(f"{name} is a YAML file; name it {name}.yaml")
    output.write(data)
    return 0
