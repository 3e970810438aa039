"""Core dumps of random graphs: `python -m tests.attach.randomly --way core`.

A program keeps what every reserve and alloc of some seeds has left (`tests.attach.keeping`); gdb writes a core dump at
its end. What the dump says of each scheduler and its graph is compared with two plans:

- of the graph as the living program had it before the call, with what its devices answered then: all that is compared
  of a living program;
- after an alloc, of what `attach --core` makes of the dump alone. Nothing can be called in it, and these devices answer
  by Python: what they are and support is deduced of what they were given, and user assignments are where a plan would
  have a tensor elsewhere. So this says nothing of why a tensor is where it is, but all of splits, copies and memory.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ggmltool.ask.attach.verified import verify_written
from ggmltool.attach.calls import ALLOC, RESERVE, visit
from ggmltool.attach.end.ending import ended
from ggmltool.attach.gdb import program
from ggmltool.attach.reading import read_snapshot
from ggmltool.attach.session import AttachSession
from ggmltool.attach.state import left_by
from ggmltool.attach.write.written import decided
from tests.attach.randomly import Compared, Ran, Stopped, launched

BESIDE = " in a core, beside the plan of the living program"
ALONE = " in a core, as `attach --core` plans them"
LAST, END = "ggml_backend_sched_set_eval_callback", "ggml_backend_sched_free"
DUMPS = """
exec(compile(open({inside!r}).read(), {inside!r}, "exec"))
def do_dump(self, path):
    execute("generate-core-file " + path)
Server.do_dump = do_dump
"""
"""What runs in gdb: it can write cores, too."""


def dumped(arguments: Sequence[str]) -> Ran:
    """A program that keeps what it makes, dumped at its end, beside what it was at each call."""
    compared: list[Compared] = []
    with tempfile.TemporaryDirectory(prefix="ggmltool-cores-") as folder, _dumping(Path(folder)):
        core = Path(folder) / "core"
        with launched(arguments) as (session, out):
            left = list(_until_its_end(session))
            session.link.ask("dump", str(core))
            session.detach()
            status = session.wait()
            out.seek(0)
            output = out.read()
        with AttachSession.core(str(core), sys.executable) as session:
            version = left[0].visited.before.version
            session.mean(next(i for i in session.instances if i.version == version))
            for number, stop in enumerate(left):
                compared += _in_core(session, number, stop)
    return Ran(output, status, compared)


@contextmanager
def _dumping(folder: Path) -> Iterator[None]:
    """Every gdb can write cores."""
    inside = program._INSIDE
    program._INSIDE = folder / "inside.py"
    program._INSIDE.write_text(DUMPS.format(inside=str(inside)))
    try:
        yield
    finally:
        program._INSIDE = inside


def _until_its_end(session: AttachSession) -> Iterator[Stopped]:
    """The last call of each scheduler; the program stands where it would free one."""
    is_last = False
    while True:
        session.stop_at((*RESERVE, *ALLOC, LAST, END))
        function = session.function()
        if function == END:
            return
        if function == LAST:
            is_last = True
        elif is_last:
            is_last = False
            sched, graph = session.link.arguments()[:2]
            yield Stopped(function, sched, graph, visit(session))


def _in_core(session: AttachSession, number: int, stop: Stopped) -> Iterator[Compared]:
    before, made = stop.visited.before, stop.visited.written
    after = read_snapshot(session, stop.sched, stop.graph, before.function, "after")
    done = decided(after, made.ids, made.names, made.step, stop.visited.answers)
    left = left_by(before, after, made.names.backends)
    found = verify_written(made, done, left)
    yield Compared(number, stop.function, BESIDE, found, made.document)
    if after.sched.is_alloc:
        end = ended(session, stop.sched, stop.graph)
        assert end.written is not None
        assert end.decided is not None
        own = end.written
        yield Compared(number, stop.function, ALONE, verify_written(own, end.decided), own.document)
