"""What `place` and `sweep` share: llama.cpp's options of placement, devices, and the text of what was asked."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click
from click.core import ParameterSource

from ggmltool.ask.place.options import Common, named_devices, read_margins
from ggmltool.cli.options import Pipeline, depth_option
from ggmltool.estimate.forecast import PROMPT
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.ask.place.chosen import FitAsked
    from ggmltool.cli.models import ModelOptions
    from ggmltool.scenario.spec import ScenarioSpec

F = TypeVar("F", bound=Callable[..., Any])


def _margins(ctx: click.Context, option: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        return read_margins(value)
    except InspectError as error:
        raise click.BadParameter(error.message, ctx, option) from None


def _complete_devices(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    from ggmltool.scenario.devices.rates import known_devices

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


_MOST_CTX = (1 << 31) - 1


class FitWanted(NamedTuple):
    """The options as they are given; `target` has the margins in bytes, () if it is left out."""

    on: bool
    target: tuple[int, ...]
    ctx: int | None
    prints: bool

    def layers(self, given: str) -> str:
        """-ngl, which --fit leaves to llama.cpp unless it stands on the line."""
        source = click.get_current_context().get_parameter_source("n_gpu_layers")
        return "auto" if self.on and source is ParameterSource.DEFAULT else given

    def check(self, fits: bool) -> None:
        """Raise click.UsageError for options that say nothing without --fit, and for two that exclude each other."""
        if self.prints and fits:
            raise click.UsageError("--fit-print prints what the given options need; leave out --fit and -ngl auto")
        for name, given in (("--fit-target", bool(self.target)), ("--fit-ctx", self.ctx is not None)):
            if given and not fits:
                raise click.UsageError(f"{name} belongs to --fit (or -ngl auto)")

    def common(self, common: Common) -> Common:
        """With the margins of --fit-target. Raises click.UsageError if --margin says them, too."""
        if not self.target:
            return common
        source = click.get_current_context().get_parameter_source("margin")
        if source is not ParameterSource.DEFAULT:
            raise click.UsageError("--margin and --fit-target say the same: what has to stay free; give one of them")
        return common._replace(margin=self.target)

    def n_ctx(self, wanted: ModelOptions) -> int:
        """-c, 0 if it is left out."""
        return wanted.ctx_size[0] if wanted.ctx_size else 0

    def flash_auto(self, wanted: ModelOptions) -> bool:
        """Whether flash attention is left to llama.cpp."""
        return wanted.flash_attn in ((), ("auto",))

    def asked(self, wanted: ModelOptions, model: ScenarioSpec, name: str | None) -> FitAsked:
        """What --fit is asked for. A capture has the context that it has; -c 0 asks for the model's own in full."""
        from ggmltool.ask.place.chosen import FitAsked
        from ggmltool.sources.llama.model_file import is_model
        from ggmltool.sources.llama.own_fit.records import FULL_CTX, MIN_CTX

        n_ctx = self.n_ctx(wanted)
        least = MIN_CTX if self.ctx is None else self.ctx
        if wanted.ctx_size and not n_ctx and self.ctx is None:
            least = FULL_CTX
        if name is None or not is_model(Path(name)):
            told = model.meta.get("n_ctx")
            n_ctx = told if isinstance(told, int) else 0
        return FitAsked(n_ctx, least, self.flash_auto(wanted))


def _target(ctx: click.Context, option: click.Parameter, value: str | None) -> tuple[int, ...]:
    from ggmltool.ask.place.chosen import read_fit_target

    try:
        return () if value is None else read_fit_target(value)
    except InspectError as error:
        raise click.BadParameter(error.message, ctx, option) from None


def fit_options(command: F) -> F:
    """The options, together the parameter `fit`, a FitWanted."""

    @wraps(command)
    def with_fit(*args: object, **kwargs: Any) -> object:
        names = {"on": "fit", "target": "fit_target", "ctx": "fit_ctx", "prints": "fit_print"}
        given = {field: kwargs.pop(name) for field, name in names.items()}
        return command(*args, fit=FitWanted(**given), **kwargs)

    options = (
        click.option(
            "-fit", "--fit", is_flag=True,
            help="Let llama.cpp choose what is not given (-ngl, -ts, -ot, -c of a MODEL.gguf), as its --fit does on "
                 "these devices; show its search in its own words.",
        ),
        click.option(
            "-fitt", "--fit-target", metavar="MiB0,MiB1,…", callback=_target,
            help="With --fit: MiB that must stay free on each GPU, or one number for all (default: 1024).",
        ),
        click.option(
            "-fitc", "--fit-ctx", type=click.IntRange(0, _MOST_CTX), metavar="N",
            help="With --fit: the shortest context that it may set (default: 4096; -c 0: the model's own).",
        ),
        click.option(
            "-fitp", "--fit-print", is_flag=True,
            help="Print only what llama-fit-params -fitp on prints: MiB of weights, caches, compute buffers by device.",
        ),
    )  # fmt: skip
    wrapped = cast(F, with_fit)
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped
