"""What `attach` does with the calls that it saw in a program: the scenario that is saved, the plan beside it."""

from __future__ import annotations

from dataclasses import replace
from signal import Signals
from typing import TYPE_CHECKING, Any

import click

from ggmltool.cli.output import Output, note
from ggmltool.show.text import harmless

if TYPE_CHECKING:
    from ggmltool.attach.calls import Visited
    from ggmltool.attach.session import Session
    from ggmltool.attach.write.written import Written
    from ggmltool.inspect.attached.verified import Verified


def save(document: dict[str, Any], output: Output, redact: bool, n: int = 1) -> None:
    """Write the nth scenario; those behind the first have their number in the file's name: x.json.gz, x-2.json.gz.
    Raises AttachError for one that cannot be loaded."""
    from ggmltool.attach.write.redacted import redacted
    from ggmltool.attach.write.written import scenario_file

    numbered(output, n).write(scenario_file(redacted(document) if redact else document))


def numbered(output: Output, n: int) -> Output:
    """The file of the nth scenario."""
    if n == 1 or output.path is None:
        return output
    stem, dot, endings = output.path.name.partition(".")
    return replace(output, path=output.path.with_name(f"{stem}-{n}{dot}{endings}"))


def verified(visited: Visited) -> Verified:
    """What the program decided in a call beside our plan of it."""
    from ggmltool.attach.write.written import GRAPH
    from ggmltool.inspect.attached.verified import verify

    made: Written = visited.written
    return verify(made.document, GRAPH, made.step, visited.decided, made.notes, visited.left)


def goes_on(session: Session, failed: Exception | None = None) -> None:
    """Say that the program goes on and what `failed`, wait for one that was started here, and say how it ended."""
    if not session.ended:
        note(f"{session.name} goes on; it stood still for {session.stood_still:.2f} s")
    if failed is not None:
        click.echo(harmless(f"Error: {failed}"), err=True)
    status = session.wait()
    if status and not session.ended:
        how = f"by {Signals(-status).name}" if status < 0 else f"with status {status}"
        note(f"{session.name} ended {how}")
