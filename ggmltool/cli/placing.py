"""What `place` and `sweep` share: llama.cpp's options of placement, devices, and the text of what was asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from ggmltool.cli.errors import CliError
from ggmltool.cli.output import note
from ggmltool.views.text import count, printable

if TYPE_CHECKING:
    from ggmltool.scenario.model import BackendSpec, Model
    from ggmltool.sources.llama.layers import PlaceOptions
    from ggmltool.sources.llama.overrides import Override

DEFAULT_MARGIN = (1 << 30,)
"""What --fit-target of llama.cpp is where nobody says more."""

AUTO_SPLIT = "auto"
"""-ts that is searched."""

F = TypeVar("F", bound=Callable[..., Any])


class Common(NamedTuple):
    """The options that hold for every placement; `margin` is what has to stay free, a number for each GPU or one."""

    margin: tuple[int, ...]
    device: tuple[str, ...]
    split_mode: Any
    main_gpu: int
    cpu_moe: bool
    no_kv_offload: bool
    no_op_offload: bool
    no_repack: bool
    parallel: bool | None


def _margins(ctx: click.Context, option: click.Parameter, value: str) -> tuple[int, ...]:
    """Sizes by commas; 0 needs no unit."""
    from ggmltool.scenario.errors import Mistake
    from ggmltool.scenario.values import as_size

    out = []
    for part in map(str.strip, value.split(",")):
        if part.isdecimal() and part.strip("0"):
            raise click.BadParameter(f"{part} has no unit: {part}MiB, or 0 for no margin", ctx, option)
        try:
            out.append(as_size(part, "a margin"))
        except Mistake as mistake:
            raise click.BadParameter(f"{part!r} is not a size, e.g. 1GiB or 512MiB", ctx, option) from mistake
    return tuple(out)


def _complete_devices(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in ("CUDA0:24GiB", "CUDA1:24GiB", "CPU:64GiB") if name.startswith(incomplete)]


def common_options(command: F) -> F:
    """Devices and llama.cpp's options, together the parameter `common`, a Common."""

    @wraps(command)
    def with_common(*args: object, **kwargs: Any) -> object:
        common = Common(**{name: kwargs.pop(name) for name in Common._fields})
        return command(*args, common=common, **kwargs)

    options = (
        click.option(
            "--device", metavar="DEVICE", multiple=True, shell_complete=_complete_devices,
            help="A device as NAME or NAME:MEMORY, where MEMORY is what is free on it: CUDA0:24GiB. Several are "
                 "separated by commas, or the option is repeated; none: no GPU. Default: the scenario's GPUs, else "
                 "CUDA0.",
        ),
        click.option(
            "--margin", metavar="SIZE[,…]", default="1GiB", show_default=True, callback=_margins,
            help="Memory that must stay free on each GPU (without a GPU: on the CPU), or a size for each GPU, as "
                 "llama.cpp's --fit keeps it: for the driver's context, runtime pools and whatever else no plan has.",
        ),
        click.option(
            "-sm", "--split-mode", type=click.Choice(["layer", "none"]), default="layer", show_default=True,
            help="Split the layers across GPUs, or put all on the main GPU.",
        ),
        click.option("-mg", "--main-gpu", type=click.IntRange(0), metavar="N", default=0, help="The GPU for -sm none."),
        click.option("-cmoe", "--cpu-moe", is_flag=True, help="Keep the experts of all layers on the CPU."),
        click.option("-nkvo", "--no-kv-offload", is_flag=True, help="Keep the KV cache on the CPU."),
        click.option("--no-op-offload", is_flag=True, help="Do not offload ops whose weights are on the CPU."),
        click.option(
            "-nr", "--no-repack", is_flag=True, help="Do not use the CPU's extra buffer types (repacking)."
        ),
        click.option(
            "--parallel/--no-parallel", default=None,
            help="Pipeline copies, or none (default: as llama.cpp decides).",
        ),
    )  # fmt: skip
    wrapped = cast(F, with_common)
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


def read_layers(text: str) -> int:
    """-ngl: a number, or `all`. Raises click.BadParameter."""
    if text == "all":
        return -1
    if text == "auto":
        raise click.BadParameter("auto is not supported; `ggmltool sweep` finds what fits", param_hint="'-ngl'")
    if not text.isdecimal() or len(text) > 6:
        raise click.BadParameter(f"{text!r} is not a number of layers, nor all", param_hint="'-ngl'")
    return int(text)


def read_split(text: str) -> tuple[float, ...]:
    """-ts: shares, by commas (llama.cpp also takes slashes). Raises click.BadParameter."""
    try:
        shares = tuple(float(part) for part in text.replace("/", ",").split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of numbers, e.g. 3,1", param_hint="'-ts'") from None
    if not all(0 <= share < float("inf") for share in shares) or not any(shares):
        raise click.BadParameter(f"{text!r}: shares must not be negative, nor all 0", param_hint="'-ts'")
    return shares


def overrides(texts: Sequence[str], n_cpu_moe: int, cpu_moe: bool) -> tuple[Override, ...]:
    """What -ot, --cpu-moe and --n-cpu-moe override, in this order. Raises CliError."""
    from ggmltool.sources.llama import overrides as rules
    from ggmltool.sources.llama.errors import PlaceError

    try:
        out = [override for text in texts for override in rules.parse_overrides(text)]
    except PlaceError as error:
        raise CliError(f"-ot: {error}") from None
    return (*out, *([rules.cpu_moe()] if cpu_moe else []), *rules.n_cpu_moe(n_cpu_moe))


def options_of(
    model: Model, common: Common, n_gpu_layers: int, tensor_split: tuple[float, ...], overridden: tuple[Override, ...]
) -> PlaceOptions:
    """The options of one placement."""
    from ggmltool.sources.llama.layers import PlaceOptions

    return PlaceOptions(
        n_gpu_layers=n_gpu_layers,
        split_mode=common.split_mode,
        main_gpu=common.main_gpu,
        tensor_split=tensor_split,
        overrides=overridden,
        offload_kqv=not common.no_kv_offload and model.meta.get("offload_kqv") is not False,
        op_offload=not common.no_op_offload,
        parallel=common.parallel,
        extra_bufts=not common.no_repack,
    )


def devices_of(model: Model, common: Common, n_split: int) -> list[BackendSpec]:
    """The devices to place on: those named, else the scenario's, else as many GPUs as -ts has shares.

    Raises CliError.
    """
    from ggmltool.ggml.devices.profiles import PROFILES
    from ggmltool.scenario.backends import NO_DEVICE, read_devices
    from ggmltool.scenario.errors import Mistake

    if not common.device and any((b.type or PROFILES[b.profile].type) in ("gpu", "igpu") for b in model.backends):
        return list(model.backends)
    if [name.strip() for name in common.device] == [NO_DEVICE] and _cpu(model):
        return _cpu(model)
    try:
        made = read_devices(common.device or [f"CUDA{i}" for i in range(max(n_split, 1))])
    except Mistake as mistake:
        raise CliError(f"--device: {mistake.message}" + (f"; {mistake.expected}" if mistake.expected else "")) from None
    for unknown in (b.name for b in made if b.profile == "custom" and b.supports is None):
        note(f"{printable(unknown)} is not a known device (see `ggmltool backends`): it is assumed to support every op")
    n_gpus = sum((b.type or PROFILES[b.profile].type) in ("gpu", "igpu") for b in made)
    if n_split > n_gpus:
        raise CliError(f"-ts has {n_split} shares for {count(n_gpus, 'GPU')}; name every GPU with --device")
    return made if any((b.type or PROFILES[b.profile].type) == "cpu" for b in made) else [*made, *_cpu(model)]


def _cpu(model: Model) -> list[BackendSpec]:
    from ggmltool.ggml.devices.profiles import PROFILES

    return [b for b in model.backends if (b.type or PROFILES[b.profile].type) == "cpu"][-1:]


def _exact(nbytes: int) -> str:
    """A size in the largest unit that leaves it whole."""
    units = (("GiB", 30), ("MiB", 20), ("KiB", 10))
    whole = next((f"{nbytes >> k}{unit}" for unit, k in units if not nbytes % (1 << k)), f"{nbytes}B")
    return whole if nbytes else "0"


def asked(common: Common, **given: str) -> str:
    """The options as one would write them again: `given` by name, then what differs from its default."""
    words = [f"{name} {value}" for name, value in given.items() if value]
    words += [f"-sm none -mg {common.main_gpu}"] if common.split_mode == "none" else []
    flags = (("--cpu-moe", common.cpu_moe), ("-nkvo", common.no_kv_offload), ("--no-op-offload", common.no_op_offload))
    words += [name for name, on in (*flags, ("--no-repack", common.no_repack)) if on]
    if common.margin != DEFAULT_MARGIN:
        words.append(f"--margin {','.join(map(_exact, common.margin))}")
    if common.parallel is not None:
        words.append("--parallel" if common.parallel else "--no-parallel")
    return " ".join(words)
