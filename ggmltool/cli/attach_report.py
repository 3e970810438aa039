"""What `attach` reports of a program: its calls, each as soon as it was seen, the views of --show, its end; what it
saves."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import wraps
from signal import Signals
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, TypeVar, cast

import click

from ggmltool.cli.errors import FINE, GGML_FAILED, CliError
from ggmltool.cli.output import Output, note
from ggmltool.show.text import harmless

if TYPE_CHECKING:
    from ggmltool.ask.attach.calls import AttachedCall
    from ggmltool.ask.attach.live import WantedView
    from ggmltool.ask.attach.verified import AttachVerifyDocument
    from ggmltool.attach.calls import Called, Visited
    from ggmltool.attach.end.ending import Ended
    from ggmltool.attach.session import AttachSession
    from ggmltool.attach.state import Snapshot


def save(document: dict[str, Any], output: Output, redact: bool, n: int = 1) -> None:
    """Write the nth scenario; those behind the first have their number in the file's name: x.json.gz, x-2.json.gz.
    Raises AttachError for one that cannot be loaded."""
    from ggmltool.attach.write.written import redacted, scenario_file

    numbered(output, n).write(scenario_file(redacted(document) if redact else document))


def numbered(output: Output, n: int) -> Output:
    """The file of the nth scenario."""
    if n == 1 or output.path is None:
        return output
    stem, dot, endings = output.path.name.partition(".")
    return replace(output, path=output.path.with_name(f"{stem}-{n}{dot}{endings}"))


def verified(visited: Visited) -> AttachVerifyDocument:
    """What the program decided in a call beside our plan of it."""
    from ggmltool.ask.attach.verified import verify_written

    return verify_written(visited.written, visited.decided, visited.left)


def goes_on(session: AttachSession, failed: Exception | None = None) -> None:
    """Say that the program goes on and what `failed`, wait for one that was started here, and say how it ended."""
    if not session.ended:
        note(f"{session.name} goes on; it stood still for {session.stood_still:.2f} s")
    if failed is not None:
        click.echo(harmless(f"Error: {failed}"), err=True)
    status = session.wait()
    if status and not session.ended:
        how = f"by {Signals(-status).name}" if status < 0 else f"with status {status}"
        note(f"{session.name} ended {how}")


F = TypeVar("F", bound=Callable[..., Any])


class ViewsAsked(NamedTuple):
    """Which views are asked for, and of which moment."""

    views: list[WantedView]
    when: Literal["before", "after"]

    def check(self, *, values: bool, verify: bool) -> None:
        """Raises UsageError for options that do not go together."""
        if self.views and (values or verify):
            raise click.UsageError("--show is for the scheduler as it is: leave --verify, --values and --compare out.")
        if self.when == "before" and not self.views:
            raise click.UsageError("--before is for --show.")

    def write(self, session: AttachSession, taken: list[tuple[int, Snapshot]]) -> None:
        """Calls with their numbers, as JSON. Raises CliError for a tensor that is not there."""
        from ggmltool.ask.attach.live import NoViewError, live_call
        from ggmltool.ask.attach.records import AttachViewsDocument, NamedSnapshot, session_facts

        try:
            calls = [live_call(number, NamedSnapshot(snapshot), self.views) for number, snapshot in taken]
        except NoViewError as error:
            raise CliError(str(error)) from None
        Output().write_document(AttachViewsDocument(calls=calls, **session_facts(session)))

    def show(self, taken: list[tuple[int, Snapshot]], out: Output) -> None:
        """The same as text."""
        from ggmltool.ask.attach.live import NoViewError, shown
        from ggmltool.ask.attach.records import NamedSnapshot
        from ggmltool.show.table import heading, render_lines

        for number, snapshot in taken:
            try:
                text = shown(NamedSnapshot(snapshot), self.views, out.style)
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
        views: list[WantedView] = []
        if show:
            from ggmltool.ask.attach.live import NoViewError, wanted

            try:
                views = [one for text in show for one in wanted(text)]
            except NoViewError as error:
                raise click.BadParameter(str(error), param_hint="--show") from None
        return command(*args, views=ViewsAsked(views, "before" if before else "after"), **kwargs)

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


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The views; the names of nodes are known when the program stops, and not before."""
    from ggmltool.ask.attach.live import OF_TENSOR, PLAIN

    return [view for view in (*PLAIN, *(f"{view} " for view in OF_TENSOR)) if view.startswith(incomplete)]


@dataclass(frozen=True, slots=True)
class SeenCall:
    """A call that was looked at. `visited` is None where no device was asked; `snapshot` is what --show shows."""

    called: Called
    visited: Visited | None
    snapshot: Snapshot


class CallReporter:
    """Reports calls in order from a background thread, so that the program is not stopped meanwhile.

    What a program that was started here prints is on standard output until it ends; JSON waits for that.
    """

    def __init__(
        self,
        session: AttachSession,
        views: ViewsAsked,
        output: Output,
        *,
        json: bool,
        verify: bool,
        redact: bool,
        one: bool,
    ) -> None:
        self._session = session
        self._views = views
        self._output = output
        self._json = json
        self._verify = verify
        self._redact = redact
        self._one = one
        self._aside = Output(aside=session.launched is not None)
        self._context = click.get_current_context()
        self._pool = ThreadPoolExecutor(1)
        self._told: list[Future[None]] = []
        self._calls: list[AttachedCall] = []
        self._shown: list[tuple[int, Snapshot]] = []
        self._found: list[AttachVerifyDocument] = []
        self.written = 0

    def call(self, seen: SeenCall) -> None:
        """A call was seen. Raises what went wrong with one before."""
        for told in self._told:
            if told.done():
                told.result()

        def with_context() -> None:
            with self._context.scope(cleanup=False):
                self._tell(seen)

        self._told.append(self._pool.submit(with_context))

    def wait(self) -> None:
        """Until all is said. Raises what went wrong."""
        self._pool.shutdown()
        for told in self._told:
            told.result()

    def finish(self) -> bool:
        """JSON of all calls, when the program has standard output no more; whether all did what their plans say."""
        if self._json and self._views.views:
            self._views.write(self._session, self._shown)
        elif self._json and self._verify:
            if self._session.launched is not None:
                for found in self._found:
                    Output().write_document(found)
        elif self._json and self._calls:
            from ggmltool.ask.attach.calls import AttachedDocument
            from ggmltool.ask.attach.records import session_facts

            Output().write_document(AttachedDocument(calls=self._calls, **session_facts(self._session)))
        return all(found.same for found in self._found)

    def _tell(self, seen: SeenCall) -> None:
        if self._views.views:
            self._shown.append((seen.called.number, seen.snapshot))
            if not self._json:
                self._views.show(self._shown[-1:], self._aside)
        elif seen.visited is not None:
            self._summary(seen.called, seen.visited)
        if seen.visited is None:
            return
        if self._output.path is not None:
            self.written += 1
            save(seen.visited.written.document, self._output, self._redact, self.written)
        if self._verify:
            self._verdict(seen.called, seen.visited)

    def _summary(self, called: Called, visited: Visited) -> None:
        from ggmltool.ask.attach.calls import AttachedCall, call_view, process_view
        from ggmltool.ask.attach.records import Process

        before = self._calls[-1] if self._calls else None
        call = AttachedCall.of(called, visited.before, visited.after)
        self._calls.append(call)
        if not self._json:
            style = self._aside.style
            top = process_view(Process.of(self._session), style) if before is None else ""
            self._aside.write(top + call_view(call, before, style))

    def _verdict(self, called: Called, visited: Visited) -> None:
        from ggmltool.ask.attach.verified import verified_view

        found = verified(visited)
        self._found.append(found)
        if not self._json:
            title = self._session.name if self._one else f"{self._session.name}, call {called.number}"
            self._aside.write(verified_view(found, title, self._aside.style))
        elif self._session.launched is None:
            Output().write_document(found)


def until_end(session: AttachSession, timeout: float | None) -> NoReturn:
    """Let the program run until it ends, and remember the scheduler that it called last. Raises Dies, and AttachError
    where it ends otherwise."""
    from ggmltool.attach.end.ending import CALLS
    from ggmltool.attach.gdb.link import Dies
    from ggmltool.state.errors import AttachError

    while True:
        try:
            session.stop_at(CALLS, timeout)
        except Dies:
            raise
        except AttachError as error:
            if session.ended:
                raise AttachError(f"{session.name} {session.ended}, by no abort", refused=True) from None
            raise AttachError(str(error), error.refused) from None
        sched, graph = session.link.arguments()[:2]
        session.entered = sched, graph


def tell_end(session: AttachSession, end: Ended, output: Output, redact: bool, json: bool) -> int:
    """What the end of a program means, and its graph as a scenario where -o names a file; the exit status."""
    from ggmltool.ask.attach.end import abort_view, explain_end
    from ggmltool.ask.attach.verified import verified_view, verify_written

    status = session.wait()
    facts, found, made = explain_end(end), None, end.written
    if made is not None and end.decided is not None:
        # What its scheduler had decided beside our plan of the same scenario, of a graph that was allocated.
        found = verify_written(made, end.decided)
    out = Output(aside=session.launched is not None and not json)
    if json:
        out.write_document(facts)
    else:
        text = abort_view(facts, session.name, out.style)
        if found is not None:
            text += "\n" + verified_view(found, "What its scheduler had decided", out.style)
        out.write(text)
    if status < 0:
        note(f"{session.name} ended by {Signals(-status).name}")
    if output.path is not None and made is None:
        note(f"no scenario was written: {end.without}")
    elif output.path is not None and made is not None:
        save(made.document, output, redact)
    return GGML_FAILED if facts.died or (found is not None and not found.same) else FINE
