"""`ggmltool backends`: the devices that are known, or those of a scenario, with buffer types and function tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggmltool.ask.answer import Answer
from ggmltool.ask.backends import backends as ask_backends
from ggmltool.ask.backends import profiles
from ggmltool.ask.backends.record import DevicesRates, measured_backends, rates_of, rates_of_known
from ggmltool.ask.place.options import named_devices
from ggmltool.cli.command import Command
from ggmltool.cli.options import DOCUMENTS, format_option, ggml_option, output_option, scenario_argument
from ggmltool.cli.output import Output, note

if TYPE_CHECKING:
    from ggmltool.ggml.releases.release import Release
    from ggmltool.scenario.spec import ScenarioSpec


_DEVICES = ("CPU", "BLAS", "CUDA0", "CUDA1", "ROCm0", "Metal", "MTL0", "Vulkan0", "SYCL0", "OpenCL", "CANN0", "RPC0")


def _complete_devices(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in _DEVICES if name.startswith(incomplete)]


@click.command(cls=Command)
@scenario_argument
@click.option(
    "--device",
    "devices",
    metavar="NAME[:PARAMS]|FILE",
    multiple=True,
    envvar="GGMLTOOL_BACKENDS_DEVICE",
    shell_complete=_complete_devices,
    help="Show this device instead of a scenario's; may be repeated. A known device may stand in its place: "
    "RTX 3090, 2x RTX 3090, Vulkan0=RTX 3090. PARAMS are key=value pairs separated by commas, "
    "with the keys of a backend in a scenario; a size alone is its memory. Or a file of devices, as --format "
    "yaml writes it.",
)
@click.option(
    "--interface",
    is_flag=True,
    help="Show the function tables: what a backend has, what is NULL, and what ggml does without it.",
)
@click.option(
    "--rates",
    is_flag=True,
    help="Show how fast devices are at best, which estimates of time start from: the known devices, or those of a "
    "scenario or --device, with the source of each number.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Measure this machine in a few seconds: its CPU with numpy, NVIDIA GPUs with cupy where that is installed. "
    "With --format yaml, a file for --device.",
)
@ggml_option
@format_option("text", *DOCUMENTS, "yaml", help="Text (default), JSON, CSV, or YAML that a scenario or --device reads.")
@output_option
def backends(
    scenario: str | None,
    devices: tuple[str, ...],
    interface: bool,
    rates: bool,
    measure: bool,
    format: str | None,
    release: Release | None,
    output: Output,
) -> int:
    """Show the backends of a scenario: devices, memory, capabilities and buffer types.

    Without a scenario and without --device, show the known devices and what each leaves out. No device has to be in
    this machine. (If cupy is installed, NVIDIA GPUs are detected, to say which engine computes.) With --format yaml the
    devices are written as a file to edit: a list for `backends` of a scenario, for `profile: FILE` there, or for
    --device FILE.

    \b
    Example:
      ggmltool backends
      ggmltool backends model.yaml
      ggmltool backends --device CUDA0:24GiB --device CPU --interface
      ggmltool backends --device Metal --format yaml -o metal.yaml
      ggmltool backends --ggml 2024-01 --device CUDA0 --device CPU
      ggmltool backends --rates
      ggmltool backends --measure --format yaml -o here.yaml
    """
    from ggmltool.ggml.releases.table import DEFAULT

    if scenario is not None and devices:
        raise click.UsageError("--device replaces the scenario; name one or the other.")
    if interface and (measure or rates):
        raise click.UsageError("--interface shows function tables; leave out --rates and --measure, or --interface.")
    if measure or (rates and scenario is None and not devices):
        return _show_rates(measure, scenario is not None or bool(devices), format, release, output)
    if scenario is None and not devices:
        if interface:
            raise click.UsageError("--interface needs backends: name a scenario, or --device NAME.")
        if format == "yaml":
            raise click.UsageError("--format yaml writes devices: name a scenario, or --device NAME.")
        return output.answer(profiles(release or DEFAULT), format or "text")
    model, title = _given(scenario, devices, release)
    if rates:
        return _write_rates(Answer(rates_of(model), title), format, output)
    if format == "yaml":
        if interface:
            raise click.UsageError("A file of devices has no function tables; leave out --interface or --format yaml.")
        return _write_devices(model, output)
    return output.answer(ask_backends(model, title, interface), format or "text")


def _show_rates(measure: bool, named: bool, format: str | None, release: Release | None, output: Output) -> int:
    """The rates of the known devices, or of this machine as measured."""
    from ggmltool.ggml.releases.table import DEFAULT
    from ggmltool.scenario.spec import ScenarioSpec

    if measure and named:
        raise click.UsageError("--measure measures this machine; leave out the scenario and --device.")
    if not measure:
        return _write_rates(Answer(rates_of_known(), "known devices"), format, output)
    model = ScenarioSpec("", list(measured_backends(note)), [], [], {}, [], release=release or DEFAULT)
    if format == "yaml":
        return _write_devices(model, output)
    return _write_rates(Answer(rates_of(model), "this machine"), format, output)


def _write_devices(model: ScenarioSpec, output: Output) -> int:
    from ggmltool.ask.backends.file import device_yaml
    from ggmltool.ask.backends.record import device_facts

    output.write(device_yaml(device_facts(model)))
    return 0


def _write_rates(answer: Answer[DevicesRates], format: str | None, output: Output) -> int:
    if format == "yaml":
        raise click.UsageError("--rates is a table; --format yaml without it writes devices.")
    return output.answer(answer, format or "text")


def _given(scenario: str | None, devices: tuple[str, ...], release: Release | None) -> tuple[ScenarioSpec, str]:
    """The model whose backends to show, with a title; one without graphs for --device. Raises InspectError."""
    from ggmltool.cli.scenario import open_scenario
    from ggmltool.ggml.releases.table import DEFAULT
    from ggmltool.scenario.spec import ScenarioSpec

    if scenario is not None:
        opened = open_scenario(scenario, release)
        return opened.model, opened.title
    release = release or DEFAULT
    return ScenarioSpec("", named_devices(devices, release), [], [], {}, [], release=release), "devices"
