"""What `attach --show` does: the live views of a program's scheduler and allocator, as text and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

import click

from ggmltool.cli.errors import CliError
from ggmltool.cli.output import Output

if TYPE_CHECKING:
    from ggmltool.attach.end.ending import Ended
    from ggmltool.attach.session import Session
    from ggmltool.attach.state import Snapshot
    from ggmltool.views.attach.shown import Wanted

F = TypeVar("F", bound=Callable[..., Any])


class ViewsAsked(NamedTuple):
    """Which views are asked for, and of which moment."""

    views: list[Wanted]
    when: Literal["before", "after"]

    def check(self, *, values: bool, verify: bool) -> None:
        """Raises UsageError for options that do not go together."""
        if self.views and (values or verify):
            raise click.UsageError("--show is for the scheduler as it is: leave --verify, --values and --compare out.")
        if self.when == "before" and not self.views:
            raise click.UsageError("--before is for --show.")

    def tell_core(self, session: Session, end: Ended, json: bool) -> None:
        """Show what the scheduler of a core dump has. Raises CliError if there is none."""
        if end.snapshot is None:
            raise CliError(f"there is no graph to show: {end.without}")
        if json:
            self.write(session, [(1, end.snapshot)])
        else:
            self.show([(1, end.snapshot)], Output())

    def write(self, session: Session, taken: list[tuple[int, Snapshot]]) -> None:
        """Calls with their numbers, as JSON. Raises CliError for a tensor that is not there."""
        from ggmltool.inspect.attached.seen import Seen
        from ggmltool.views.attach.live_documents import AttachViewsDocument, live_call
        from ggmltool.views.attach.shown import NoViewError, asked

        seen = [(number, Seen(snapshot)) for number, snapshot in taken]
        try:
            calls = [live_call(number, one, asked(one, self.views)) for number, one in seen]
        except NoViewError as error:
            raise CliError(str(error)) from None
        Output().write_document(AttachViewsDocument.of(session, calls))

    def show(self, taken: list[tuple[int, Snapshot]], out: Output) -> None:
        """The same as text."""
        from ggmltool.inspect.attached.seen import Seen
        from ggmltool.show.table import heading, render_lines
        from ggmltool.views.attach.shown import NoViewError, shown

        for number, snapshot in taken:
            try:
                text = shown(Seen(snapshot), self.views, out.style)
            except NoViewError as error:
                raise CliError(str(error)) from None
            if snapshot.when != "within":
                facts = [*snapshot.unread, f"{snapshot.when} the call"]
                top = heading(f"call {number}: {snapshot.function}", facts, out.style)
                text = top + render_lines([""], out.style) + text
            out.write(text)


def views_options(command: F) -> F:
    """--show and --before: together the parameter `views`, a ViewsAsked."""

    @wraps(command)
    def with_views(*args: object, show: tuple[str, ...], before: bool, **kwargs: object) -> object:
        return command(*args, views=ViewsAsked(_wanted(show), "before" if before else "after"), **kwargs)

    options = (
        click.option(
            "--show",
            multiple=True,
            metavar="VIEW",
            shell_complete=_complete,
            help="Show what the scheduler and its allocator have: splits, hash, 'hash --sched', allocs, buffers, graph "
            "(several parted by commas), 'tensor NODE' or 'lifetime NODE'. May be given more than once.",
        ),
        click.option("--before", is_flag=True, help="With --show: as it is before the call, not after it."),
    )
    out: Callable[..., Any] = with_views
    for option in reversed(options):
        out = option(out)
    return cast(F, out)


def _wanted(texts: tuple[str, ...]) -> list[Wanted]:
    if not texts:
        return []
    from ggmltool.views.attach.shown import NoViewError, wanted

    try:
        return [one for text in texts for one in wanted(text)]
    except NoViewError as error:
        raise click.BadParameter(str(error), param_hint="--show") from None


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The views; the names of nodes are known when the program stops, and not before."""
    from ggmltool.views.attach.shown import OF_TENSOR, PLAIN

    return [view for view in (*PLAIN, *(f"{view} " for view in OF_TENSOR)) if view.startswith(incomplete)]
