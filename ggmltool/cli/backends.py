"""`ggmltool backends`: the devices that are known, or those of a scenario, with buffer types and function tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggmltool.cli.command import Command, current_settings
from ggmltool.cli.errors import CliError
from ggmltool.cli.options import format_option, ggml_option, output_option, scenario_argument
from ggmltool.cli.output import Output
from ggmltool.views.reference.backends import (
    BackendInfo,
    BuftInfo,
    EngineInfo,
    Function,
    ProfileInfo,
    Table,
    backends_json,
    backends_view,
    interface_view,
    profiles_json,
    profiles_view,
)
from ggmltool.views.reference.registry import RegisteredInfo, registry_json, registry_view

if TYPE_CHECKING:
    from ggmltool.ggml.buffer import BufferType
    from ggmltool.ggml.device import Backend
    from ggmltool.ggml.devices.duties import Duty
    from ggmltool.ggml.devices.interfaces import Interface
    from ggmltool.ggml.devices.profiles import Profile
    from ggmltool.scenario.gpus import Computing
    from ggmltool.scenario.model import BackendSpec, Model


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
    help="Instead of a scenario: init this device; may be repeated. PARAMS are key=value, by commas, with the keys of "
    "a backend in a scenario; a size alone is its memory. Or a file of devices, as --format yaml writes it.",
)
@click.option(
    "--interface", is_flag=True, help="Show the function tables: what a backend has, what is NULL, what ggml does then."
)
@ggml_option
@format_option("text", "json", "yaml", help="Text (default), JSON, or YAML that a scenario or --device takes back.")
@output_option
def backends(
    scenario: str | None, devices: tuple[str, ...], interface: bool, format: str | None, output: Output
) -> int:
    """Show the backends of a scenario: devices, memory, capabilities and buffer types.

    Without a scenario and without --device: the kinds of devices that are known, and what of each is left out. No
    device has to be in this machine; NVIDIA GPUs are looked for, where cupy is installed, to say who would compute.
    With --format yaml the devices are written as a file to edit: as a list for `backends` of a scenario, for
    `profile: FILE` there, or for --device FILE.

    \b
    Example:
      ggmltool backends
      ggmltool backends model.yaml
      ggmltool backends --device CUDA0:24GiB --device CPU --interface
      ggmltool backends --device Metal --format yaml -o metal.yaml
      ggmltool backends --ggml 2024-01 --device CUDA0 --device CPU
    """
    from ggmltool.ggml.version import VERSION
    from ggmltool.scenario.releases import PARTS
    from ggmltool.views.json_text import json_text

    if scenario is not None and devices:
        raise click.UsageError("--device is instead of a scenario; name one or the other.")
    if scenario is None and not devices:
        if interface:
            raise click.UsageError("--interface needs backends: name a scenario, or --device NAME.")
        if format == "yaml":
            raise click.UsageError("--format yaml writes devices: name a scenario, or --device NAME.")
        release = current_settings().ggml or VERSION
        known = [_profile(p) for p in PARTS[release].profiles().values()]
        output.write(
            json_text(profiles_json(known, release)) if format == "json" else profiles_view(known, output.style)
        )
        return 0
    model, title = _given(scenario, devices)
    if format == "yaml":
        if interface:
            raise click.UsageError("--interface is not what a file of devices has; leave one of the two out.")
        output.write(_device_file(model))
        return 0
    made, bufts = _made(model)
    registered = _registered(model)
    if format == "json":
        document = backends_json(made, bufts, model.ggml, _duties(model) if interface else None)
        output.write(json_text(document | ({"registry": registry_json(registered)} if registered else {})))
    elif interface:
        output.write(interface_view(made, title, output.style, _duties(model)))
    else:
        text = backends_view(made, bufts, title, output.style)
        output.write(text + (registry_view(registered, output.style) if registered else ""))
    return 0


def _duties(model: Model) -> dict[str, tuple[Duty, ...]] | None:
    """What a backend of one's own implements, where that is known of the release."""
    from ggmltool.ggml.devices.duties import duties
    from ggmltool.ggml.version import VERSION

    return duties() if model.ggml == VERSION else None


def _given(scenario: str | None, devices: tuple[str, ...]) -> tuple[Model, str]:
    """The model whose backends to show, with a title; one without graphs for --device. Raises CliError."""
    from ggmltool.cli.scenario import open_scenario
    from ggmltool.ggml.version import VERSION
    from ggmltool.scenario.backends import read_devices
    from ggmltool.scenario.errors import Mistake
    from ggmltool.scenario.model import Model
    from ggmltool.scenario.versions import check_profiles

    if scenario is not None:
        opened = open_scenario(scenario)
        return opened.model, opened.title
    model = Model("", [], [], [], {}, [], ggml=current_settings().ggml or VERSION)
    try:
        model.backends = read_devices(devices)
        check_profiles(model.backends, model.release)
    except Mistake as mistake:
        raise CliError(f"--device: {mistake.message}" + (f"; {mistake.expected}" if mistake.expected else "")) from None
    return model, "devices"


def _made(model: Model) -> tuple[list[BackendInfo], list[BuftInfo]]:
    from ggmltool.scenario.engine import make_backends, make_bufts
    from ggmltool.scenario.gpus import computing
    from ggmltool.scenario.releases import PARTS

    bufts = make_bufts(model, all_known=True)
    made = make_backends(model, bufts)
    all_bufts = list(bufts.values())
    profiles = PARTS[model.ggml].profiles()
    computes = zip(model.backends, made, computing(model, made, all_bufts), strict=True)
    infos = [_backend(spec, profiles[spec.profile], b, _engine(who), all_bufts) for spec, b, who in computes]
    return infos, [_buft(t, made) for t in all_bufts]


def _registered(model: Model) -> list[RegisteredInfo]:
    """The registry of a ggml whose programs make backends by one."""
    from ggmltool.scenario.releases import PARTS

    registry = PARTS[model.ggml].registry
    if registry is None:
        return []
    out = []
    for i, entry in enumerate(registry(model).entries):
        buft = entry.default_buffer_type
        out.append(RegisteredInfo(i, entry.name, entry.init_name, buft.name, buft.alignment, buft.slack))
    return out


def _device_file(model: Model) -> str:
    from ggmltool.ggml.device import EMPTY_OPS, NO
    from ggmltool.ggml.devices.conditions import Supports
    from ggmltool.ggml.devices.written_rules import profile_rules
    from ggmltool.scenario.device_files import device_map
    from ggmltool.scenario.dump import op_names
    from ggmltool.scenario.engine import make_backends, make_bufts
    from ggmltool.scenario.releases import PARTS
    from ggmltool.scenario.support_rules import dump_supports
    from ggmltool.views.reference.device_file import DeviceFacts, device_yaml

    facts = []
    profiles = PARTS[model.ggml].profiles()
    for spec, backend in zip(model.backends, make_backends(model, make_bufts(model)), strict=True):
        profile, table = profiles[spec.profile], backend.device.table
        lacks = {key for key, answer in enumerate(table) if answer == NO}
        never, runs = op_names(lacks), op_names(set(range(len(table))) - lacks - set(EMPTY_OPS))
        key, ops = ("except", never) if len(never) <= len(runs) else ("only", runs)
        entry = device_map(spec)
        rules, others = ([], []) if spec.supports is not None else profile_rules(profile, table)
        if rules:
            entry["supports"] = dump_supports(Supports(frozenset(), True, tuple(rules), profile=True), op_names)
        told = (profile.description, profile.ggml, profile.leaves_out, key, ops, op_names(others))
        facts.append(DeviceFacts(entry, *told))
    return device_yaml(facts)


def _profile(p: Profile) -> ProfileInfo:
    return ProfileInfo(p.name, p.type, p.names, p.ggml, p.description, p.leaves_out)


def _engine(who: Computing) -> EngineInfo:
    gpu = who.gpu
    if gpu is None:
        return EngineInfo(refusal=who.refusal)
    return EngineInfo("cupy", gpu.number, gpu.name, *gpu.get_memory())


def _backend(
    spec: BackendSpec, profile: Profile, backend: Backend, engine: EngineInfo, bufts: list[BufferType]
) -> BackendInfo:
    from ggmltool.ggml.devices.profiles import CAPS

    device = backend.device
    has = profile.caps | ({"events"} if device.events else set())
    return BackendInfo(
        backend.name,
        _profile(profile),
        device.type,
        device.memory,
        {cap: cap in has for cap in CAPS if cap in profile.known_caps},
        device.buft.name,
        tuple(t.name for t in bufts if device.supports_buft(t)),
        device.offload_min_batch,
        _tables(profile.interface) if profile.interface is not None else None,
        tuple(f for f in profile.features if f in (profile.has if spec.features is None else spec.features)),
        profile.features,
        None if profile.graph_optimize is None else device.graph_optimize is not None,
        _max_tensor_size(spec, profile),
        engine,
    )


def _max_tensor_size(spec: BackendSpec, profile: Profile) -> int | None:
    from ggmltool.ggml.version import SIZE_MAX

    if spec.max_tensor_size is not None or profile.max_tensor_size == SIZE_MAX:
        return spec.max_tensor_size
    return profile.max_tensor_size


def _tables(interface: Interface) -> tuple[Table, ...]:
    return tuple(
        Table(t.kind, t.instance, tuple(Function(f, name, t.if_null(f)) for f, name in t.functions().items()))
        for t in interface.tables()
    )


def _buft(t: BufferType, backends: list[Backend]) -> BuftInfo:
    from ggmltool.ggml.devices.profiles import alloc_rule
    from ggmltool.ggml.op import KEY_NAMES

    ops = None if t.ops is None else tuple(KEY_NAMES[key].upper() for key in sorted(t.ops))
    users = tuple(b.name for b in backends if b.device.supports_buft(t))
    return BuftInfo(t.name, t.device, t.alignment, t.max_size, t.host, alloc_rule(t), ops, users)
