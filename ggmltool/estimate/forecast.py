"""How fast a placed model is: tokens a second of a prompt and of an answer, and the seconds to the first token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ggmltool.estimate.rates import rates_of_backend
from ggmltool.estimate.records import Efficiency, Estimate, PlacedSplit, Rates, ShareRange, SplitCopy
from ggmltool.estimate.seconds import Estimator, GraphWork
from ggmltool.ggml.devices.profiles import PROFILES
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import Op
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.sched.callbacks import USED_EXPERTS
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.version import SCHED_MAX_COPIES
from ggmltool.scenario.run.compiled import NONE, Compiled
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec


def splits_of(plan: Plan, nbytes: Mapping[str, int] | None = None) -> tuple[PlacedSplit, ...]:
    """The splits of a plan, in order; the bytes of tensors go by their ids."""
    home = {n.id: n.backend or "" for n in plan.nodes} | {leaf.id: leaf.backend or "" for leaf in plan.leafs}
    sizes = nbytes or {}
    return tuple(
        PlacedSplit(
            s.backend, s.i_start, s.i_end, tuple(SplitCopy(id, home.get(id, ""), sizes.get(id, 0)) for id in s.inputs)
        )
        for s in plan.splits
    )


def nodes_of(compiled: Compiled, name: str) -> list[Tensor]:
    """The nodes of a graph in ggml's order, without memory and before any scheduler put copies into them."""
    graph = compiled.graphs[name]
    made = [ct for tensors in compiled.contexts for ct in tensors] + graph.nodes
    table = [ct.make(i) for i, ct in enumerate(made)]
    for ct, t in zip(made, table, strict=True):
        t.src = [None if s == NONE else table[s] for s in ct.src]
        if ct.view_src != NONE:
            t.view_src = table[ct.view_src]
    built = CGraph(compiled.cgraph_size, len(table))
    graph.build(built, table.__getitem__)
    return built.nodes


_WIDE = ShareRange(0.4, 0.7, 1.0)

SOME_HOST = Rates(
    name="some desktop's CPU",
    memory=60e9,
    f32=0.8e12,
    f16=0.8e12,
    bf16=0.8e12,
    int8=1.6e12,
    launch=4e-6,
    efficiency=Efficiency(_WIDE, _WIDE, _WIDE, _WIDE, _WIDE, _WIDE),
    fuses=False,
    family="CPU",
)
"""What is taken for a host of which nothing is said: two channels of fast DDR4, eight cores with AVX2."""

PROMPT = 2048
"""Tokens of a prompt whose speed is told where no other length is asked for: llama.cpp's default for a batch."""


class Speeds(NamedTuple):
    """What is estimated of a placement; None for a phase that was not captured.

    `token` are the seconds for a token of every sequence, `n_seqs` of them at once; `prompt` the seconds for a prompt
    of `n_prompt` tokens, until the first token of the answer is known; `cached` tokens are in the caches before.
    """

    token: Estimate | None
    prompt: Estimate | None
    n_seqs: int
    n_prompt: int
    cached: int

    @property
    def token_rate(self) -> Estimate | None:
        """Tokens of answers in a second."""
        return None if self.token is None else self.token.rate(self.n_seqs)

    @property
    def prompt_rate(self) -> Estimate | None:
        """Tokens of a prompt in a second."""
        return None if self.prompt is None else self.prompt.rate(self.n_prompt)


def is_gpu(backend: BackendSpec) -> bool:
    """Whether a backend is no part of the host."""
    return (backend.type or PROFILES[backend.family].type) in ("gpu", "igpu")


def rates_of_devices(backends: Sequence[BackendSpec]) -> dict[str, Rates] | None:
    """The rates of backends, the CPU last; None if no rates are named, or not those of every GPU.

    Of the host, what is not named is as for its CPU, and a CPU that is not named is `SOME_HOST`.
    """
    rates = {b.name: rates for b in backends if (rates := rates_of_backend(b)) is not None}
    if not rates or any(is_gpu(b) and b.name not in rates for b in backends):
        return None
    host = rates.get(backends[-1].name, SOME_HOST)
    return {b.name: rates.get(b.name, host) for b in backends}


def forecast(model: ScenarioSpec, cached: int = 0, n_prompt: int = PROMPT) -> Forecast | None:
    """What tells the speeds of a model on its backends; None if no rates are named, or not those of every GPU."""
    rates = rates_of_devices(model.backends)
    return None if rates is None else Forecast(model, rates, cached, n_prompt)


class Forecast:
    """How fast a captured model is on devices of known rates, asked for one placement after the other.

    `rates` has those of each backend by its name, as `rates_of_devices` makes them. `cached` tokens are in the caches
    when a prompt or a token comes. `weights_pinned`: llama.cpp's --no-mmap. What nodes take is found out once.
    """

    def __init__(
        self,
        model: ScenarioSpec,
        rates: Mapping[str, Rates],
        cached: int = 0,
        n_prompt: int = PROMPT,
        weights_pinned: bool = False,
    ) -> None:
        self.rates = dict(rates)
        self.cached = cached
        self.n_prompt = n_prompt
        self.weights_pinned = weights_pinned
        self.copies_experts = model.release.rules.copies_used_experts or model.scheduler.copy_callback == USED_EXPERTS
        compiled = Compiled(model)
        self.nodes = {name: nodes_of(compiled, name) for name in model.graphs}
        self.n_tokens = {name: batch_of(nodes) for name, nodes in self.nodes.items()}
        seqs = model.meta.get("n_seqs", 1)
        self.n_seqs = seqs if isinstance(seqs, int) else 1
        self._estimators: dict[tuple[str, int], Estimator] = {}

    def estimator(self, graph: str, cached: int) -> Estimator:
        """The estimator of a graph with so many tokens in the caches."""
        found = self._estimators.get((graph, cached))
        if found is None:
            work = GraphWork(self.nodes[graph], cached)
            found = Estimator(work, self.rates, self.weights_pinned, self.copies_experts)
            self._estimators[graph, cached] = found
        return found

    def speeds(self, splits: Mapping[str, Sequence[PlacedSplit]], parallel: bool = False) -> Speeds:
        """The speeds of a placement by the splits of its graphs; `parallel`: with pipeline copies.

        Raises KeyError for a backend without rates.
        """
        token = prompt = None
        for graph, of in splits.items():
            n_tokens = self.n_tokens.get(graph)
            if not of or n_tokens is None:
                continue
            if n_tokens <= self.n_seqs:
                token = self.estimator(graph, self.cached).seconds(of)
            else:
                prompt = self._prompt(graph, of, n_tokens, SCHED_MAX_COPIES if parallel else 1)
        return Speeds(token, prompt, self.n_seqs, self.n_prompt, self.cached)

    def _prompt(self, graph: str, splits: Sequence[PlacedSplit], n_ubatch: int, copies: int) -> Estimate:
        """All ubatches of a prompt: the first, the middle and the last of them tell what the others take (Simpson)."""
        n = max(-(-self.n_prompt // n_ubatch), 1)
        last = self.cached + (n - 1) * n_ubatch
        depths = (self.cached, (self.cached + last) // 2, last)
        first, middle, end = (self.estimator(graph, d) for d in depths)
        alone = middle.seconds(splits)
        together = middle.seconds_of_many(splits, n, copies)
        shares = [t / s if s else float(n) for t, s in zip(together, alone, strict=True)]
        mean = first.seconds(splits).times(1 / 6) + alone.times(4 / 6) + end.seconds(splits).times(1 / 6)
        batches = self.n_prompt / (n * n_ubatch)
        return Estimate(*(batches * share * s for share, s in zip(shares, mean, strict=True)))


def batch_of(nodes: Sequence[Tensor]) -> int | None:
    """How many tokens a graph is for: those that it looks up or is given the embeddings of; None for another graph."""
    for n in nodes:
        for s in n.src:
            if s is not None and s.op == Op.NONE and s.name == "inp_tokens":
                return s.ne[0]
            if s is not None and s.op == Op.NONE and s.name == "inp_embd":
                return s.ne[1]
    return None
