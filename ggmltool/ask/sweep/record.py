"""Many placements of a captured model: what each comes to, and the largest that fits."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec import field

from ggmltool.ask.answer import Answer
from ggmltool.ask.place.options import AUTO_SPLIT, Placing, asked, devices_of, options_of, overrides, shares_of, spelled
from ggmltool.estimate.records import Estimate
from ggmltool.inspect.opened import Opened, answers_for
from ggmltool.inspect.ranges import read_range
from ggmltool.show.document import ReleaseDocument
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.place.parts import n_layer
from ggmltool.sources.llama.place.place import Placer
from ggmltool.sources.llama.search.sweep import Job, JobOutcome, usable_processes
from ggmltool.sources.llama.search.sweep import sweep as run_all
from ggmltool.state.errors import InspectError

MAX_PLACEMENTS = 20_000
NO_OVERRIDES = "none"
"""-ot of a placement without any."""
PLACED = ("-ngl", "-ts", "-ot", "--n-cpu-moe")


class Varied(NamedTuple):
    """What is swept: lists of the values that each option takes."""

    layers: Sequence[int]
    splits: Sequence[str]
    overridden: Sequence[str]
    n_cpu_moe: Sequence[int]


_FACTS = {
    "-c": "n_ctx",
    "-ub": "n_ubatch",
    "-np": "n_seq_max",
    "-fa": "flash_attn",
    "-ctk": "type_k",
    "-ctv": "type_v",
    "--outputs": "n_outputs",
}
"""What the `meta` of a capture says of the options that it was made with; a batch is told where it is asked for."""


class SweptGraph(NamedTuple):
    """A scenario with a captured graph; `words` are the options that it was captured with here, by name."""

    opened: Opened
    words: dict[str, str]

    @property
    def facts(self) -> dict[str, str]:
        """The options that it was captured with, here or elsewhere, by name; "" if nothing is known of one."""
        meta = self.opened.model.meta
        told = {name: meta.get(fact, "") for name, fact in _FACTS.items()}
        texts = {name: {True: "on", False: "off"}[v] if isinstance(v, bool) else str(v) for name, v in told.items()}
        return {**texts, **{name: value for name, value in self.words.items() if value}}


@dataclass(frozen=True, kw_only=True)
class Swept(JobOutcome):
    """One placement: its options as texts by name, and what it came to; `extent` is what makes it larger than another
    one, the most important first."""

    options: Mapping[str, str]
    extent: tuple[int, ...]

    @property
    def copied(self) -> int:
        return sum(copied for _, _, copied in self.graphs)

    def lacks(self, device: str) -> int:
        """What a device has too little for its margin, 0 if it is enough."""
        return max(self.margins.get(device, 0) - self.left.get(device, self.margins.get(device, 0)), 0)


class SweepTable(ReleaseDocument, kw_only=True):
    """`sweep --json`: many placements of a captured model; `best` is the number of the largest that fits.

    A placement has a key for every option that varies, `splits` and `copied` (of several graphs each with its name
    before it), `parallel`, `fits` and `error`; then by device `needs` in bytes, its `parts`, what is `left`, and the
    `margin` that has to be; with `with_pipeline_copies` where those would need more.
    """

    view = "placements"
    kind: Literal["sweep"] = "sweep"
    options: str
    devices: list[str]
    memory: dict[str, int]
    best_number: int | None = field(name="best")
    placements: list[dict[str, Any]]


class SweepShown(SweepTable, kw_only=True):
    """The placements as they were made; `gpus` name the GPUs, `programs` say whose memory it is. `again` is the command
    that shows the largest that fits ("" if none does)."""

    swept: tuple[Swept, ...]
    gpus: list[str]
    programs: list[str]
    again: str

    @property
    def varied(self) -> list[str]:
        """The options that differ between placements; -ngl where none does."""
        names = list(self.swept[0].options)
        return [n for n in names if len({s.options[n] for s in self.swept}) > 1] or ["-ngl"]

    def best(self) -> Swept | None:
        """The largest that fits; of equal ones, that with most memory left, then that which copies least."""
        return _best(self.swept)

    def rows(self) -> tuple[Swept, ...]:
        """The placements."""
        return self.swept


def _best(swept: Sequence[Swept]) -> Swept | None:
    fitting = (s for s in swept if s.fits)
    return max(fitting, key=lambda s: (s.extent, s.room, -s.copied, -s.splits), default=None)


def most_layers(graphs: Sequence[SweptGraph]) -> int:
    """What -ngl all is: the layers with the output layer."""
    return max(n_layer(g.opened.model) for g in graphs) + 1


def varied(most: int, layers: str | None, splits: Sequence[str], overridden: Sequence[str], experts: str) -> Varied:
    """The values of the options, in the order given; `most` is what -ngl all is. Raises InspectError."""
    for split in splits:
        shares_of(split)
    return Varied(
        read_range(layers, most) if layers is not None else list(range(most + 1)),
        list(splits) or [""],
        [o if o != NO_OVERRIDES else "" for o in overridden] or [""],
        read_range(experts, most - 1),
    )


def sweep(
    graphs: Sequence[SweptGraph],
    common: Placing[Any],
    varied: Varied,
    processes: int | None = None,
    note: Callable[[str], None] = lambda text: None,
    run: Callable[[list[Placer], list[Job], int], list[JobOutcome]] = run_all,
) -> Answer[SweepShown]:
    """Place every graph in all these ways, in so many processes (None: one for each core); it is fine if something was
    placed, and fits where memory is known.

    `note` is told of devices that are not known. Raises InspectError.
    """
    n_split = max(len(shares_of(s)) for s in varied.splits)
    placers = []
    for o in (g.opened for g in graphs):
        o.scenario.graph_name()
        try:
            placers.append(Placer(o.model, devices_of(o.model, common, n_split, note)))
        except PlaceError as error:
            raise InspectError(f"{o.argument}: {error}", error.refused) from None
    texts, work = _jobs(graphs, common, varied)
    try:
        outcomes = run(placers, work, processes or usable_processes())
    except PlaceError as error:
        raise InspectError(str(error), error.refused) from None
    swept, gpus = [], [d.name for d in placers[0].gpus]
    for job, options, outcome in zip(work, texts, outcomes, strict=True):
        meta = graphs[job.model].opened.model.meta
        if job.search and outcome.tensor_split:
            options["-ts"] = ",".join(map(str, outcome.tensor_split))
        on_gpus = sum(outcome.needs[gpu].weights for gpu in gpus if gpu in outcome.needs)
        context = (n if isinstance(n := meta.get(key), int) else 0 for key in ("n_ctx", "n_seq_max", "n_ubatch"))
        caches = sum(needs.cache for needs in outcome.needs.values())
        extent = (outcome.n_gpu_layers, on_gpus, *context, caches)
        swept.append(Swept(**vars(outcome), options=options, extent=extent))
    memory = {b.name: b.memory for b in placers[0].model.backends if b.memory is not None}
    best = _best(swept) if memory else None
    number = None if best is None else swept.index(best)
    found = SweepShown(
        ggml=", ".join(dict.fromkeys(placer.model.ggml for placer in placers)),
        options=" ".join(filter(None, [_shared(graphs, swept), asked(common)])),
        devices=list(dict.fromkeys(device for s in swept for device in s.needs)),
        memory=memory,
        best_number=number,
        placements=[_placement_of(s) for s in swept],
        swept=tuple(swept),
        gpus=gpus,
        programs=list(dict.fromkeys(filter(None, (answers_for(g.opened.model.meta) for g in graphs)))),
        again="" if best is None or number is None else _again(graphs[work[number].model], common, best),
    )
    models = {g.opened.model.meta.get("model") for g in graphs}
    model = models.pop()
    title = str(model) if len(graphs) > 1 and not models and model else graphs[0].opened.title
    failed = all(s.error for s in swept)
    return Answer(found, title, fine=not failed and not (memory and best is None))


def _jobs(graphs: Sequence[SweptGraph], common: Placing[Any], varied: Varied) -> tuple[list[dict[str, str]], list[Job]]:
    """The options of every placement, as texts and for the work. Raises InspectError if there are too many."""
    n = len(graphs) * len(varied.layers) * len(varied.splits) * len(varied.overridden) * len(varied.n_cpu_moe)
    if n > MAX_PLACEMENTS:
        raise InspectError(
            f"{n} placements are too many; the limit is {MAX_PLACEMENTS}. Use larger steps, e.g. 0..99:10"
        )
    rules = {
        (ot, moe): overrides([ot] if ot else [], moe, common)
        for ot, moe in product(varied.overridden, varied.n_cpu_moe)
    }
    texts, work = [], []
    for i, graph in enumerate(graphs):
        file = {"file": Path(graph.opened.argument).name}
        for ts, ot, moe, ngl in product(varied.splits, varied.overridden, varied.n_cpu_moe, varied.layers):
            options = options_of(graph.opened.model, common, ngl, shares_of(ts), rules[ot, moe])
            work.append(Job(i, options, common.margins, ts == AUTO_SPLIT, common.n_depth, common.n_prompt))
            placed = {"-ngl": str(ngl), "-ts": ts, "-ot": ot, "--n-cpu-moe": str(moe) if moe else ""}
            texts.append({**file, **graph.facts, **placed})
    names = dict.fromkeys(name for text in texts for name in text)
    return [{name: text.get(name, "") for name in names} for text in texts], work


def _shared(graphs: Sequence[SweptGraph], swept: Sequence[Swept]) -> str:
    """The options that all placements share; "" of a single one."""
    if len(swept) == 1:
        return ""
    first = {**graphs[0].words, **swept[0].options}
    given = dict.fromkeys([*PLACED, *(name for graph in graphs for name in graph.words)])
    same = [name for name in given if len({s.options.get(name) for s in swept}) == 1]
    return spelled({name: first[name] for name in same if first.get(name) or name not in swept[0].options})


def _again(graph: SweptGraph, common: Placing[Any], best: Swept) -> str:
    """The command that shows a placement."""
    words = ["ggmltool", "place", graph.opened.argument, *(w for d in common.devices for w in ("--device", d))]
    placed = {name: shlex.quote(best.options[name]) for name in PLACED if best.options[name]}
    return " ".join(filter(None, [shlex.join(words), asked(common, **placed), spelled(graph.words)]))


def _placement_of(s: Swept) -> dict[str, Any]:
    """The options of a placement and what it comes to, by name; graphs' under their names if there are several."""
    prefix = len(s.graphs) > 1
    return {
        **s.options,
        **{
            f"{name} " * prefix + what: n
            for name, splits, copied in s.graphs
            for what, n in (("splits", splits), ("copied", copied))
        },
        **{
            f"{title} {case}".rstrip(): float(f"{getattr(rate, field):.4g}")
            for title, rate in rates_of(s).items()
            for case, field in (("", "mid"), ("low", "low"), ("high", "high"))
        },
        "parallel": s.parallel,
        "fits": s.fits,
        "error": s.error or None,
        "needs": {device: needs.total for device, needs in s.needs.items()},
        "parts": {device: needs._asdict() for device, needs in s.needs.items()},
        "left": dict(s.left),
        "margin": dict(s.margins),
        **({"with_pipeline_copies": dict(s.with_copies)} if s.with_copies else {}),
    }


def rates_of(s: Swept) -> dict[str, Estimate]:
    """Tokens a second of answers and of a prompt, as far as they are estimated, by their headings."""
    if s.speeds is None:
        return {}
    rates = {"tokens/s": s.speeds.token_rate, "prompt/s": s.speeds.prompt_rate}
    return {title: rate for title, rate in rates.items() if rate is not None}
