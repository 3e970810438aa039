"""`ggmltool attach`: a running program that uses ggml, looked at through gdb."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click
from click.core import ParameterSource

from ggmltool.cli.attach_report import (
    CallReporter,
    SeenCall,
    ViewsAsked,
    goes_on,
    numbered,
    save,
    tell_end,
    until_end,
    views_options,
)
from ggmltool.cli.attach_values import ValuesAsked, values_of, values_options
from ggmltool.cli.command import Command
from ggmltool.cli.errors import FINE, GGML_FAILED, WRONG_USE, CliError
from ggmltool.cli.options import format_option, output_to
from ggmltool.cli.output import Output, note

if TYPE_CHECKING:
    from ggmltool.attach.calls import At
    from ggmltool.attach.end.ending import Ended
    from ggmltool.attach.session import AttachSession

_PLACES = ("remote", "sysroot", "gdb_program")
_ALONE = {
    "gdb": ("It only prints a line for your own gdb, which has the program already.", ()),
    "core": (
        "A core dump stands still at its end.",
        ("output", "force", "redact", "format", "core", "show", "sysroot", "gdb_program"),
    ),
    "until_abort": (
        "It waits for the end of the program alone.",
        ("output", "force", "redact", "format", "timeout", *_PLACES),
    ),
}
"""Options that leave no room for others: why, and those that go with them."""

_FOR = {"tolerance": ("compare",), "worst": ("compare",), "max_bytes": ("values", "compare", "dump")}
"""Options that say more of others, and those."""

_COMMON = {"color", "verbose", "quiet", "traceback", "json", "words"}


class AttachCommand(Command):
    """`attach`, which says where options of the program go if they stand where ours do."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does it. Raises UsageError."""
        line = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            at = next((i for i, word in enumerate(line) if shutil.which(word)), None)
            if at is None or "--" in line or "--core" in line:
                raise
            better = shlex.join(["ggmltool", "attach", *line[:at], "--", *line[at:]])
            raise click.UsageError(
                f"No such option {error.option_name!r}. Options of the program stand behind `--`: {better}", ctx
            ) from None


def check_together(words: Sequence[str]) -> None:
    """Raises UsageError for options that say nothing where another one stands."""
    ctx = click.get_current_context()
    given = [
        p for p in ctx.command.params
        if p.name and p.name not in _COMMON and ctx.get_parameter_source(p.name) == ParameterSource.COMMANDLINE
    ]  # fmt: skip
    for name, (why, fit) in _ALONE.items():
        if all(p.name != name for p in given):
            continue
        idle = [p.opts[-1] for p in given if p.name not in (name, *fit)]
        if name == "gdb" and words:
            idle.append(shlex.join(words))
        if idle:
            raise click.UsageError(f"--{name.replace('_', '-')}: {why} Leave out {', '.join(idle)}.")
    names = {p.name for p in given}
    for name, others in _FOR.items():
        if name in names and not names.intersection(others):
            listed = " and ".join(f"--{other}" for other in others)
            raise click.UsageError(f"--{name.replace('_', '-')} is for {listed}.")
    if not words and not names & {"core", "gdb", "remote"}:
        raise click.UsageError("name a process by its number, or a program behind `--`")
    if "sysroot" in names and not names & {"core", "remote"}:
        raise click.UsageError("--sysroot is for programs of another machine: --remote HOST:PORT, or --core FILE")
    if "remote" in names and len(words) > 1:
        raise click.UsageError("--remote: the program runs already; name its file alone, without arguments")


_DIGITS = 10
"""More of them no process has in its number."""


@click.command(cls=AttachCommand)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[PID | -- PROGRAM ARGS... | PROGRAM]")
@click.option(
    "--at",
    type=click.Choice(["reserve", "alloc", "compute", "any"]),
    help="Which call to stop at: ggml_backend_sched_reserve, …_alloc_graph, …_graph_compute_async, or any of them "
    "(default: a graph that is computed, when it is allocated). Of a program without a scheduler: "
    "ggml_gallocr_reserve, ggml_gallocr_alloc_graph, ggml_backend_graph_compute.",
)
@click.option(
    "--graph", type=click.IntRange(1), default=1, show_default=True, metavar="N",
    help="Look at the Nth of these calls.",
)  # fmt: skip
@click.option(
    "--count", type=click.IntRange(1), default=1, show_default=True, metavar="N",
    help="Look at so many of them.",
)  # fmt: skip
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
    help="How long to wait for each call; then the program is let go (default: as long as it takes).",
)  # fmt: skip
@click.option(
    "--until-abort", is_flag=True,
    help="Wait for the end alone: an abort of ggml, or a signal. (Any attach tells an end that comes meanwhile.)",
)  # fmt: skip
@click.option("--core", metavar="FILE", help="Look at a core dump; PROGRAM is what dumped it, if it is not found.")
@click.option(
    "--remote", metavar="HOST:PORT",
    help="Look at a program that a gdbserver or an emulator holds (or a serial line, by its path); PROGRAM is its "
    "file here, if gdb cannot fetch it.",
)  # fmt: skip
@click.option(
    "--sysroot", metavar="DIR",
    help="Of --remote and --core: where the files of the other machine are; what is not there, at its own place here.",
)  # fmt: skip
@click.option(
    "--gdb-program", metavar="FILE",
    help="The gdb to take (default: gdb; gdb-multiarch for programs of another machine, if it is there).",
)  # fmt: skip
@click.option("--verify", is_flag=True, help="Hold what the program decides beside the plan of the same scenario.")
@views_options
@click.option("--redact", is_flag=True, help="Save without the names of tensors, for a bug report.")
@click.option("--gdb", is_flag=True, help="Print the line that gives your own gdb the commands of `ggml`.")
@values_options
@format_option("text", "json", help="Text (default), or JSON with exact bytes.")
@output_to(".json", ".yaml", ".yml", ".gguf", text=False)
def attach(
    words: tuple[str, ...],
    at: Literal["reserve", "alloc", "compute", "any"] | None,
    graph: int,
    count: int,
    timeout: float | None,
    until_abort: bool,
    core: str | None,
    remote: str | None,
    sysroot: str | None,
    gdb_program: str | None,
    verify: bool,
    views: ViewsAsked,
    redact: bool,
    gdb: bool,
    values: ValuesAsked,
    format: str | None,
    output: Output,
) -> int:
    """Look at a running program that uses ggml: its devices, its graph, and what its scheduler decides.

    The program is one that runs already, by its process id, or one that is started here, behind `--`. It is stopped
    where it calls ggml's scheduler, read through gdb (version 9 or later), and let go; afterwards it goes on as if
    nothing had been. A program that has used no scheduler is stopped where it allocates a graph by itself
    (ggml_gallocr), or computes one; its scenario has a scheduler of one backend, which does the same. ggml is found in
    the program itself or in its libraries, whatever their names; neither debug information nor ggml's sources are
    needed. Linux on x86-64 and arm64.

    --remote looks at a program elsewhere, on a board, in a container or in an emulator, through the gdbserver that has
    it; PROGRAM is its file here, --sysroot the folder with its libraries, else they are fetched.

    With -o the graph becomes a scenario for every other command, with what the real devices answer for its ops
    (`profile: recorded`) and the scheduler's past. With --verify the plan of it is compared with what the program
    decided, field by field. Of a core dump (--core) it says why the program died and at which graph.

    --show shows what the scheduler and its allocator have after the call, as `ggml VIEW` does in gdb: splits, hash,
    hash --sched, allocs, buffers, graph, and of a tensor tensor NODE and lifetime NODE.

    A program that is started here has the terminal, its input and its output for itself: what is to be said goes to
    standard error, but for --json, which is printed when the program has ended. Ctrl-C reaches it as it would without
    us.

    --values reads the results of nodes, and what they are computed from, while the program computes the graph: ggml's
    eval callback is set to a function of the program that says yes to everything, and put back afterwards. They are
    shown; with -o x.json.gz (or x.gguf) written as a scenario of these nodes with its values in x.gguf beside it, for
    `run` and `compare`; with --dump DIR as .npy files. --compare computes the same nodes here from the same inputs and
    names the first kernel of the program's devices that is off. Each node is computed by itself meanwhile: kernels that
    a backend makes of several nodes are not judged.

    If the program aborts meanwhile (GGML_ASSERT, GGML_ABORT) or dies of a signal, that is explained instead: which
    tensor is meant, who supports it, what it means, and which changes avoid it; -o saves that graph, and the program
    dies as it would have.

    Exit status 0 if the call came, 1 if it did not (the program ended before, or --timeout was over), its plan is
    another or a node is off, 2 if the program cannot be looked at. What a program ends with is said where it is not 0.

    \b
    Example:
      ggmltool attach -o whisper.json.gz -- whisper-cli -m base.bin speech.wav
      ggmltool attach --verify --graph 3 41271
      ggmltool attach --timeout 10 --json 41271
      ggmltool attach --until-abort -o bug.json.gz --redact -- ./my-program
      ggmltool attach --show splits,buffers --show 'tensor kq-0' --json 41271
      ggmltool attach --core core.41271 ./whisper-cli
      ggmltool attach --verify --remote board:1234 --sysroot /srv/board ./whisper-cli
      ggmltool attach --gdb
      ggmltool attach --compare -- whisper-cli -m base.bin speech.wav
      ggmltool attach --values 'Qcur-*' --dump tensors 41271
      ggmltool attach --values all -o x.json.gz --graph 2 -- ./my-program
    """
    if sys.platform != "linux":
        raise CliError("attach works on Linux alone: it looks into programs through gdb and /proc")
    check_together(words)
    if gdb:
        from ggmltool.attach.gdb.program import gdb_file

        Output().write(f"source {gdb_file()}\n")
        return FINE
    asked = _Asked(at, graph, count, timeout, until_abort, verify, views, redact, format == "json", output)
    asked.check(values)
    from ggmltool.attach.session import AttachSession
    from ggmltool.state.errors import AttachError, LinkError

    try:
        if core is not None:
            session = AttachSession.core(core, words[0] if words else None, sysroot, gdb_program)
            return _tell_core(session, asked)
        session = _open(words, remote, sysroot, gdb_program)
        if values.wanted:
            return values_of(session, values, graph, timeout, output, asked.json)
        return _look(session, asked)
    except AttachError as error:
        raise CliError(str(error), GGML_FAILED if error.refused else WRONG_USE) from None
    except LinkError as error:
        raise CliError(f"cannot look at the program any more: {error}", GGML_FAILED) from None


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is to be looked at in a program, and what is to become of it."""

    at: At | None
    graph: int
    count: int
    timeout: float | None
    until_abort: bool
    verify: bool
    views: ViewsAsked
    redact: bool
    json: bool
    output: Output

    def check(self, values: ValuesAsked) -> None:
        """Raises UsageError for options that do not go together, CliError for files that cannot be written."""
        self.views.check(values=values.wanted, verify=self.verify)
        path = self.output.path
        if self.redact and path is None:
            raise click.UsageError("--redact is for what is saved: add -o x.json.gz")
        if values.wanted:
            values.check(self.output, self.at, self.count, self.json)
            if self.verify or self.redact:
                raise click.UsageError("Values are read while one graph is computed: leave --verify and --redact out.")
        elif path is not None and path.suffix == ".gguf":
            raise click.UsageError("A .gguf file holds values: say of which nodes (--values all).")
        else:
            for n in range(2, self.count + 1):
                numbered(self.output, n).check()


def _tell_core(session: AttachSession, asked: _Asked) -> int:
    """A core dump: why the program died, or what its scheduler has."""
    from ggmltool.attach.end.ending import ended
    from ggmltool.state.errors import AttachError

    with session:
        try:
            died = ended(session)
        except AttachError as error:
            said = [str(error).rstrip("."), *(f"{remark[:1].upper()}{remark[1:]}" for remark in session.remarks)]
            raise AttachError(". ".join(said), error.refused) from None
    if not asked.views.views:
        return tell_end(session, died, asked.output, asked.redact, asked.json)
    if died.snapshot is None:
        raise CliError(f"there is no graph to show: {died.without}")
    if asked.json:
        asked.views.write(session, [(1, died.snapshot)])
    else:
        asked.views.show([(1, died.snapshot)], Output())
    if asked.output.path is not None and died.written is not None:
        save(died.written.document, asked.output, asked.redact)
    return FINE


def _look(session: AttachSession, asked: _Asked) -> int:
    """Look at the calls that were asked for, say what was seen of each at once, and let the program go on."""
    from ggmltool.attach.end.ending import ended
    from ggmltool.attach.gdb.link import Dies
    from ggmltool.state.errors import AttachError

    telling = CallReporter(
        session, asked.views, asked.output, json=asked.json, verify=asked.verify, redact=asked.redact,
        one=asked.count == 1,
    )  # fmt: skip
    last: Ended | None = None
    failed: AttachError | None = None
    try:
        with session:
            try:
                if asked.until_abort:
                    until_end(session, asked.timeout)
                _visit(session, asked, telling)
            except Dies as death:
                last = ended(session, *session.entered, death.signal)
    except AttachError as error:
        failed = error
    finally:
        telling.wait()
        if last is None:
            goes_on(session, failed)
    if last is not None:
        return tell_end(session, last, numbered(asked.output, telling.written + 1), asked.redact, asked.json)
    same = telling.finish()
    if failed is not None:
        return GGML_FAILED if failed.refused else WRONG_USE
    return FINE if same else GGML_FAILED


def _visit(session: AttachSession, asked: _Asked, telling: CallReporter) -> None:
    """Look at each of the calls, with the devices' answers unless only views of it are wanted."""
    from ggmltool.attach.calls import calls, glance, visit
    from ggmltool.show.text import count

    if (session.kind == "pid" and session.instance) or (session.kind == "remote" and session.instances):
        note(f"{session.name}: waiting for its next graph (Ctrl-C lets it go)")
    when = asked.views.when
    for called in calls(session, asked.at, asked.timeout, without=True):
        if called.number >= asked.graph and asked.views.views and asked.output.path is None:
            telling.call(SeenCall(called, None, glance(session, called, when)))
        elif called.number >= asked.graph:
            one = visit(session)
            if one.answers.left_out:
                note(f"{count(one.answers.left_out, 'question')} to the devices without an answer that can be used")
            telling.call(SeenCall(called, one, one.before if when == "before" else one.after))
        if called.number >= asked.graph + asked.count - 1:
            break


def _open(words: tuple[str, ...], remote: str | None, sysroot: str | None, gdb_program: str | None) -> AttachSession:
    """The program of the command line: a process if a number is all that is named. Raises AttachError, CliError."""
    # What takes long to import is there before the program stands still.
    from ggmltool.attach.end import ending  # noqa: F401
    from ggmltool.attach.session import AttachSession, Remote

    if remote is not None:
        return AttachSession.remote(Remote(remote, words[0] if words else None, sysroot), gdb_program)
    number = words[0]
    if len(words) == 1 and number.isascii() and number.isdecimal() and shutil.which(number) is None:
        return AttachSession.attach(int(number[:_DIGITS]), gdb_program)
    return AttachSession.launch(words, gdb_program)
