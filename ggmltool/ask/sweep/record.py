"""Many placements of a captured model: what each comes to, and the largest that fits."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec import field

from ggmltool.ask.answer import Answer
from ggmltool.ask.place.options import AUTO_SPLIT, Common, asked, devices_of, options_of, overrides, shares_of, spelled
from ggmltool.estimate.forecast import Speeds
from ggmltool.estimate.records import Estimate
from ggmltool.inspect.opened import Opened, answers_for
from ggmltool.inspect.ranges import read_range
from ggmltool.show.document import ReleaseDocument, part
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.place.needs import GraphCost, least_room
from ggmltool.sources.llama.place.parts import n_layer
from ggmltool.sources.llama.place.place import Placer
from ggmltool.sources.llama.search.sweep import Bytes, Job, Outcome, usable_processes
from ggmltool.sources.llama.search.sweep import sweep as run_all
from ggmltool.state.errors import InspectError

MAX_PLACEMENTS = 20_000
NO_OVERRIDES = "none"
"""-ot of a placement without any."""
_PLACED = ("-ngl", "-ts", "-ot", "--n-cpu-moe")


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


class Graph(NamedTuple):
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


class Swept(NamedTuple):
    """One placement: its options as texts by name, and what it came to.

    `graphs` are the name of each graph, its splits and the bytes they copy; `needs`, `left` and `margins` are bytes by
    device. `extent` is what makes it larger than another one, the most important first. `parallel` says whether there
    are pipeline copies, `with_copies` what they would need, where llama.cpp does without since they do not fit.
    `speeds` are estimates, None if the rates of devices are not known.
    """

    options: Mapping[str, str]
    graphs: Sequence[GraphCost]
    needs: Mapping[str, Bytes]
    left: Mapping[str, int]
    margins: Mapping[str, int]
    extent: tuple[int, ...]
    parallel: bool
    with_copies: Mapping[str, int]
    error: str
    speeds: Speeds | None = None

    @property
    def room(self) -> int:
        """What the fullest device has left beyond its margin."""
        return least_room(self.left, self.margins)

    @property
    def fits(self) -> bool:
        return not self.error and self.room >= 0

    @property
    def splits(self) -> int:
        return sum(splits for _, splits, _ in self.graphs)

    @property
    def copied(self) -> int:
        return sum(copied for _, _, copied in self.graphs)

    def lacks(self, device: str) -> int:
        """What a device has too little for its margin, 0 if it is enough."""
        return max(self.margins.get(device, 0) - self.left.get(device, self.margins.get(device, 0)), 0)


class Sweep(NamedTuple):
    """All placements: `fixed` is what they share, `memory` what devices have free, where known; `gpus` name the GPUs,
    `ggml` is the release that plans, `programs` say whose memory it is.
    """

    fixed: str
    swept: Sequence[Swept]
    memory: Mapping[str, int]
    devices: Sequence[str]
    gpus: Sequence[str]
    ggml: str
    programs: Sequence[str] = ()

    @property
    def varied(self) -> list[str]:
        """The options that differ between placements; -ngl where none does."""
        names = list(self.swept[0].options)
        return [n for n in names if len({s.options[n] for s in self.swept}) > 1] or ["-ngl"]

    def best(self) -> Swept | None:
        """Of those that fit, the largest; of equal ones, that with most memory left, then that which copies least."""
        fitting = [s for s in self.swept if s.fits]
        return max(fitting, key=lambda s: (s.extent, s.room, -s.copied, -s.splits)) if fitting else None


class Found(NamedTuple):
    """A sweep with its title, and the command that shows the largest placement that fits ("" if none does)."""

    sweep: Sweep
    title: str
    again: str

    @property
    def ok(self) -> bool:
        """Whether something was placed, and it fits where memory is known."""
        failed = all(s.error for s in self.sweep.swept)
        return not failed and not (self.sweep.memory and self.sweep.best() is None)


def most_layers(graphs: Sequence[Graph]) -> int:
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
    graphs: Sequence[Graph],
    common: Common,
    varied: Varied,
    processes: int | None = None,
    note: Callable[[str], None] = lambda text: None,
    run: Callable[[list[Placer], list[Job], int], list[Outcome]] = run_all,
) -> Found:
    """Place every graph in all these ways, in so many processes (None: one for each core).

    `note` is told of devices that are not known. Raises InspectError.
    """
    placers = _placers(graphs, common, varied, note)
    texts, work = _jobs(graphs, common, varied)
    try:
        outcomes = run(placers, work, processes or usable_processes())
    except PlaceError as error:
        raise InspectError(str(error), error.refused) from None
    result = _sweep(graphs, placers, common, work, texts, outcomes)
    return Found(result, _title(graphs), _again(graphs, common, result, work) if result.memory else "")


def _placers(graphs: Sequence[Graph], common: Common, varied: Varied, note: Callable[[str], None]) -> list[Placer]:
    """Every scenario, ready to be placed. Raises InspectError."""
    n_split = max(len(shares_of(s)) for s in varied.splits)
    out = []
    for o in (g.opened for g in graphs):
        o.scenario.graph_name()
        try:
            out.append(Placer(o.model, devices_of(o.model, common, n_split, note)))
        except PlaceError as error:
            raise InspectError(f"{o.argument}: {error}", error.refused) from None
    return out


def _jobs(graphs: Sequence[Graph], common: Common, varied: Varied) -> tuple[list[dict[str, str]], list[Job]]:
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
            work.append(Job(i, options, common.margin, ts == AUTO_SPLIT, common.n_depth, common.n_prompt))
            placed = {"-ngl": str(ngl), "-ts": ts, "-ot": ot, "--n-cpu-moe": str(moe) if moe else ""}
            texts.append({**file, **graph.facts, **placed})
    names = dict.fromkeys(name for text in texts for name in text)
    return [{name: text.get(name, "") for name in names} for text in texts], work


def _title(graphs: Sequence[Graph]) -> str:
    """What is swept: the scenario, of several the model that all are captures of, else the first's title."""
    models = {g.opened.model.meta.get("model") for g in graphs}
    model = models.pop()
    return str(model) if len(graphs) > 1 and not models and model else graphs[0].opened.title


def _sweep(
    graphs: Sequence[Graph],
    placers: list[Placer],
    common: Common,
    work: list[Job],
    texts: list[dict[str, str]],
    outcomes: list[Outcome],
) -> Sweep:
    """The records that the view shows."""
    gpus = [d.name for d in placers[0].gpus]
    swept = [
        _swept(graphs[job.model], job, options, outcome, gpus)
        for job, options, outcome in zip(work, texts, outcomes, strict=True)
    ]
    devices = dict.fromkeys(device for s in swept for device in s.needs)
    memory = {b.name: b.memory for b in placers[0].model.backends if b.memory is not None}
    first = {**graphs[0].words, **swept[0].options}
    given = dict.fromkeys([*_PLACED, *(name for graph in graphs for name in graph.words)])
    same = [name for name in given if len({s.options.get(name) for s in swept}) == 1]
    fixed = {name: first[name] for name in same if first.get(name) or name not in swept[0].options}
    words = [spelled(fixed)] if len(swept) > 1 else []
    programs = list(dict.fromkeys(filter(None, (answers_for(g.opened.model.meta) for g in graphs))))
    ggml = ", ".join(dict.fromkeys(placer.model.ggml for placer in placers))
    return Sweep(" ".join(filter(None, [*words, asked(common)])), swept, memory, list(devices), gpus, ggml, programs)


def _swept(graph: Graph, job: Job, options: dict[str, str], outcome: Outcome, gpus: list[str]) -> Swept:
    """The record of one placement."""
    meta = graph.opened.model.meta
    split = ",".join(map(str, outcome.tensor_split))
    options = {**options, "-ts": split or options["-ts"]} if job.search else options
    on_gpus = sum(outcome.needs[gpu].weights for gpu in gpus if gpu in outcome.needs)
    context = [value if isinstance(value := meta.get(name), int) else 0 for name in ("n_ctx", "n_seq_max", "n_ubatch")]
    return Swept(
        options,
        outcome.graphs,
        outcome.needs,
        outcome.left,
        outcome.margins,
        (outcome.n_gpu_layers, on_gpus, *context, sum(needs.cache for needs in outcome.needs.values())),
        outcome.parallel,
        outcome.with_copies,
        outcome.error,
        outcome.speeds,
    )


def _again(graphs: Sequence[Graph], common: Common, result: Sweep, work: list[Job]) -> str:
    """The command that shows the largest placement that fits, "" if none does."""
    best = result.best()
    if best is None:
        return ""
    graph = graphs[work[next(i for i, s in enumerate(result.swept) if s is best)].model]
    words = ["ggmltool", "place", graph.opened.argument, *(w for d in common.device for w in ("--device", d))]
    placed = {name: shlex.quote(best.options[name]) for name in _PLACED if best.options[name]}
    return " ".join(filter(None, [shlex.join(words), asked(common, **placed), spelled(graph.words)]))


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
    """The placements as they were made. `again` is the command that shows one of them, without its options."""

    sweep: Sweep
    again: str

    def best(self) -> Swept | None:
        """The largest that fits."""
        return self.sweep.best()

    def document(self) -> SweepTable:
        """As numbers and words."""
        return part(self, SweepTable)

    def rows(self) -> tuple[Swept, ...]:
        """The placements."""
        return tuple(self.sweep.swept)

    @classmethod
    def of(cls, found: Found) -> SweepShown:
        """A sweep."""
        sweep = found.sweep
        best = sweep.best() if sweep.memory else None
        return cls(
            ggml=sweep.ggml,
            options=sweep.fixed,
            devices=list(sweep.devices),
            memory=dict(sweep.memory),
            best_number=None if best is None else list(sweep.swept).index(best),
            placements=[{**costs_of(s), **_bytes_of(s)} for s in sweep.swept],
            sweep=sweep,
            again=found.again,
        )


def sweep_of(found: Found) -> Answer[SweepShown]:
    """A sweep as an answer: it is fine if something fits."""
    return Answer(SweepShown.of(found), found.title, fine=found.ok)


def _bytes_of(s: Swept) -> dict[str, Any]:
    parts = {device: needs._asdict() for device, needs in s.needs.items()}
    needs = {device: needs.total for device, needs in s.needs.items()}
    more = {"with_pipeline_copies": dict(s.with_copies)} if s.with_copies else {}
    return {"needs": needs, "parts": parts, "left": dict(s.left), "margin": dict(s.margins), **more}


def costs_of(s: Swept) -> dict[str, Any]:
    """The options of a placement and what they cost, by name."""
    return {
        **s.options,
        **_costs_of(s),
        **_speeds_of(s),
        "parallel": s.parallel,
        "fits": s.fits,
        "error": s.error or None,
    }


def _speeds_of(s: Swept) -> dict[str, float]:
    """Estimated tokens a second, each with its range."""
    return {
        f"{title} {case}".rstrip(): float(f"{getattr(rate, field):.4g}")
        for title, rate in rates_of(s).items()
        for case, field in (("", "mid"), ("low", "low"), ("high", "high"))
    }


def _costs_of(s: Swept) -> dict[str, int]:
    """The splits and copied bytes of each graph, under its name if there are several."""
    prefix = len(s.graphs) > 1
    return {
        f"{name} " * prefix + what: n
        for name, splits, copied in s.graphs
        for what, n in (("splits", splits), ("copied", copied))
    }


def rates_of(s: Swept) -> dict[str, Estimate]:
    """Tokens a second of answers and of a prompt, as far as they are estimated, by their headings."""
    if s.speeds is None:
        return {}
    rates = {"tokens/s": s.speeds.token_rate, "prompt/s": s.speeds.prompt_rate}
    return {title: rate for title, rate in rates.items() if rate is not None}
