"""The kind of command all of ours are: the options that each of them has, wherever on the line they stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click


@dataclass(slots=True)
class Settings:
    """What the common options say. `color` is auto, always or never; `verbosity` -1 for quiet, 1 for verbose."""

    color: str = "auto"
    traceback: bool = False
    verbosity: int = 0


def settings(ctx: click.Context) -> Settings:
    """The settings of this call, one object for the group and its command."""
    root = ctx.find_root()
    if not isinstance(root.obj, Settings):
        root.obj = Settings()
    return root.obj


def current_settings() -> Settings:
    """The common options of the command that runs now."""
    ctx = click.get_current_context(silent=True)
    return settings(ctx) if ctx is not None else Settings()


def _setting(name: str, given: object = None) -> Callable[[click.Context, click.Parameter, Any], None]:
    """What keeps an option's value, or what is `given` by it, as this setting."""

    def keep(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value:
            setattr(settings(ctx), name, value if given is None else given)

    return keep


def common_options() -> list[click.Option]:
    """--color, --verbose, --quiet and --traceback: fresh objects for one command."""
    return [
        click.Option(
            ["--color"],
            type=click.Choice(["auto", "always", "never"]),
            expose_value=False,
            callback=_setting("color"),
            envvar="GGMLTOOL_COLOR",
            help="When to use colors (default: auto, on a terminal unless NO_COLOR is set).",
        ),
        click.Option(
            ["-v", "--verbose"],
            is_flag=True,
            expose_value=False,
            callback=_setting("verbosity", 1),
            envvar="GGMLTOOL_VERBOSE",
            help="Also show what ggml logs, on standard error.",
        ),
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=_setting("verbosity", -1),
            envvar="GGMLTOOL_QUIET",
            help="Print only results and errors.",
        ),
        click.Option(
            ["--traceback"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_setting("traceback"),
            envvar="GGMLTOOL_TRACEBACK",
            help="Show Python's traceback if there is an error.",
        ),
    ]


class Command(click.Command):
    """A command with the common options at its end; a number in its help is N."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for param in self.params:
            if isinstance(param.type, click.IntRange | click.FloatRange) and param.metavar is None:
                param.metavar = "N"
        self.params.extend(common_options())


class Group(click.Group):
    """A group with the common options at its end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(common_options())
