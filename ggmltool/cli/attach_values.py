"""What `attach --values` and `attach --compare` do: read values while the program computes, then write or compare."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click
from msgspec import UNSET, structs

from ggmltool.cli.attach_report import goes_on, tell_end
from ggmltool.cli.errors import FINE, CliError
from ggmltool.cli.output import Output, ending_of, note, replace_file
from ggmltool.show.text import count, shortened, size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ggmltool.ask.answer import Answer
    from ggmltool.ask.compare.record import ComparedGraph
    from ggmltool.ask.run.record import WatchedNode
    from ggmltool.attach.calls import At
    from ggmltool.attach.session import AttachSession
    from ggmltool.attach.values import CapturedValues
    from ggmltool.attach.write.written import Written
    from ggmltool.sources.values.cut import ValueStore

F = TypeVar("F", bound=Callable[..., Any])

PROGRAM = "the program"
"""What the other side of a comparison is called."""

_NAMES_SHOWN = 4
_WORST = 10
_ENDINGS = (".json", ".yaml", ".yml", ".gguf")
_DEFAULT_BYTES = "1GiB"


class ValuesAsked(NamedTuple):
    """What of values is asked for: of which `nodes`, where they are dumped to, whether they are compared."""

    nodes: tuple[str, ...]
    dump: Path | None
    compare: bool
    tolerance: float | None
    worst: int
    max_bytes: int

    @property
    def wanted(self) -> bool:
        """Whether any values are read at all."""
        return bool(self.nodes) or self.compare or self.dump is not None

    def check(self, output: Output, at: At | None, count: int, json: bool) -> None:
        """Raises UsageError for options that do not go together, CliError for files that cannot be written."""
        if at not in (None, "compute") or count != 1:
            raise click.UsageError("Values are read while one graph is computed: leave --at and --count out.")
        if json and not self.compare:
            raise click.UsageError("--json of values is what --compare found: add it, or write them with -o or --dump.")
        if output.path is not None:
            if ending_of(output.path) not in _ENDINGS or output.path.name.lower().endswith(".gguf.gz"):
                raise click.UsageError(f"Values go to {', '.join(_ENDINGS)} or, the scenario, .json.gz.")
            for file in pair(output.path):
                Output(file, output.force).check()
        if self.dump is not None:
            from ggmltool.cli.run import Dump

            Dump(self.dump, output.force, numbered=False).check(())


def values_options(command: F) -> F:
    """--values, --dump, --compare and how they are done: together the parameter `values`, a ValuesAsked."""

    @wraps(command)
    def with_values(
        *args: object,
        values: tuple[str, ...],
        dump: Path | None,
        compare: bool,
        tolerance: float | None,
        worst: int,
        max_bytes: int,
        **kwargs: object,
    ) -> object:
        return command(*args, values=ValuesAsked(values, dump, compare, tolerance, worst, max_bytes), **kwargs)

    options = (
        click.option(
            "--values", multiple=True, metavar="NODE", shell_complete=_complete,
            help="Read the results of this node, of all that match a glob (`'Qcur-*'`), or of `all`, and what they are "
            "computed from, while the program computes them. May be given more than once.",
        ),
        click.option(
            "--dump", metavar="DIR", type=click.Path(path_type=Path),
            help="Write these values to .npy files in this folder, as `run --dump` does.",
        ),
        click.option(
            "--compare", is_flag=True,
            help="Compute the same nodes (default: all) here from the same inputs, and name the first kernel that is "
            "off. Exit status 1: a node is off.",
        ),
        click.option(
            "--tolerance", type=click.FloatRange(0), metavar="NMSE",
            help="With --compare: allow every node this NMSE. Default: what ggml's own tests allow.",
        ),
        click.option(
            "--worst", type=click.IntRange(0), default=_WORST, show_default=True, metavar="N",
            help="With --compare: show at most N nodes.",
        ),
        click.option(
            "--max-bytes", metavar="SIZE", default=_DEFAULT_BYTES, show_default=True, callback=_bytes,
            help="Refuse to read values of more bytes than these.",
        ),
    )  # fmt: skip
    out: Callable[..., Any] = with_values
    for option in reversed(options):
        out = option(out)
    return cast(F, out)


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of nodes are known when the program stops, and not before."""
    return [word for word in ("all",) if word.startswith(incomplete)]


def _bytes(ctx: click.Context, param: click.Parameter, value: str) -> int:
    from ggmltool.scenario.errors import Mistake
    from ggmltool.scenario.values import as_size

    try:
        return as_size(value, "--max-bytes")
    except Mistake as mistake:
        raise click.BadParameter(f"{mistake.message}; {mistake.expected}", ctx, param) from None


@dataclass(slots=True)
class ReadValues:
    """Values that were read of a program, with what they are of. `title` is what headings call the program."""

    asked: ValuesAsked
    title: str
    written: Written
    captured: CapturedValues
    store: ValueStore

    def scenario(self, file: str) -> dict[str, Any]:
        """The scenario of the nodes, whose inputs have their values in a GGUF file beside it."""
        from ggmltool.sources.values.cut import with_data

        document = with_data(self.captured.document, file, set(self.captured.inputs))
        (graph,) = document["graphs"]
        return {**document, "steps": [f"alloc {graph}", f"compute {graph}"]}

    def write(self, path: Path) -> None:
        """Write the scenario and beside it the GGUF file, from the name of either. Raises AttachError for one that
        cannot be loaded."""
        scenario, values = pair(path)
        replace_file(values, lambda file: self.store.write_gguf(file.write))
        replace_file(scenario, lambda file: file.write(_packed(scenario, self.scenario(values.name))))
        note(f"Wrote {scenario} and {values} ({size(self.store.nbytes)} of values)")

    def dump(self, folder: Path, force: bool) -> None:
        """Write every tensor to an npy file."""
        from ggmltool.cli.run import Dump

        dump = Dump(folder, force, numbered=False)
        dump.check((0, id) for id in self.store.kept)
        for node in self.watched():
            values = self.known(node.id)
            if values is None:
                note(f"{node.id}: values of the type {node.type} cannot be read")
            else:
                dump.add(node, values)
        dump.finish(self.title, self.captured.document["ggml"])

    def known(self, id: str) -> NDArray[Any] | None:
        """The values of a tensor, None for a type that cannot be read here."""
        try:
            return self.store.values(id)
        except KeyError:
            return None

    def watched(self) -> Iterator[WatchedNode]:
        """Every tensor that was read, inputs first, with what it was computed of and by which backend."""
        from ggmltool.ask.run.record import WatchedNode
        from ggmltool.sources.values.cut import op_of

        document = self.captured.document
        (graph, spec), *_ = document["graphs"].items()
        tensors = dict(spec["nodes"])
        for context in document["contexts"].values():
            tensors |= context["tensors"]
        for id in (*self.captured.inputs, *self.captured.nodes):
            t = tensors[id]
            src = tuple((s, tensors[s]["type"], tuple(tensors[s]["ne"])) for s in t.get("src", ()) if s is not None)
            backend = self.written.names.backend(self.captured.ran_on.get(id, -1)) or ""
            yield WatchedNode(id, op_of(t), t["type"], tuple(t["ne"]), src, backend, graph, 0)

    def compared(self) -> Answer[ComparedGraph]:
        """The nodes computed here from the same inputs. Raises InspectError, ScenarioError, GgmlError."""
        from ggmltool.ask.compare import Compare
        from ggmltool.ask.compare.record import ComparedSide
        from ggmltool.cli.scenario import opened

        with tempfile.TemporaryDirectory(prefix="ggmltool-attach-") as folder:
            values = Path(folder) / "values.gguf"
            scenario = values.with_suffix(".json")
            with values.open("wb") as file:
                self.store.write_gguf(file.write)
            scenario.write_bytes(_packed(scenario, self.scenario(values.name)))
            made = opened(str(scenario), self.title)
            (graph,) = made.model.graphs
            asked = Compare(graph=graph, values=values, tolerance=self.asked.tolerance, worst=self.asked.worst)
            answer = asked.ask(replace(made, work=made.work._replace(checks_memory=True)))
        found = answer.facts
        ran_on = {id: self.written.names.backend(i) for id, i in self.captured.ran_on.items()}
        nodes = [structs.replace(n, ran_on=ran_on.get(n.id) or UNSET) for n in found.nodes]
        sides = found.backends[0], ComparedSide(PROGRAM, "read")
        return replace(answer, facts=structs.replace(found, backends=sides, nodes=nodes), title=self.title)

    def tell(self) -> None:
        """Say on standard error what was not read, and why."""
        out = self.captured
        for id, why in out.unreadable.items():
            note(f"{id} cannot be read: {why}")
        if out.left_out:
            named = shortened(out.left_out, _NAMES_SHOWN)
            note(f"{count(len(out.left_out), 'node')} need these and are left out: {named}")
        if out.own:
            note(f"The program has an eval callback of its own, which asked for {count(len(out.seen), 'node')}")


@contextmanager
def read_values(
    session: AttachSession, asked: ValuesAsked, title: str, written: Written, sched: int
) -> Iterator[ReadValues]:
    """Let the program compute the graph that it has just begun with, and read the values that are asked for.

    Raises AttachError, CliError.
    """
    from ggmltool.attach.values import Capture
    from ggmltool.scenario.errors import Mistake
    from ggmltool.sources.values.cut import ValueStore

    (graph,) = written.document["graphs"]
    nodes = asked.nodes or ("all",)
    try:
        capture = Capture(session, written.document, graph, written.ids, sched, nodes, asked.max_bytes)
    except Mistake as mistake:
        raise CliError(f"{mistake.message}{'; ' if mistake.expected else ''}{mistake.expected}") from None
    computed = "it is" if len(capture.wanted) == 1 else "they are"
    note(f"Reading {count(len(capture.wanted), 'node')} with what {computed} computed from, {size(capture.nbytes)}")
    with ValueStore() as store:
        values = ReadValues(asked, title, written, capture.run(store), store)
        values.tell()
        yield values


def values_of(
    session: AttachSession, asked: ValuesAsked, first: int, timeout: float | None, output: Output, json: bool
) -> int:
    """Read the values of the `first`th graph that a program computes, let it go, and write, dump, compare or show them;
    where the program dies before, that is explained.

    Raises AttachError, CliError.
    """
    from ggmltool.attach.calls import calls
    from ggmltool.attach.devices.asking import ask
    from ggmltool.attach.end.ending import Ended, ended
    from ggmltool.attach.gdb.link import Dies
    from ggmltool.attach.reading import read_snapshot
    from ggmltool.attach.write.written import written

    last: Ended | None = None
    values: ReadValues | None = None
    with ExitStack() as kept:
        try:
            with session:
                try:
                    called = next(c for c in calls(session, "compute", timeout) if c.number >= first)
                    before = read_snapshot(session, called.sched, called.graph, called.function, "before")
                    made = written(before, ask(session, before))
                    values = kept.enter_context(read_values(session, asked, session.name, made, called.sched))
                except Dies as death:
                    last = ended(session, *session.entered, death.signal)
        finally:
            if last is None:
                goes_on(session)
        if values is None:
            assert last is not None
            if output.path is not None:
                output = replace(output, path=pair(output.path)[0])
            return tell_end(session, last, output, redact=False, json=json)
        if asked.dump is not None:
            values.dump(asked.dump, output.force)
        if output.path is not None:
            values.write(output.path)
        out = Output(aside=session.launched is not None)
        if asked.compare:
            return Output().answer(values.compared(), "json") if json else out.answer(values.compared(), "text")
        if asked.dump is None and output.path is None:
            from ggmltool.ask.run.text import watched_view

            results = {*values.captured.nodes}
            texts = [watched_view(n, values.known(n.id), False, out.style) for n in values.watched() if n.id in results]
            out.write("\n".join(texts))
        return FINE


def pair(path: Path) -> tuple[Path, Path]:
    """The scenario and the GGUF file beside it, from the name of either.

    >>> [str(p) for p in pair(Path("a/x.json.gz"))], [str(p) for p in pair(Path("x.gguf"))]
    (['a/x.json.gz', 'a/x.gguf'], ['x.json.gz', 'x.gguf'])
    """
    if path.suffix == ".gguf":
        return path.with_suffix(".json.gz"), path
    stem = path.with_suffix("") if path.suffix == ".gz" else path
    return path, stem.with_suffix(".gguf")


def _packed(path: Path, document: dict[str, Any]) -> bytes:
    from ggmltool.attach.write.written import scenario_file

    data = scenario_file(document, path.parent)
    return gzip.compress(data, mtime=0) if path.suffix == ".gz" else data
