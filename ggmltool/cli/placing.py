"""What `place` and `sweep` share: llama.cpp's options of placement, devices, and the text of what was asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

import click

from ggmltool.ask.place.options import Common, named_devices, read_margins
from ggmltool.cli.options import Pipeline, depth_option
from ggmltool.estimate.forecast import PROMPT
from ggmltool.inspect.errors import InspectError

F = TypeVar("F", bound=Callable[..., Any])


def _margins(ctx: click.Context, option: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        return read_margins(value)
    except InspectError as error:
        raise click.BadParameter(error.message, ctx, option) from None


def _complete_devices(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    from ggmltool.scenario.devices.known import known_devices

    return [
        name for name in ("CUDA0:24GiB", "CUDA1:24GiB", "CPU:64GiB", *known_devices()) if name.startswith(incomplete)
    ]


def common_options(command: F) -> F:
    """Devices and llama.cpp's options, together the parameter `common`, a Common."""
    return _common_options(command, ())


def common_options_of_fit(command: F) -> F:
    """The same without those that `fit` has otherwise."""
    return _common_options(command, ("n_cpu_ffn", "parallel", "pipeline"))


def _common_options(command: F, without: Collection[str]) -> F:
    @wraps(command)
    def with_common(*args: object, **kwargs: Any) -> object:
        if "pipeline" in kwargs:
            kwargs["parallel"] = kwargs.pop("pipeline")
        common = Common(**{name: kwargs.pop(name) for name in Common._fields if name not in without})
        if common.device:
            named_devices(common.device)  # before a model is captured, which takes a while
        return command(*args, common=common, **kwargs)

    options = (
        click.option(
            "--device", metavar="DEVICE", multiple=True, shell_complete=_complete_devices,
            help="A device as NAME or NAME:MEMORY, where MEMORY is what is free on it: CUDA0:24GiB; or the name it is "
                 "sold under: RTX 3090, 2x RTX 3090, Vulkan0=RTX 3090:22GiB (`backends --rates` lists them); "
                 "here: this machine, measured; a file with what nvidia-smi or llama-server --list-devices prints. "
                 "Several are separated by commas, or the option is repeated; none: no GPU. Default: the scenario's "
                 "GPUs, else CUDA0.",
        ),
        click.option(
            "--margin", metavar="SIZE[,…]", default="1GiB", show_default=True, callback=_margins,
            help="Memory that must stay free on each GPU (without a GPU: on the CPU), or a size for each GPU, as "
                 "llama.cpp's --fit keeps it: for the driver's context, runtime pools and whatever else no plan has.",
        ),
        click.option(
            "-sm", "--split-mode", type=click.Choice(["layer", "row", "tensor", "none"]), default="layer",
            show_default=True,
            help="Split the layers across GPUs, or every tensor (tensor), or put all on the main GPU (none). row: the "
                 "rows of matrices, which today's llama.cpp refuses.",
        ),
        click.option("-mg", "--main-gpu", type=click.IntRange(0), metavar="N", default=0, help="The GPU for -sm none."),
        click.option("-cmoe", "--cpu-moe", is_flag=True, help="Keep the experts of all layers on the CPU."),
        click.option(
            "-ncffn", "--n-cpu-ffn", type=click.IntRange(0, 10_000), metavar="N", default=0,
            help="Keep the dense feed-forward weights of the first N layers on the CPU.",
        ),
        click.option(
            "-lzm", "--lazy-mode", type=click.Choice(["auto", "on", "off"]), default="auto", show_default=True,
            help="Read per-layer embeddings from the file as they are needed; they stay on the CPU then. auto: those "
                 "above 4 GiB.",
        ),
        click.option("-nkvo", "--no-kv-offload", is_flag=True, help="Keep the KV cache on the CPU."),
        click.option("--no-op-offload", is_flag=True, help="Do not offload ops whose weights are on the CPU."),
        click.option(
            "-nr", "--no-repack", is_flag=True, help="Do not use the CPU's extra buffer types (repacking)."
        ),
        click.option(
            " /--no-parallel", "--pipeline/--no-pipeline", "pipeline", cls=Pipeline, default=None,
            help="Pipeline copies, or none (default: as llama.cpp decides).",
        ),
        depth_option,
        click.option(
            "-p", "--n-prompt", type=click.IntRange(1, 1 << 30), metavar="N", default=PROMPT, show_default=True,
            help="Of estimated seconds: the tokens of a prompt.",
        ),
    )  # fmt: skip
    wrapped = cast(F, with_common)
    for option in reversed(options):
        wrapped = option(wrapped)
    params = cast(Any, wrapped).__click_params__
    own = len(options)
    params[-own:] = [param for param in params[-own:] if param.name not in without]
    return wrapped


@contextmanager
def value_of(option: str) -> Iterator[None]:
    """A wrong value of this option is wrong use."""
    try:
        yield
    except InspectError as error:
        raise click.BadParameter(error.message, param_hint=f"'{option}'") from None
