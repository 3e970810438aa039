"""`ggmltool splits`: which backend every node gets and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggmltool.cli.errors import suggestion
from ggmltool.cli.logs import OpenedLog, open_either
from ggmltool.cli.moment import Look, choose, moment_command, option_of
from ggmltool.cli.options import DOCUMENTS, depth_option, raw_option
from ggmltool.cli.output import note
from ggmltool.inspect.opened import Opened
from ggmltool.inspect.record import Keep, Record
from ggmltool.inspect.watched import Watch, Watched, watch

if TYPE_CHECKING:
    from ggmltool.scenario.tensor_info import Tensors

KEYS = ("op", "backend", "cause", "type", "split")


def _keys(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """`op,backend` as names of keys."""
    if value is None:
        return ()
    keys = tuple(part.strip() for part in value.split(","))
    for key in keys:
        if key not in KEYS:
            hint = suggestion(key, KEYS) or f" The keys are {', '.join(KEYS)}."
            raise click.BadParameter(f"{key!r} is not a key to count by.{hint}", ctx, param)
    if len(set(keys)) < len(keys):
        raise click.BadParameter("a key is named twice.", ctx, param)
    return keys


def _complete_keys(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    *before, last = incomplete.split(",")
    return [",".join([*before, key]) for key in KEYS if key.startswith(last) and key not in before]


@moment_command(
    "text",
    "table",
    *DOCUMENTS,
    help="ggml's own text (default), a table with a line per split, JSON or CSV.",
    what_if=True,
)
@click.option(
    "--debug",
    type=click.IntRange(1, 2),
    help="Print ggml's text for this GGML_SCHED_DEBUG: 1 the splits, 2 their nodes, too (default: 2).",
)
@click.option(
    "--causes/--no-causes",
    default=None,
    help="Print the cause of each assignment (default), or leave it out as ggml's release builds do.",
)
@raw_option
@click.option(
    "--by",
    metavar="KEYS",
    callback=_keys,
    shell_complete=_complete_keys,
    help=f"Count the nodes instead, by one or more of {', '.join(KEYS)}: `--by op,backend` is a matrix.",
)
@click.option("--bytes", is_flag=True, help="Show what each split copies instead, input by input, with sums.")
@click.option(
    "--seconds",
    is_flag=True,
    help="Show how long each split takes instead, and what it copies: an estimate. The scenario names the hardware.",
)
@depth_option
@click.option(
    "--pass",
    "number",
    type=click.IntRange(1, 6),
    envvar="GGMLTOOL_SPLITS_PASS",
    help="Show the assignments after this pass of the scheduler instead, and what it changed.",
)
def splits(
    look: Look,
    debug: int | None,
    causes: bool | None,
    by: tuple[str, ...],
    bytes: bool,
    seconds: bool,
    n_depth: int,
    number: int | None,
) -> int:
    """Show which backend every node gets and why, and what is copied.

    A GGML_SCHED_DEBUG=2 log can take the place of the scenario, as far as it tells; --graph is then a graph's number or
    a part of its title.

    \b
    The causes, by the scheduler's passes:
      1.dst  it is pre-allocated there      1.wgt<i>  its source i is a weight there
      1.inp  it is a graph input            1.off     offloaded, with a weight on the host
      2.sup  expanded from a neighbor       3.best    most of its sources are there
      3.upg  a faster one with that memory  4.vsrc    where the tensor it views is
      4.cur  where the node that needs it is  usr     the scenario says so

    Copies have 4.cpy; 6.cpy where pass 6 made them, the pipeline copies of inputs since ggml 0.26.

    \b
    Those of ggml 2024-01, whose scheduler has four passes:
      1.dst, 1.wgt<i>  as above                1.vsrc  the tensor it views is there
      2.1 2.2  a GPU neighbor's, down, up      2.3 2.4  any neighbor's, down, up
      3.vsrc   where the tensor it views is    3.cur   where the node that needs it is

    \b
    Example:
      ggmltool splits --format table model.yaml
      ggmltool splits --by op,backend model.yaml
      ggmltool splits --after 3 model.yaml
      ggmltool splits --pass 2 --format text --ggml 2024-01 model.yaml
      ggmltool splits --bytes --no-op-offload model.yaml
      ggmltool splits --seconds -d 4096 placed.json.gz
      ggmltool splits --by op,backend --graph "n_tokens = 512" llama.log
    """
    view, format = choose(by=by, bytes=bytes, seconds=seconds, number=number), look.format
    printed = number is not None and format == "text"
    detailed = debug is not None or causes is not None
    if view and not printed and (detailed or format == "text"):
        raise click.UsageError(
            f"--debug, --causes and --format text are for ggml's text; leave them out with {option_of(view)}."
        )
    if format not in (None, "text") and detailed:
        raise click.UsageError(f"--debug and --causes are for ggml's text; leave them out with --format {format}.")
    opened = open_either(look.scenario, look.moment.graph, look.release)
    if isinstance(opened, OpenedLog):
        from ggmltool.cli.log_views import refuse_moment, refuse_options, refuse_what_if, show_splits

        refuse_moment()
        refuse_what_if()
        refuse_options(number="shows only the result of all passes", seconds="does not have what nodes are made of")
        return show_splits(opened, debug or 2, causes is not False, by, bytes, format, look.output)
    opened = opened.what_if(look.what_if)
    if printed or (format in (None, "text") and not view):
        return _debug_text(look, opened, number, debug or 2, causes is not False)
    if number is not None:
        return _pass(look, opened, number)
    watched = watch(opened, look.moment)
    tensors = opened.tensors(watched.graph)
    if by:
        return _counted(look, watched, tensors, by)
    if bytes:
        return _copied(look, watched, tensors, opened)
    if seconds:
        return _timed(look, watched, opened, n_depth)
    return _table(look, watched, tensors)


def _table(look: Look, watched: Watched, tensors: Tensors) -> int:
    """A line per split."""
    if look.json:
        from ggmltool.views.plan.documents import SplitsDocument

        return look.answer(watched, SplitsDocument.of(watched.plan, tensors))
    from ggmltool.views.plan.splits import splits_report

    return look.answer(watched, splits_report(watched.plan, tensors, watched.title, look.style))


def _counted(look: Look, watched: Watched, tensors: Tensors, by: tuple[str, ...]) -> int:
    """--by: the nodes, counted."""
    if look.json:
        from ggmltool.views.plan.documents import TallyDocument

        return look.answer(watched, TallyDocument.of(watched.plan, tensors, by))
    from ggmltool.views.plan.tally import tally_view

    return look.answer(watched, tally_view(watched.plan, tensors, by, watched.title, look.style))


def _copied(look: Look, watched: Watched, tensors: Tensors, opened: Opened) -> int:
    """--bytes: what each split copies."""
    from ggmltool.inspect.copied import other_offload
    from ggmltool.inspect.copied_experts import expert_copies

    other = other_offload(opened, watched.plan, look.moment)
    experts = expert_copies(watched.run.model, watched.plan, tensors, watched.run.bufts)
    if look.json:
        from ggmltool.views.plan.documents import CopiedDocument

        return look.answer(watched, CopiedDocument.of(watched.plan, tensors, other, experts))
    from ggmltool.views.plan.copied import copied_view

    return look.answer(watched, copied_view(watched.plan, tensors, watched.title, look.style, other, experts))


def _timed(look: Look, watched: Watched, opened: Opened, n_depth: int) -> int:
    """--seconds: how long each split takes."""
    from ggmltool.inspect.timed import timed

    found = timed(opened, watched.plan, look.moment, n_depth)
    if look.json:
        from ggmltool.views.plan.seconds_documents import SecondsDocument

        return look.answer(watched, SecondsDocument.of(found))
    from ggmltool.views.plan.seconds import seconds_view

    return look.answer(watched, seconds_view(found, watched.title, look.style))


def _debug_text(look: Look, opened: Opened, number: int | None, level: int, causes: bool) -> int:
    """ggml's debug print of one step: of its end, or (--pass --format text) of one pass."""
    from ggmltool.views.plan.debug_text import debug_text

    watched = Watch(opened, look.moment, debug=True).watched()
    text = debug_text(watched, level, causes, number)
    status = look.answer_in_ggmls_words(watched, text)
    if watched.plan.ok and not watched.plan.nodes:
        note(f"The graph {watched.graph} has no nodes.")
    return status


def _pass(look: Look, opened: Opened, number: int) -> int:
    """--pass: the state after one pass."""
    watched = watch(opened, look.moment, Record(Keep.PASSES))
    watched.check_pass(number)
    records = watched.record.passes.records
    if look.json:
        from ggmltool.views.plan.documents import PassDocument

        return look.answer(watched, PassDocument.of(watched.plan, records, number))
    from ggmltool.views.plan.passes import pass_view

    text = pass_view(watched.plan, records, number, watched.title, look.style, watched.sched.passes)
    return look.answer(watched, text)
