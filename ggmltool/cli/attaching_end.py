"""`attach --until-abort` and `attach --core`: the end of a program explained, and its graph saved."""

from __future__ import annotations

from dataclasses import replace
from signal import Signals
from typing import TYPE_CHECKING, NoReturn

from ggmltool.cli.attached import save
from ggmltool.cli.errors import FINE, GGML_FAILED
from ggmltool.cli.output import Output, note

if TYPE_CHECKING:
    from ggmltool.attach.end.ending import Ended
    from ggmltool.attach.session import Session
    from ggmltool.inspect.attached.verified import Verified


def until_end(session: Session, timeout: float | None) -> NoReturn:
    """Let the program run until it ends, and remember the scheduler that it called last. Raises Dies, and AttachError
    where it ends otherwise."""
    from ggmltool.attach.end.ending import CALLS
    from ggmltool.attach.errors import AttachError, Dies

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


def ended_of_core(session: Session) -> Ended:
    """How the program of a core dump ended. Raises AttachError, with what is the matter with the dump."""
    from ggmltool.attach.end.ending import ended
    from ggmltool.attach.errors import AttachError

    try:
        return ended(session)
    except AttachError as error:
        said = [str(error).rstrip("."), *(f"{remark[:1].upper()}{remark[1:]}" for remark in session.remarks)]
        raise AttachError(". ".join(said), error.refused) from None


def tell_end(session: Session, end: Ended, output: Output, redact: bool, json: bool) -> int:
    """What the end of a program means, and its graph as a scenario where -o names a file; the exit status."""
    from ggmltool.inspect.attached.abort import explain_end
    from ggmltool.views.attach.abort import abort_view
    from ggmltool.views.attach.end_documents import EndDocument
    from ggmltool.views.attach.verified import verified_view

    status = session.wait()
    facts, found, out = explain_end(end), _verified(end), Output(aside=session.launched is not None and not json)
    facts = replace(facts, notes=(*session.remarks, *facts.notes))
    if json:
        out.write_document(EndDocument.of(session.instance.release.name, session.name, facts))
    else:
        text = abort_view(facts, session.name, out.style)
        if found is not None:
            text += "\n" + verified_view(found, "What its scheduler had decided", out.style)
        out.write(text)
    if status < 0:
        note(f"{session.name} ended by {Signals(-status).name}")
    if output.path is not None and end.written is None:
        note(f"no scenario was written: {end.without}")
    elif output.path is not None and end.written is not None:
        save(end.written.document, output, redact)
    return GGML_FAILED if facts.died or (found is not None and not found.same) else FINE


def _verified(end: Ended) -> Verified | None:
    """What its scheduler had decided beside our plan of the same scenario, of a graph that was allocated."""
    from ggmltool.attach.write.written import GRAPH
    from ggmltool.inspect.attached.verified import verify

    made = end.written
    if made is None or end.decided is None:
        return None
    return verify(made.document, GRAPH, made.step, end.decided, made.notes)
