"""What another ggml does otherwise than a release of ggmltool, with the smallest scenario for each rule that differs.

    python -m tests.follow --library FOLDER
    python -m tests.follow --library libggml-base.so --like 0.26 --seeds 5000 --jobs 4

Compared are structs, functions, tables of ops and types, calls of constructors, what the CPU runs, and random scenarios
on the library and on the engine as the release. For each difference the switches of the release's rules are turned, one
after the other; the one that makes the engine equal is the rule that differs. The exit status is 1 if anything does.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from ggmltool.oracle.lib import OracleUnavailable
from tests.follow.calls import calls, number_of_calls
from tests.follow.layouts import Probed, sched_fields, table_fields
from tests.follow.library import Library, bound_children, library_at, library_of
from tests.follow.report import Report
from tests.follow.scenarios import Kind
from tests.follow.search import Search
from tests.follow.tables import functions, tables

COMPUTED = 5
"""Of so many scenarios that are planned, one more is computed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the report; 1 where something differs."""
    options = _parser().parse_args(arguments)
    like = RELEASES[options.like]
    try:
        found = report(
            library_at(options.library), like, options.seeds, options.jobs, options.seconds, not options.json
        )
    except OracleUnavailable as error:
        sys.stderr.write(f"{error}\n")
        return 2
    text = json.dumps(found.document(), indent=1, ensure_ascii=False) + "\n" if options.json else found.text()
    sys.stdout.write(text)
    return 1 if found.differs else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.follow", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [release.name for release in RELEASES.values() if release.reserves]
    parser.add_argument("--library", required=True, type=Path, metavar="PATH", help="a file, or a folder that has it")
    parser.add_argument("--like", default=DEFAULT.name, choices=names, help=f"the release (default: {DEFAULT.name})")
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="random scenarios (default: 1000)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    parser.add_argument(
        "--seconds", type=float, default=20, metavar="N", help="to make a scenario smaller (default: 20)"
    )
    parser.add_argument("--json", action="store_true", help="the report as a document")
    return parser


def report(library: Library, like: Release, seeds: int, jobs: int, seconds: float, talks: bool) -> Report:
    """Compares everything. Raises OracleUnavailable where the library cannot be loaded at all."""
    probed = Probed(library.files)
    out = Report(f"{probed.said} ({library.files.base.name})", like)
    out.fields = [*table_fields(probed), *sched_fields(probed)]
    try:
        lib = library.lib
    except OracleUnavailable as error:
        out.refused = str(error)
        return out
    out.tables = [*functions(library, library_of(like)), *tables(lib, like), *calls(lib, like)]
    out.n_calls = number_of_calls()

    def say(text: str) -> None:
        if talks and sys.stderr.isatty():
            sys.stderr.write(f"{text}\n")

    kinds: dict[Kind, range] = {"plans": range(seeds), "calls": range(seeds // COMPUTED)}
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork"), initializer=bound_children) as pool:
        out.search = Search(library, like, pool, seconds, say).run(kinds)
    return out


if __name__ == "__main__":
    bound_children()
    sys.exit(main())
