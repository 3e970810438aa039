"""A scenario after loading: every name resolved, every shape known, nothing left to guess.

What the loader makes, what the engine, the oracle and the views read. Ids are unique over the tensors of all contexts
and over the nodes of a graph; `src`, `view_src` and `expand` are ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from msgspec import Meta

from ggmltool.ggml.bounds import BOUNDS, Bounds
from ggmltool.ggml.devices.cases import OwnSupports
from ggmltool.ggml.devices.profiles import PROFILES
from ggmltool.ggml.devices.recorded import RECORDED, RecordedAnswers
from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.ggml.sched.callbacks import COPY_CALLBACKS
from ggmltool.ggml.sched.past import Past
from ggmltool.ggml.tensor import Dims, nbytes_of
from ggmltool.scenario.devices.rates import OwnRates, RatesKeys
from ggmltool.scenario.devices.supports import AnswersKeys, OpKeys, SupportsKeys, read_answers
from ggmltool.scenario.errors import Mistake, ScenarioError, did_you_mean, quoted
from ggmltool.scenario.past import PastKeys
from ggmltool.scenario.samples import FILES
from ggmltool.scenario.values import (
    AT_LEAST_ONE,
    Bool,
    Count,
    Id,
    Schema,
    Size,
    any_case,
    as_id,
    as_int,
    as_list,
    as_size,
    as_word,
    at,
    defined,
    keys_of,
    kind_of,
    said,
)

if TYPE_CHECKING:
    from ggmltool.scenario.data import Data
    from ggmltool.scenario.errors import Place

FORMAT = 1

DeviceType = Literal["cpu", "gpu", "igpu", "accel"]
Usage = Literal["any", "weights", "compute"]
StepKind = Literal["reserve", "alloc", "compute", "measure", "reset", "set", "get"]


MAX_GRAPH_SIZE = 1 << 28
"""Nodes a scheduler can be made for, at most; ggml reserves some hundred bytes for each."""


def as_profile(value: object, what: str) -> str:
    """A profile that the engine knows, or that of devices that were asked in a process."""
    return as_word(value, what, (*PROFILES, RECORDED))


def _alignment(value: object, what: str) -> int:
    alignment = as_size(value, what)
    if alignment < 1 or alignment & (alignment - 1):
        raise Mistake(f"{what} must be a power of two, not {alignment}")
    return alignment


def _max_size(value: object, what: str) -> int:
    size = as_size(value, what)
    if size < 1:
        raise Mistake(f"{what} must be at least 1 byte")
    return size


def _batch(value: object, what: str) -> int | None:
    return None if isinstance(value, str) and value == "never" else as_int(value, what)


def _bufts(value: object, what: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return (as_id(value, "a buffer type"),)
    return tuple(at(i, as_id, item, "a buffer type") for i, item in enumerate(as_list(value, what)))


_FILE: Schema = {"type": "string", "pattern": f"(?:{any_case(FILES)})$"}
Profile = Annotated[Any, said(anyOf=[{"enum": [*PROFILES, RECORDED]}, _FILE]), as_profile]
"""A profile, or a file beside the scenario with a device."""
Like = Annotated[str, said(enum=list(PROFILES))]
Alignment = Annotated[int | str, AT_LEAST_ONE, _alignment]
MaxSize = Annotated[int | str, AT_LEAST_ONE, _max_size]
RowPadding = Annotated[int, Meta(ge=0, le=1 << 32)]
Batch = Annotated[Literal["never"] | Count, _batch]
Features = Annotated[Any, defined("features")]
Engine = Literal["numpy", "cupy", "auto"]
Answers = Annotated[AnswersKeys, read_answers]
Rates = str | RatesKeys
Callback = Annotated[str, said(enum=list(COPY_CALLBACKS))]
GraphSize = Annotated[int, Meta(ge=1, le=MAX_GRAPH_SIZE)]
Bufts = Annotated[Id | list[Id], _bufts]


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """A backend of the scenario: its profile with what the file overrides (None: not overridden).

    `buft` names its default buffer type, `max_size`, `memory` and `max_tensor_size` are bytes. `features` is what the
    hardware has, by the profile's names; `graph_optimize` false keeps the device from ordering nodes its own way.
    `rates` is the known device that it runs on, or what its owner says of it, for estimates of time. `answers` is what
    a recorded device said in a process, `like` the profile that answers for it where it was not asked. `copies_async`
    and `sets_async` are whether it copies, and lets itself be written, without waiting.
    """

    name: Annotated[str, Id]
    profile: Annotated[str, Profile] = "custom"
    type: Annotated[DeviceType | None, DeviceType] = None
    buft: Annotated[str | None, Id] = None
    alignment: Annotated[int | None, Alignment] = None
    max_size: Annotated[int | None, MaxSize] = None
    row_padding: Annotated[int | None, RowPadding] = None
    host: Annotated[bool | None, Bool] = None
    events: Annotated[bool | None, Bool] = None
    memory: Annotated[int | None, Size] = None
    supports: Annotated[OwnSupports | None, SupportsKeys] = None
    supports_bufts: Annotated[tuple[str, ...] | None, Bufts] = None
    offload_min_batch: Annotated[int | None, Batch] = None
    never_offloads: bool = False
    engine: Annotated[Engine, Engine] = "auto"
    features: Annotated[frozenset[str] | None, Features] = None
    graph_optimize: Annotated[bool | None, Bool] = None
    max_tensor_size: Annotated[int | None, Size] = None
    copies_async: Annotated[bool | None, Bool] = None
    sets_async: Annotated[bool | None, Bool] = None
    like: Annotated[str | None, Like] = None
    rates: Annotated[str | OwnRates | None, Rates] = None
    answers: Annotated[RecordedAnswers | None, Answers] = None

    @property
    def family(self) -> str:
        """The profile whose rules it has, also where its own answers go before them."""
        return (self.like or "custom") if self.profile == RECORDED else self.profile


@dataclass(frozen=True, slots=True)
class BufferTypeSpec:
    """A further buffer type. `ops`: op keys its device can run with a source 0 in it (None: whatever it can)."""

    name: str
    device: Annotated[str, Id]
    alignment: Annotated[int, Alignment] = 128
    max_size: Annotated[int | None, MaxSize] = None
    row_padding: Annotated[int, RowPadding] = 0
    host: Annotated[bool, Bool] = False
    ops: Annotated[frozenset[int] | None, OpKeys] = None


@dataclass(frozen=True, slots=True)
class SchedulerSpec:
    """`graph_size` None: 2048, raised to what the graphs need.

    `copy_callback` is what the program has copy weights in host memory ("": nothing, which leaves it to the scheduler).
    `past` is the state that it has when the first step comes (None: it is new).
    """

    graph_size: Annotated[int | None, GraphSize] = None
    parallel: Annotated[bool, Bool] = False
    op_offload: Annotated[bool, Bool] = True
    copy_callback: Annotated[str, Callback] = ""
    past: Annotated[Past | None, PastKeys] = None


BackendKeys = keys_of(BackendSpec, "BackendKeys", "A device, by what is said of it.")
BufferTypeKeys = keys_of(BufferTypeSpec, "BufferTypeKeys", "A further buffer type.")
SchedulerKeys = keys_of(SchedulerSpec, "SchedulerKeys", "How the scheduler is made.")


@dataclass(slots=True)
class TensorSpec:
    """A tensor of a context (`op` 0) or a node of a graph.

    `op_params` are the raw int32 words without trailing zeros; `flags` the bits of ggml_tensor_flag; `view_src` the
    root's id (never a view itself), `view_offs` bytes into the root. `backend` is a user assignment. `at` is where it
    lies, bytes from the start of its context's one buffer, or for a node of that of the context `within`.
    """

    id: str
    name: str
    type: DType
    ne: Dims
    nb: Dims
    op: int = 0
    op_params: tuple[int, ...] = ()
    flags: int = 0
    src: tuple[str | None, ...] = ()
    view_src: str | None = None
    view_offs: int = 0
    backend: str | None = None
    data: Data | None = None
    at: int | None = None
    within: str | None = None
    place: Place | None = field(default=None, compare=False)


@dataclass(slots=True)
class ContextSpec:
    """What is allocated together: at once in the buffer type `buft`, or with the graph (None).

    `tallocr` names the backend in whose allocator the tensors are placed before the scheduler sees a graph. `size` is
    that of the one buffer, bytes, in which every tensor says where it lies (None: ggml places them).
    """

    name: str
    buft: str | None
    usage: Usage
    tensors: list[TensorSpec]
    tallocr: str | None = None
    size: int | None = None


@dataclass(slots=True)
class GraphSpec:
    """A graph: its nodes as written, and what ggml_build_forward_expand is called with, in order.

    Of `uncomputed` it is ggml_build_forward_order that is called: they are planned, and not computed.
    """

    name: str
    nodes: list[TensorSpec]
    expand: list[str]
    uncomputed: frozenset[str] = frozenset()

    def computed(self) -> list[TensorSpec]:
        """The nodes without those that only uncomputed ones need."""
        if not self.uncomputed:
            return self.nodes
        nodes = {n.id: n for n in self.nodes}
        seen: set[str] = set()
        todo = [e for e in self.expand if e not in self.uncomputed]
        while todo:
            id = todo.pop()
            if id in nodes and id not in seen:
                seen.add(id)
                todo += [s for s in nodes[id].src if s is not None]
        return [n for n in self.nodes if n.id in seen]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run. `graph` for reserve, alloc, compute and measure; `data` for set; `tensors` for get."""

    kind: StepKind
    graph: str | None = None
    data: tuple[tuple[str, Data], ...] = ()
    tensors: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.graph is not None:
            return f"{self.kind} {self.graph}"
        names = [name for name, _ in self.data] or list(self.tensors)
        return f"{self.kind} {', '.join(names)}".rstrip()


@dataclass(slots=True)
class ScenarioSpec:
    """The whole scenario.

    `meta` are facts about where it comes from, `folder` is where its files (npy, gguf) lie, `source` what messages
    call it. `release` is the ggml that it is planned as; `left_out` are keys of the file that this one has no
    meaning for. `cpu_base_misalign` is how far past a page malloc puts the CPU's buffers, in bytes. `bounds` are what
    computing it may take.
    """

    name: str
    backends: list[BackendSpec]
    buffer_types: list[BufferTypeSpec]
    contexts: list[ContextSpec]
    graphs: dict[str, GraphSpec]
    steps: list[Step]
    scheduler: SchedulerSpec = field(default_factory=SchedulerSpec)
    meta: dict[str, str | int | float | bool] = field(default_factory=dict)
    folder: Path | None = field(default=None, compare=False)
    source: str = field(default="<dict>", compare=False)
    release: Release = DEFAULT
    left_out: tuple[str, ...] = field(default=(), compare=False)
    cpu_base_misalign: int = 0
    bounds: Bounds = field(default=BOUNDS, compare=False)

    @property
    def ggml(self) -> str:
        """The name of the release."""
        return self.release.name

    def tensors(self) -> Sequence[TensorSpec]:
        """The tensors of all contexts, in the order of the file."""
        return [t for c in self.contexts for t in c.tensors]


def graph_called(model: ScenarioSpec, name: object = None) -> str:
    """The name of a graph, by default that of the first one. Raises ScenarioError for one that is not there."""
    if name is None:
        if not model.graphs:
            raise ScenarioError("the scenario has no graph", model.source)
        return next(iter(model.graphs))
    if not isinstance(name, str):
        raise ScenarioError(f"the name of a graph must be text, not {kind_of(name)}", model.source)
    if name not in model.graphs:
        hint = did_you_mean(name, model.graphs) or "its graphs are " + ", ".join(model.graphs)
        raise ScenarioError(f"no graph is called {quoted(name)}", model.source, None, hint)
    return name


def no_tensor(model: ScenarioSpec, id: object, ids: Iterable[str], where: str = "there is") -> ScenarioError:
    """What to raise for an id that none of `ids` is."""
    if not isinstance(id, str):
        return ScenarioError(f"the id of a tensor must be text, not {kind_of(id)}", model.source)
    return ScenarioError(f"{where} no tensor {quoted(id)}", model.source, None, did_you_mean(id, ids))


class Valueless(NamedTuple):
    """The ids of tensors without values: of contexts with `usage: weights`, and of others."""

    weights: list[str]
    inputs: list[str]


def valueless(model: ScenarioSpec, graphs: Iterable[str], steps: Iterable[Step] = ()) -> Valueless:
    """The tensors that the graphs' computed nodes read and that have neither data nor a `set` among the steps.

    What a graph writes to, as to a KV cache, may well begin as zeros and is left out; so is what has no bytes.
    """
    given = {name for step in steps for name, _ in step.data}
    read, written = _used(model, graphs)
    found = Valueless([], [])
    for context in model.contexts:
        for t in context.tensors:
            if t.id not in read or t.id in written or t.id in given or t.data is not None or t.view_src is not None:
                continue
            if nbytes_of(t.type, t.ne, t.nb):
                (found.weights if context.usage == "weights" else found.inputs).append(t.id)
    return found


def _used(model: ScenarioSpec, graphs: Iterable[str]) -> tuple[set[str], set[str]]:
    """What the graphs' computed nodes read, directly or through a view, and what they write to."""
    from ggmltool.ggml.op import VIEW_OPS

    tensors = {t.id: t for t in model.tensors()}
    read: set[str] = set()
    written: set[str] = set()
    for name in graphs:
        known = tensors | {n.id: n for n in model.graphs[name].nodes}
        for n in model.graphs[name].computed():
            if n.op not in VIEW_OPS and n.view_src is not None:
                written.add(n.view_src)
            for s in n.src:
                source = known.get(s) if s is not None else None
                if source is not None:
                    read.update((source.id,) if source.view_src is None else (source.id, source.view_src))
    return read, written
