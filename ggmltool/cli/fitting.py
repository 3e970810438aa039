"""llama.cpp's options of --fit: -fit, -fitt, -fitc, -fitp."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click
from click.core import ParameterSource

from ggmltool.inspect.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.ask.place.chosen import FitAsked
    from ggmltool.ask.place.options import Common
    from ggmltool.cli.model_options import ModelOptions
    from ggmltool.scenario.spec import ScenarioSpec

F = TypeVar("F", bound=Callable[..., Any])

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
