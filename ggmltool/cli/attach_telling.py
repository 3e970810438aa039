"""What `attach` says of calls, each as soon as it was seen: its summary, its file, its verdict."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ggmltool.cli.attached import save, verified
from ggmltool.cli.output import Output

if TYPE_CHECKING:
    from ggmltool.attach.calls import Called, Visited
    from ggmltool.attach.session import Session
    from ggmltool.attach.state import Snapshot
    from ggmltool.cli.attaching_views import ViewsAsked
    from ggmltool.inspect.attached.verified import Verified
    from ggmltool.views.attach.documents import AttachedCall


@dataclass(frozen=True, slots=True)
class Seen:
    """A call that was looked at. `visited` is None where no device was asked; `snapshot` is what --show shows."""

    called: Called
    visited: Visited | None
    snapshot: Snapshot


class Telling:
    """Reports calls in order from a background thread, so that the program is not stopped meanwhile.

    What a program that was started here prints is on standard output until it ends; JSON waits for that.
    """

    def __init__(
        self, session: Session, views: ViewsAsked, output: Output, *, json: bool, verify: bool, redact: bool, one: bool
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
        self._found: list[Verified] = []
        self.written = 0

    def call(self, seen: Seen) -> None:
        """A call was seen. Raises what went wrong with one before."""
        for told in self._told:
            if told.done():
                told.result()
        self._submit(lambda: self._tell(seen))

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
                    self._document(found)
        elif self._json and self._calls:
            from ggmltool.views.attach.documents import AttachedDocument

            Output().write_document(AttachedDocument.of(self._session, self._calls))
        return all(found.same for found in self._found)

    def _submit(self, tell: Callable[[], None]) -> None:
        def with_context() -> None:
            with self._context.scope(cleanup=False):
                tell()

        self._told.append(self._pool.submit(with_context))

    def _tell(self, seen: Seen) -> None:
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
        from ggmltool.views.attach.documents import AttachedCall, Process
        from ggmltool.views.attach.summary import call_view, process_view

        before = self._calls[-1] if self._calls else None
        call = AttachedCall.of(called, visited.before, visited.after)
        self._calls.append(call)
        if not self._json:
            style = self._aside.style
            top = process_view(Process.of(self._session), style) if before is None else ""
            self._aside.write(top + call_view(call, before, style))

    def _verdict(self, called: Called, visited: Visited) -> None:
        from ggmltool.views.attach.verified import verified_view

        found = verified(visited)
        self._found.append(found)
        if not self._json:
            title = self._session.name if self._one else f"{self._session.name}, call {called.number}"
            self._aside.write(verified_view(found, title, self._aside.style))
        elif self._session.launched is None:
            self._document(found)

    @staticmethod
    def _document(found: Verified) -> None:
        from ggmltool.views.attach.verified import AttachVerifyDocument

        Output().write_document(AttachVerifyDocument.of(found))
