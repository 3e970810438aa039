"""gemma-3-270m's graphs in llama.cpp, with the model's real shapes: every call is planned as the program decided it.

    python -m tests.attach.gemma
    python -m tests.attach.gemma --library xllamacpp==2026.8.10566

The program is looked at from its start (all reserves, allocs and computes), as a process that is running, and in a core
dump. It prints the tokens that it prints alone. The weights are zeros, which take no room on the disk.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from ggmltool.ask.attach.verified import AttachVerifyDocument, verify_written
from ggmltool.attach.calls import ALLOC, COMPUTE, At, calls, visit
from ggmltool.attach.end.ending import ended as core_ended
from ggmltool.attach.session import AttachError, AttachSession
from tests.attach.programs import core_by_gdb, decoding, ended, environment, onto, output_of, started
from tests.sources.gguf_file import write_gguf
from tests.sources.real_models import REAL_MODELS

TOKENS = "2,818,5279,529,7001,563"


def main() -> int:
    """A line for each call; 1 if one differs, or the program printed something else."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="", metavar="PACKAGE", help="whose llama.cpp it is")
    options = parser.parse_args()
    os.environ.update(environment())
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ggmltool-gemma-") as folder:
        path = Path(folder) / "gemma.gguf"
        write_gguf(path, REAL_MODELS["gemma-270m"]())
        rest = ["--library", options.library]
        program = decoding(path, TOKENS, "-n", "3", *rest)
        wrong = sum(
            tell(how, found) for how, found in everything(program, decoding(path, TOKENS, "-n", "99999", *rest))
        )
        wrong += not prints_the_same(program)
    say(f"{'all equal' if not wrong else f'{wrong} differ'}; {time.perf_counter() - begun:.0f} s")
    return 1 if wrong else 0


def everything(program: list[str], endless: list[str]) -> Iterator[tuple[str, AttachVerifyDocument]]:
    """Every way to look at it, with what is found."""
    with silent(), AttachSession.launch(program) as session:
        for function, found in looked_at(session, "any"):
            yield f"from its start, {function}", found
        session.detach()
        session.wait()
    with started(endless, lines=1) as process:
        with AttachSession.attach(process.pid) as session:
            for function, found in islice(looked_at(session, None), 3):
                yield f"by its number, {function}", found
        ended(process)
    with AttachSession.core(str(core_by_gdb(program, COMPUTE[0])), program[0]) as session:
        end = core_ended(session)
    made = end.written
    if made is None or end.decided is None:
        raise AttachError(f"nothing decided in the core dump: {end.without}")
    yield "in a core dump", verify_written(made, end.decided)


def looked_at(session: AttachSession, at: At | None) -> Iterator[tuple[str, AttachVerifyDocument]]:
    """Every such call that comes, until the program ends."""
    try:
        for called in calls(session, at):
            seen = visit(session)
            yield called.function, verify_written(seen.written, seen.decided, seen.left)
    except AttachError:
        if not session.ended:
            raise


def prints_the_same(program: list[str]) -> bool:
    """Whether the program prints what it prints alone, with a stop in its midst."""
    status, alone, _ = output_of(program)
    with tempfile.TemporaryFile() as out:
        with onto(out.fileno()):
            session = AttachSession.launch(program)
        with session:
            session.stop_at(ALLOC)
            visit(session)
            session.detach()
            ends = session.wait()
        out.seek(0)
        same = (out.read(), ends) == (alone, status)
    say(f"{'the same' if same else 'NOT THE SAME'} output: {alone.decode().split()}")
    return same


@contextmanager
def silent() -> Iterator[None]:
    """What is started here prints nothing."""
    with open(os.devnull, "wb") as nothing, onto(nothing.fileno()):  # noqa: PTH123 - a file descriptor is wanted
        yield


def tell(how: str, found: AttachVerifyDocument) -> bool:
    """Print a line; whether it differs."""
    what = f"{found.fields} fields equal" if found.same else f"{found.different} DIFFER, first {found.first}"
    say(f"{how}: ggml {found.ggml}, {found.nodes} nodes, {found.splits} splits: {what}")
    return not found.same


def say(line: str) -> None:
    """A line on standard error, which no program here has."""
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
