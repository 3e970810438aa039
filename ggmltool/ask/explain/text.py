"""Explanations as text: of a node, a split, a reallocation, a message."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator

from ggmltool.ask.answer import Answer
from ggmltool.ask.explain.message import ExplainedMessage, NoMessage
from ggmltool.ask.explain.node import AnswerRow, ExplainedNode, SourceRow
from ggmltool.ask.explain.realloc import ExplainedRealloc
from ggmltool.ask.explain.split import ExplainedSplit, InputRow
from ggmltool.ask.words import words
from ggmltool.ggml.events import Assigned, IdsChanged, ReallocNeeded, Said
from ggmltool.ggml.messages import messages
from ggmltool.ggml.why import Why
from ggmltool.inspect.messages.match import explained
from ggmltool.inspect.what_if import OutcomeRow
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Cell, Column, Head, Row, Style, Table, heading, render_lines, section
from ggmltool.show.text import count, printable, shortened, size, wrapped


def node(answer: Answer[ExplainedNode], style: Style) -> str:
    """The verdict in a sentence, then tables."""
    facts = answer.facts
    inks = term_colors(name for name, _ in facts.plan.backends)
    what = ", ".join(filter(None, (f"{facts.op or ''} {facts.shape}".strip(), facts.place)))
    if facts.split is not None:
        what += f", split #{facts.split}"
    top = heading(f"{answer.title}: {facts.tensor}", [answer.heading], style)
    parts = [top, "\n", render_lines(_wrapped((*(r.text for r in (facts.reason, *facts.chain)), what), style), style)]
    rules = Table[tuple[Said, int]](
        Column("pass", lambda r: r[0].rule, right=True),
        Column("rule", lambda r: r[0].cause),
        Column("backend", lambda r: Cell(r[0].backend or "–", inks.get(r[0].backend, "dim"))),
        Column("", lambda r: Cell("yes", "bold") if isinstance(r[0], Assigned) else Cell("no", "dim"), drop=2),
        Column("why", lambda r: words(r[0]) + (f" (asked {r[1]} times)" if r[1] > 1 else ""), cut=True),
    )
    parts += rules.section("Rules, in the order they were asked", Counter(facts.asked).items(), style)
    parts += _sources(inks).section("Sources", facts.sources, style)
    parts += _answers(inks).section("What each backend answers", facts.answers, style)
    reasons = [(a.backend, why) for a in facts.answers for why in (a.why_not_op, a.why_not_buft) if why is not None]
    if reasons:
        parts.append(render_lines(["", *_wrapped(map(": ".join, reasons), style)], style))
    if facts.moves:
        name = "Changes that would move it (each one verified by planning)"
        parts += moves("to", inks).section(name, (facts.now, *facts.moves), style)
    return "".join(parts)


def _wrapped(texts: Iterable[str], style: Style) -> list[str]:
    return [line for text in texts for line in wrapped(text, style.width)]


def _sources(inks: dict[str, str]) -> Table[SourceRow]:
    def memory(s: SourceRow) -> str | Cell:
        return (f"{s.buffer}, weights" if s.weights else s.buffer) or Cell("–", "dim")

    return Table(
        Column("slot", lambda s: s.slot, right=True, drop=2),
        Column("source", lambda s: s.id, cut=True),
        Column("shape", lambda s: s.shape, drop=1),
        Column("memory", memory),
        Column("backend", lambda s: Cell(s.backend or "–", inks.get(s.backend or "", "dim"))),
        Column("", lambda s: Cell("copied", "yellow") if s.copied else None),
    )


def _answers(inks: dict[str, str]) -> Table[AnswerRow]:
    def offloads(a: AnswerRow) -> str | Cell:
        least = a.offload_min_batch
        if least is None or a.batch <= 0:
            return Cell("never", "dim")
        return f"yes, batch {a.batch} ≥ {least}" if a.batch >= least else f"no, batch {a.batch} < {least}"

    return Table(
        Column("backend", lambda a: Cell(a.backend, inks.get(a.backend, ""))),
        Column("supports it", lambda a: "yes" if a.supports_op and a.supports_buft else Cell("no", "bold red")),
        Column("offloads it", offloads, drop=1),
        Column("after copying", lambda a: ", ".join(copy.id for copy in a.copies), cut=True),
    )


def moves(first: str, inks: dict[str, str]) -> Table[OutcomeRow]:
    """Changes and what comes of them; `first` is what stands above the backend."""

    def is_told(m: OutcomeRow) -> bool:
        return m.backend is not None or bool(m.splits)

    return Table(
        Column(first, lambda m: Cell(m.backend or "–", inks.get(m.backend or "", "") if is_told(m) else "dim")),
        Column("splits", lambda m: m.splits if is_told(m) else None, right=True),
        Column("copied", lambda m: size(m.copied) if is_told(m) else None, right=True),
        Column("change", lambda m: m.text, cut=True),
    )


_USERS = 3


def split(answer: Answer[ExplainedSplit], style: Style) -> str:
    """Sentences, then a table of inputs and one of changes."""
    facts = answer.facts
    inks = term_colors(name for name, _ in facts.plan.backends)
    top = [answer.heading, count(facts.splits, "split")]
    parts = [heading(f"{answer.title}: split #{facts.split}", top, style), "\n"]
    parts += [render_lines(_wrapped(_split_sentences(facts), style), style), _inputs(facts, inks, style)]
    if not facts.inputs:
        parts.append(render_lines(["", "Nothing is copied before it."], style))
    if facts.read_again:
        again = [f"{again.id} (by {again.node})" for again in facts.read_again]
        text = f"Copied for an earlier split and read again: {shortened(again, 6)}"
        parts.append(render_lines(["", *wrapped(text, style.width)], style))
    if facts.merges:
        name = "Changes that make fewer splits (each one verified by planning)"
        parts += moves("first node on", inks).section(name, (facts.now, *facts.merges), style)
    elif facts.split:
        parts.append(render_lines(["", "No change of one tensor's place, usage or backend makes fewer splits."], style))
    return "".join(parts)


def _split_sentences(f: ExplainedSplit) -> list[str]:
    n, here = f.i_end - f.i_start, f"node {f.i_start} on {f.backend}"
    if n > 1:
        here = f"{count(n, 'node')} on {f.backend}, {f.i_start}–{f.i_end - 1}"
    why = [reason.text for reason in f.why_first]
    if f.behind is None:
        return [f"It is the first: {here}.", *why]
    behind = f"It begins with {f.first}, after {f.last_before} on {f.behind}: {here}."
    if f.why == Why.OTHER_BACKEND and why:
        return [*why, behind]
    return [f"{f.first} begins it: {f.reason}.", *why, behind]


def _inputs(facts: ExplainedSplit, inks: dict[str, str], style: Style) -> str:
    def users(i: InputRow) -> str:
        named = [u.node if u.split == facts.split else f"{u.node} (split #{u.split})" for u in i.users]
        return shortened(named, _USERS)

    shapes = {i.id: shape for i, shape in zip(facts.inputs, facts.shapes, strict=True)}
    table = Table[InputRow](
        Column("input", lambda i: i.id, cut=True),
        Column("what", lambda i: Cell(i.what, "dim"), drop=1),
        Column("shape", lambda i: shapes[i.id], drop=2),
        Column("bytes", lambda i: size(i.nbytes), right=True),
        Column("from", lambda i: Cell(i.src, inks.get(i.src, ""))),
        Column("for", users, cut=True),
    )
    return "".join(table.section("Copied before it", facts.inputs, style))


_SHOWN = 10
_OUTGROWN = Table[ReallocNeeded](
    Column("node", lambda o: o.node, cut=True),
    Column("tensor", lambda o: o.tensor, cut=True),
    Column("which", lambda o: "the node" if o.slot is None else f"source {o.slot}"),
    Column("reserved", lambda o: Cell("–", "dim") if o.old_size is None else size(o.old_size), right=True),
    Column("needed", lambda o: size(o.new_size or 0), right=True),
)


def realloc(answer: Answer[ExplainedRealloc], style: Style) -> str:
    """The answer in a sentence, then the numbers."""
    f = answer.facts
    parts = [
        heading(f"{answer.title}: {f.first.called} reserved, {f.second.called} next", [], style),
        "\n",
        render_lines(_wrapped(_realloc_sentences(f), style), style),
    ]
    parts += section("The two graphs, as the allocator gets them", *_graphs(f), style)
    parts += _OUTGROWN.section("Too small in the plan", f.outgrown_at[:_SHOWN], style)
    if len(f.outgrown_at) > _SHOWN:
        parts.append(render_lines([f"  +{len(f.outgrown_at) - _SHOWN} more"], style))
    if f.log:
        told = [f"  {printable(line)}" for line in f.log]
        parts.append(render_lines(["", "What a debug build of ggml logs", *told], style))
    return "".join(parts)


def _realloc_sentences(f: ExplainedRealloc) -> Iterator[str]:
    first, second = f.first.called, f.second.called
    if f.found is None:
        yield f"Yes: every node and source of {second} fits where the plan of {first} has it. Nothing is planned again."
        return
    yield f"No: {_why(f, f.found)}."
    plans = "ggml waits for all backends and plans again" if f.n_buffers > 1 else "ggml plans again"
    sizes = ", ".join(f"{g.buft} from {size(g.old_size)} to {size(g.new_size)}" for g in f.grew if g.old_size)
    yield f"{plans}; " + (f"buffers are reallocated: {sizes}." if sizes else "the buffers are large enough and stay.")
    if f.serves_back:
        yield f"The plan of {second} serves {first}: reserve {second}, and nothing is planned again for either."
    else:
        yield f"The plan of {second} does not serve {first} either: whichever comes next is planned again."
    if not f.debug_realloc:
        return
    if f.unexpected:
        yield "GGML_SCHED_DEBUG_REALLOC=1 aborts here (“unexpected graph reallocation”): the graphs have the same size."
    elif f.n_buffers > 1:
        yield "GGML_SCHED_DEBUG_REALLOC=1 does not abort here; 2 does."
    else:
        yield "GGML_SCHED_DEBUG_REALLOC does not see it: with one backend the allocator plans again by itself."


def _why(f: ExplainedRealloc, why: ReallocNeeded | IdsChanged) -> str:
    if isinstance(why, IdsChanged):
        where = f"{'leaf' if why.is_leaf else 'node'} {why.at} of the graph, {why.tensor},"
        return f"{where} is on {why.new_backend}, the one before on {why.old_backend}"
    if not why.tensor:
        text, p = f"{words(why)}, {why.old_size} and {why.new_size}", f.parting
        if p is None:
            return text
        return f"{text}; the first difference is at node {p.at}: {p.first or 'nothing'}, then {p.second or 'nothing'}"
    of = f", source {why.slot} of {why.node}," if why.slot is not None else ""
    needed = size(why.new_size or 0)
    if why.old_size is None:
        return f"{why.tensor}{of} was pre-allocated, and now needs {needed}"
    return f"{why.tensor}{of} has {size(why.old_size)} in the plan and needs {needed}"


def _graphs(f: ExplainedRealloc) -> tuple[list[Head], list[Row]]:
    inks, first, second = term_colors(f.alone), f.first, f.second
    columns = [Head(""), Head(printable(first.called), right=True), Head(printable(second.called), right=True)]
    rows: list[Row] = [
        ["nodes", str(first.nodes), str(second.nodes)],
        ["leafs", str(first.leafs), str(second.leafs)],
        ["splits", str(first.splits), str(second.splits)],
        ["inputs copied", str(first.inputs), str(second.inputs)],
    ]
    for name, ink in inks.items():
        rows.append([Cell(f"{name} needs", ink), size(first.buffers[name]), size(f.alone[name])])
    for name, ink in inks.items():
        rows.append([Cell(f"{name} buffer after", ink), size(first.buffers[name]), size(second.buffers[name])])
    return columns, rows


_FUNCTIONS = 4
_OTHERS = 6


def message(answer: Answer[ExplainedMessage], style: Style) -> str:
    """Its text with the values that were pasted and who prints it, then what it means, and the others in the text."""
    found, others = answer.facts.match, answer.facts.also
    said = explained(found)
    told = [("What it means", said.told.means), ("What causes it", said.told.shapes)]
    remedy = said.told.remedy
    told.append(("What to do", f"{remedy[:1].upper()}{remedy[1:]}." if remedy else ""))
    where = f"of {said.where}" if said.era else said.where
    functions = f", in {shortened(said.functions, _FUNCTIONS)}" if said.functions else ""
    lines: list[str] = wrapped(f"{where}{functions}", style.width)
    for name, text in told:
        if text:
            lines += ["", name, *wrapped(printable(text), style.width)]
    if said.told.ask:
        lines += ["", f"See also: ggmltool {said.told.ask}"]
    known = messages()
    wrong = [m for m in others if m.key not in known or known[m.key].level != "info"]
    if wrong:
        shown = sorted(wrong[:_OTHERS], key=lambda m: m.line)
        also = [f"line {match.line}: {printable(explained(match).title)}" for match in shown]
        more = [f"and {len(wrong) - _OTHERS} more"] if len(wrong) > _OTHERS else []
        lines += ["", "Also in this text", *_wrapped([*also, *more], style)]
    first, *rest = textwrap.wrap(printable(said.title), style.width, subsequent_indent="  ") or [""]
    return heading(first, [], style) + render_lines([*rest, *lines], style)


def no_message(answer: Answer[NoMessage], style: Style) -> str:
    """What to say where no message is near enough."""
    lines = ["no known message of ggml or llama.cpp matches this text"]
    if answer.facts.nearest:
        lines += ["nearest:", *(f"  {m.text}" for m in answer.facts.nearest)]
    return "\n".join(lines)
