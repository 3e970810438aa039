"""The best ways to put a model on devices, for people: what fits, what was given up, what lies where, what to paste."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap

from ggmltool.ask.answer import Answer
from ggmltool.ask.fit.record import FitShown, prompt_of, token_of
from ggmltool.ask.fit.wishes import LEAST_CTX, OwnChoice, shell_words
from ggmltool.ask.place.record import PlacedRow, PlacementShown
from ggmltool.ask.place.text import device_table, placement_facts, signed
from ggmltool.estimate.records import Estimate
from ggmltool.show.table import Cell, Head, Row, Style, heading, render_lines, render_table
from ggmltool.show.text import count, size
from ggmltool.sources.llama.search.candidates import Ranked, SearchProgress
from ggmltool.sources.llama.search.space import Setting

BIGGEST = 3
"""Kinds of tensors that are named for each device."""

_SHORT_CTX = 1024

ROUGH = (
    "no speed is estimated, and placements are ordered by that of a typical device: name yours, as in --device "
    'CUDA0="RTX 3090" (`ggmltool backends --rates`)'
)
_VARIED = ("-c", "-np", "-ctk", "-ctv", "-fa", "-b", "-ub")
_UNSAID = {"-np": "1", "-ctk": "f16", "-ctv": "f16", "-fa": "auto", "-b": "2048", "-ub": "512"}
"""llama.cpp's defaults."""


def fit(answer: Answer[FitShown], style: Style) -> str:
    """The headline, the best placements, the bytes of the first, and the lines that run it."""
    fit = answer.facts
    devices = [f"{device} {size(n)}" for device, n in fit.memory.items()]
    facts = [fit.wishes.objective, *([", ".join(devices)] if devices else []), *([fit.options] if fit.options else [])]
    parts = [heading(answer.title, facts, style), "\n", render_lines(_headline(fit, style), style)]
    if fit.found.ranked:
        parts += ["\n", _candidates(fit, style)]
    parts += ["\n", device_table(fit.placed).render(fit.devices, style)]
    parts += ["\n", render_lines(list(_biggest(fit.placed, style)), style)]
    facts = [searched(fit), *placement_facts(fit.placed, style)]
    shown = fit.found.best or fit.found.nearest
    facts += [] if shown is None or shown.rated else [f"note: {ROUGH}"]
    lines = [line for text in filter(None, facts) for line in _wrapped(text, style)]
    if fit.fits:  # what to paste; never wrapped, so that it can be
        told = f"run it (llama.cpp {fit.build})" if fit.build else "run it"
        runs = [told, *(f"  {text}" for text in fit.lines.values())] if fit.lines else []
        lines += ["", *runs, "see it, tensor by tensor", f"  {fit.again}"]
    return "".join([*parts, "\n", render_lines(lines, style)])


def progress_text(now: SearchProgress) -> str:
    """How far a search is, and the best so far."""
    best = now.best
    texts = [f"{now.done} of {count(now.counts.settings, 'setting')}, {now.counts.planned} placements planned"]
    if best is not None:
        layers = {name: best.words[name] for name in ("-ngl", "-ts") if name in best.words}
        texts.append(f"best so far: -c {best.n_ctx} {shell_words(layers)} {spilled(best.words)}".rstrip())
        texts += [f"{_digits(best.seconds.token.rate(1).mid)} tokens/s"] if best.rated else []
    return ", ".join(texts)


def speed(seconds: Estimate) -> str:
    """Tokens in a second, likely and between what.

    >>> speed(Estimate(0.01, 0.0125, 0.02))
    '80 (50–100) tokens/s'
    """
    return f"{_about(seconds.rate(1))} tokens/s"


def _digits(n: float) -> str:
    """
    >>> _digits(1234.5), _digits(61.7), _digits(6.17), _digits(0.617)
    ('1230', '62', '6.2', '0.62')
    """
    if n >= 100:
        return f"{float(f'{n:.3g}'):.0f}"
    return f"{n:.0f}" if n >= 10 else f"{n:.2g}"


def _headline(fit: FitShown, style: Style) -> list[str]:
    """What the best is; or what is short in the nearest placement, and what would help."""
    best = fit.found.best
    if best is None:
        short = [f"{device} is {size(n)} short" for device, n in fit.placed.short.items()]
        error = dict(fit.placed.needs.error or ()).get("message") or ""
        nearest = fit.placed.options["command_line"]
        texts, helps = [f"nothing fits; nearest is {nearest}: {', '.join(short) or error}"], remedies(fit)
        texts += [f"what would help: {'; '.join(helps)}"] if helps else []
        return [line for text in texts for line in _wrapped(text, style)]
    token, estimated = token_of(best, fit.phase), fit.placed.estimates
    speeds = [f"about {speed(token)}"] if token is not None else []
    prompt = None if estimated is None else estimated.prompt_rate
    speeds += [f"prompts {_about(prompt)} tokens/s"] if prompt is not None else []
    room = [f"{size(min(best.left.values()))} left on the fullest device"] if best.left else []
    told = " · ".join([f"fits: context {best.n_ctx}", *speeds, *room])
    return [*_wrapped(told, style), f"  {shell_words(fit.wishes.options(best))}"]


def remedies(fit: FitShown) -> list[str]:
    """What nobody has tried and would need less memory, by the search that was asked for."""
    r, near = fit.wishes.ranges, fit.found.nearest
    small = [device for device, n in near.margins.items() if fit.memory.get(device, n) < n] if near is not None else []
    if small:
        return [f"a smaller --margin ({', '.join(small)}: less is free than that)"]
    fixed = fit.wishes.captured
    short = near is not None and near.n_ctx <= _SHORT_CTX
    shorter = [] if fixed or short else ["a shorter context (-c)"]
    types = [] if fixed or "q8_0" in (*r.types_k, *r.types_v) else ["a cache of another type (-ctk q8_0 -ctv q8_0)"]
    batch = [] if fixed or min(r.ubatches) < 512 else ["a smaller ubatch (-ub 256)"]
    layers = ["fewer layers on GPUs (leave -ngl out)"] if r.layers else []
    kept = [f"{name} left out" for name, n in (("-ncmoe", r.n_cpu_moe), ("-ncffn", r.n_cpu_ffn)) if n is not None]
    margin = ["a smaller --margin"] if any(fit.wishes.common.margins) else []
    return [*layers, *kept, *shorter, *types, *batch, *margin]


def _wrapped(text: str, style: Style) -> list[str]:
    return wrap(text, max(style.width, 20), subsequent_indent="  ", break_on_hyphens=False)


def _candidates(fit: FitShown, style: Style) -> str:
    """The best placement of each setting, the best of all first."""
    kept: dict[Setting, Ranked] = {}  # of those that differ in their batches alone, the best
    for r in fit.found.ranked:
        kept.setdefault(r.candidate.setting._replace(n_batch=0, n_ubatch=0), r)
    shown = list(kept.values())[: fit.top]
    options = [fit.wishes.options(ranked.candidate) for ranked in shown]
    varied = [name for name in _VARIED if len({o.get(name, "") for o in options}) > 1]
    placed = [name for name in ("-ngl", "-ts") if any(name in o for o in options)]
    first = shown[0].candidate
    gpus = first.gpus
    tokens, prompts = token_of(first, fit.phase) is not None, prompt_of(first, fit.phase) is not None
    columns = [
        Head("", right=True),
        *(Head(name, right=True) for name in (*varied, *placed)),
        Head("on the CPU", cut=True),
        *([Head("tokens/s", right=True)] if tokens else []),
        *([Head("prompt", right=True, drop=7)] if prompts else []),
        Head("splits", right=True, drop=9),
        *(Head(f"{gpu} left", right=True, drop=8 if i else 6) for i, gpu in enumerate(gpus)),
        Head("given up", cut=True, drop=1),
    ]
    rows: list[Row] = []
    for i, (ranked, o) in enumerate(zip(shown, options, strict=True)):
        c = ranked.candidate
        rows.append([
            Cell(str(i + 1), "" if i else "bold green"),
            *(o.get(name) or _UNSAID.get(name, "") for name in (*varied, *placed)),
            spilled(o),
            *([_about(c.seconds.token.rate(1))] if tokens else []),
            *([_about(c.seconds.prompt.rate(1))] if prompts else []),
            str(c.splits),
            *(size(c.left[gpu]) if gpu in c.left else "" for gpu in gpus),
            given_up(ranked),
        ])  # fmt: skip
    if fit.own is not None:
        rows.append(_own_row(fit.own, varied, placed, tokens + prompts, gpus))
    reason = "" if fit.own is None or not fit.own.reason else f"  llama.cpp's --fit gives up: {fit.own.reason}"
    return render_table(columns, rows, style) + render_lines(_wrapped(reason, style), style)


def _own_row(own: OwnChoice, varied: Sequence[str], placed: Sequence[str], n_speeds: int, gpus: Sequence[str]) -> Row:
    """What llama.cpp's --fit would choose; its context stands with the rest where the others share one."""
    o = own.options
    told = [f"-c {o['-c']}"] if "-c" not in varied and "-c" in o else []
    told += [] if own.fits else ["does not fit"]
    return [
        Cell("--fit", "dim"),
        *(o.get(name) or _UNSAID.get(name, "") for name in (*varied, *placed)),
        spilled(o),
        *[""] * n_speeds,
        str(own.splits),
        *(signed(own.left.get(gpu, 0)) for gpu in gpus),
        ", ".join(told),
    ]


def _about(rate: Estimate) -> str:
    """
    >>> _about(Estimate(50, 80, 100))
    '80 (50–100)'
    """
    low, mid, high = map(_digits, rate)
    return f"{mid} ({low}–{high})"


def spilled(options: Mapping[str, str]) -> str:
    """What of layers on GPUs stays on the CPU, as options; long patterns as what they mean."""
    told = [f"{name} {options[name]}" for name in ("--n-cpu-moe", "--n-cpu-ffn") if name in options]
    return " ".join([*told, *([_overrides(options["-ot"])] if "-ot" in options else [])])


def _overrides(rules: str) -> str:
    r"""Patterns of -ot that fit into a table.

    >>> _overrides(r"blk\.5\.ffn_down\.=CPU")
    '-ot blk\\.5\\.ffn_down\\.=CPU'
    >>> _overrides(r"blk\.5\.ffn_down_(ch|)exps=CPU,blk\.(0|1|2)\.ffn_(down|gate|gate_up|up)_(ch|)exps=CPU")
    '-ot: experts of 4 layers'
    >>> _overrides(r"blk\.(5|6)\.ffn_(down|gate|up)\.=CPU,output=CUDA1")
    '-ot: ffn of 2 layers, 1 more rule'
    """
    if len(rules) <= _SHORT_RULES:
        return f"-ot {rules}"
    layers: dict[str, set[str]] = {}
    others = 0
    for rule in rules.split(","):
        if found := _LAYERS.match(rule):
            kind = "experts" if "exps" in rule else "ffn"
            layers.setdefault(kind, set()).update(found[1].split("|"))
        else:
            others += 1
    told = [f"{kind} of {count(len(those), 'layer')}" for kind, those in layers.items()]
    told += [count(others, "more rule" if told else "rule")] if others else []
    return f"-ot: {', '.join(told)}"


_SHORT_RULES = 24
_LAYERS = re.compile(r"blk\\\.\(?(\d+(?:\|\d+)*)\)?\\\.ffn_.*=CPU$")


def given_up(ranked: Ranked) -> str:
    """What it has less of than was wanted most; another size of batch is no loss."""
    losses = [text for text in ranked.given_up if not text.startswith(("-b ", "-ub "))]
    return ", ".join(losses)


def _biggest(placed: PlacementShown, style: Style) -> Iterator[str]:
    """The largest weights and caches of each device; layers' equals are told once, with how many there are."""
    yield "largest tensors"
    for device in dict.fromkeys(use.device for use in placed.needs.uses):
        kinds: dict[tuple[str, str, int], list[PlacedRow]] = {}
        for t in placed.tensors:
            if t.device == device:
                name = t.name.removeprefix(f"blk.{t.layer}.").removesuffix(f"_l{t.layer}")
                kinds.setdefault((name, t.type, t.nbytes), []).append(t)
        if not kinds:
            continue
        largest = sorted(kinds.items(), key=lambda kind: -kind[0][2])[:BIGGEST]
        told = [
            f"{f'{len(of)} × {name}' if len(of) > 1 else of[0].name} {type} {size(nbytes)}"
            for (name, type, nbytes), of in largest
        ]
        yield from wrap(f"  {device}: {', '.join(told)}", max(style.width, 20), subsequent_indent="    ")


def searched(fit: FitShown) -> str:
    """How much was searched, and what that proves: for values of -c and -ub that were not given, of those tried."""
    counts, r = fit.found.counts, fit.wishes.ranges
    told = f"searched {count(counts.placements, 'placement')}"
    if not fit.found.proved:
        return f"{told}, {counts.planned} of them planned, until the limit of plans: others may be better"
    tried = [] if len(r.ubatches) == 1 else [f"-ub {', '.join(map(str, r.ubatches))}"]
    tried += [] if r.contexts else [f"-c from {LEAST_CTX} on"]
    told += f" ({counts.planned} planned, the rest ruled out)"
    if tried and not fit.wishes.captured:
        told += f" with {' and '.join(reversed(tried))}"
        return f"{told}: {'none of them fits' if fit.found.best is None else 'none of them is better'}"
    return f"{told}: {'none fits' if fit.found.best is None else 'this one is optimal'}"
