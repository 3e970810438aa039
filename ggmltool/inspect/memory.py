"""From the allocator's events to lifetimes, the free blocks after each event, and the hash nodes at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.alloc.common import AnyGallocr
from ggmltool.ggml.events import Allocated, AllocationStarted, Event, Freed, Kept, NotReused, Reused
from ggmltool.ggml.sched.reader import chunk_states, hash_nodes
from ggmltool.ggml.state import ChunkState, HashNodeState
from ggmltool.inspect.decisions import Part

if TYPE_CHECKING:
    from ggmltool.ggml.sched.common import AnyScheduler


class TensorLifetime(NamedTuple):
    """A tensor in a compute buffer: `size` bytes at `offset` of `chunk`, from step `start` until after step `end`.

    Steps are the nodes that the allocator walks (copies included), -1 is before the first; `end` None means to the
    end of the graph, `kept` that the tensor is an output. `reused` names the source whose memory it took over.
    """

    tensor: str
    buft: str
    chunk: int
    offset: int
    size: int
    start: int
    end: int | None = None
    kept: bool = False
    reused: str | None = None

    def alive(self, step: int) -> bool:
        """Whether the tensor takes up memory while the node of `step` is computed."""
        return self.start <= step and (self.end is None or step <= self.end)


class Allocation(NamedTuple):
    """A lifetime with the numbers of the events at which it began and ended (None: never). `took` is the number of the
    lifetime whose bytes it took over. At event `trimmed` it gave back `given_back` bytes of them (None: it did not)."""

    life: TensorLifetime
    born: int
    died: int | None = None
    took: int | None = None
    trimmed: int | None = None
    given_back: int = 0


class Peak(NamedTuple):
    """The step with most bytes alive in a buffer, and the tensors there, largest first."""

    step: int
    node: str
    nbytes: int
    tensors: tuple[TensorLifetime, ...]


class PlacedAt(NamedTuple):
    """A tensor at its place."""

    tensor: str
    buft: str
    chunk: int
    offset: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What the allocator planned: lifetimes in the order of their allocation, and the node of each step.

    `tails` are the tensors that gave back what the node in their place does not need.
    """

    lifetimes: tuple[TensorLifetime, ...] = ()
    nodes: tuple[str, ...] = ()
    tails: tuple[str, ...] = ()

    def turns(self, numbers: Mapping[str, int]) -> tuple[str, ...]:
        """The node of each step with its number in the graph; what the scheduler put between has none."""
        return tuple(f"{numbers[name]} {name}" if name in numbers else name for name in self.nodes)

    def of(self, buft: str, chunk: int | None = None) -> list[TensorLifetime]:
        """The tensors of one buffer type, or of one chunk of it."""
        return [life for life in self.lifetimes if life.buft == buft and chunk in (None, life.chunk)]

    def chunk_sizes(self, buft: str) -> list[int]:
        """The bytes that each chunk of a buffer must have, by what was placed there."""
        sizes: list[int] = []
        for life in self.of(buft):
            sizes += [0] * (life.chunk + 1 - len(sizes))
            sizes[life.chunk] = max(sizes[life.chunk], life.offset + life.size)
        return sizes

    def alive(self, buft: str, chunk: int | None = None) -> list[int]:
        """The bytes alive in a buffer, or in a chunk of it, before the first node and while each is computed."""
        change = [0] * (len(self.nodes) + 2)
        for life in self.of(buft, chunk):
            change[life.start + 1] += life.size
            if life.end is not None:
                change[life.end + 2] -= life.size
        return list(accumulate(change[:-1]))

    def peak(self, buft: str) -> Peak | None:
        """When most bytes are alive in a buffer, and what they are; None for an empty buffer."""
        lives = self.of(buft)
        if not lives:
            return None
        alive = self.alive(buft)
        best = max(alive)
        best_step = alive.index(best) - 1
        there = sorted((life for life in lives if life.alive(best_step)), key=lambda life: (-life.size, life.offset))
        return Peak(best_step, self.nodes[best_step] if best_step >= 0 else "", best, tuple(there))


class MemoryRecorder(Part):
    """The lifetimes of the allocator's last plan, while it is made.

    Copies of tensors with the same name have the same name too, so what is freed is known by its place as well.
    Tensors without bytes lie nowhere. `number` is that of the event that is heard, for who counts events.
    """

    hears = frozenset({AllocationStarted, Allocated, Reused, Freed, Kept})

    def __init__(self) -> None:
        self.number = 0
        self._begin_anew()

    @property
    def allocations(self) -> list[Allocation]:
        """The lifetimes so far, with the events at which they began and ended."""
        return [made._replace(life=life) for made, life in zip(self._made, self._lives, strict=True)]

    @property
    def plan(self) -> MemoryPlan:
        """What was planned so far."""
        return MemoryPlan(tuple(self._lives), tuple(self._nodes), tuple(self._tails))

    @property
    def living(self) -> list[TensorLifetime]:
        """Those that have not ended."""
        return [self._lives[i] for i in self._there.values()]

    def hear(self, event: Event) -> None:
        match event:
            case AllocationStarted(at=-1):
                self._begin_anew()
            case AllocationStarted(at, node):
                self._step = at
                self._nodes.append(node)
            case Allocated(tensor, buft, chunk, offset, size) if size:
                self._begin(TensorLifetime(tensor, buft, chunk, offset, size, self._step))
            case Reused(tensor, parent, buft, chunk, offset):
                if (parent, buft, chunk, offset) in self._there:
                    size = self._end(parent, buft, chunk, offset, self._step - 1).size
                    self._begin(TensorLifetime(tensor, buft, chunk, offset, size, self._step, reused=parent))
            case Freed(tensor, extra=True):
                self._lives[-1] = self._lives[-1]._replace(size=self._lives[-1].size - event.size)
                self._made[-1] = self._made[-1]._replace(trimmed=self.number, given_back=event.size)
                self._tails.append(tensor)
            case Freed(tensor, buft, chunk, offset) if event.size:
                self._end(tensor, buft, chunk, offset, self._step)
            case Kept(tensor):
                for i in self._there.values():
                    if self._lives[i].tensor == tensor:
                        self._lives[i] = self._lives[i]._replace(kept=True)
            case _:
                pass

    def put(self, moves: Mapping[PlacedAt, PlacedAt]) -> None:
        """Tensors lie elsewhere than was said: by where they were, where they are."""
        for i, life in enumerate(self._lives):
            at = moves.get(PlacedAt(life.tensor, life.buft, life.chunk, life.offset))
            if at is not None:
                self._lives[i] = life._replace(chunk=at.chunk, offset=at.offset)

    def _begin_anew(self) -> None:
        self._lives: list[TensorLifetime] = []
        self._nodes: list[str] = []
        self._tails: list[str] = []
        self._there: dict[tuple[str, str, int, int], int] = {}
        self._step = -1
        self._made: list[Allocation] = []
        self._ended = -1

    def _begin(self, life: TensorLifetime) -> None:
        self._made.append(Allocation(life, self.number, took=None if life.reused is None else self._ended))
        self._there[life.tensor, life.buft, life.chunk, life.offset] = len(self._lives)
        self._lives.append(life)

    def _end(self, tensor: str, buft: str, chunk: int, offset: int, step: int) -> TensorLifetime:
        i = self._ended = self._there.pop((tensor, buft, chunk, offset))
        self._lives[i] = self._lives[i]._replace(end=step)
        self._made[i] = self._made[i]._replace(died=self.number)
        return self._lives[i]


AllocEvent = AllocationStarted | Allocated | Reused | NotReused | Freed | Kept


class Block(NamedTuple):
    """A range of a chunk. `tensor` is who lies there, "" for a free block."""

    offset: int
    size: int
    tensor: str = ""


class AllocStep(NamedTuple):
    """An event of the allocator, with the state of the chunk it changed; None if it changed none."""

    event: AllocEvent
    chunk: ChunkState | None


class AllocMoment(NamedTuple):
    """The allocator right after a tensor got its memory, before its sources are given back.

    `nodes` are the hash nodes by the tensor's index, `chunks` and `taken` the chunks of each buffer id and what lies
    in them. `most_free` are the free blocks that a chunk had at most, by its buffer type's name and number.
    """

    nodes: dict[int, HashNodeState]
    chunks: tuple[tuple[ChunkState, ...], ...]
    taken: tuple[tuple[tuple[Block, ...], ...], ...]
    most_free: Mapping[tuple[str, int], int]


class AllocRecorder(Part):
    """The steps of the allocator's last plan with its lifetimes, and the moment the tensor `at` was allocated.

    Of a tensor that gets no memory from the allocator (a view, or one that is pre-allocated), the moment is when the
    allocator turns to it. `before`: the moment is when it turns to the node `at`, whatever that gets. `moment` stays
    None where the plan has no tensor (or node) of that name. `most_free` is that of `AllocMoment`, of all plans.
    """

    hears = frozenset({*MemoryRecorder.hears, NotReused})

    def __init__(self, at: str | None = None, before: bool = False) -> None:
        self.gallocr: AnyGallocr | None = None
        self.at = at
        self.before = before
        self.steps: list[AllocStep] = []
        self.moment: AllocMoment | None = None
        self.most_free: dict[tuple[str, int], int] = {}
        self.lifetimes = MemoryRecorder()

    def attach(self, sched: AnyScheduler) -> None:
        self.gallocr = sched.gallocr

    def hear(self, event: AllocEvent) -> None:
        if isinstance(event, AllocationStarted) and event.at == -1:
            self.steps = []
            self.moment = None
        self.lifetimes.hear(event)
        state = None
        if self.gallocr is not None and isinstance(event, (Allocated, Freed)):
            names = [b.name for b in self.gallocr.bufts]
            state = chunk_states(self.gallocr.buf_tallocs[names.index(event.buft)])[event.chunk]
            place = event.buft, event.chunk
            self.most_free[place] = max(self.most_free.get(place, 1), len(state.free_blocks))
        self.steps.append(AllocStep(event, state))
        match event:
            case Allocated(tensor=tensor) | Reused(tensor=tensor):
                is_the_moment = tensor == self.at and not self.before
            case AllocationStarted(node=node):
                is_the_moment = self.at is not None and node == self.at and self.moment is None
            case _:
                is_the_moment = False
        if self.gallocr is not None and is_the_moment:
            self.moment = self._now(self.gallocr)

    def _now(self, gallocr: AnyGallocr) -> AllocMoment:
        def blocks(buft: str, chunk: int) -> tuple[Block, ...]:
            there = (life for life in self.lifetimes.living if (life.buft, life.chunk) == (buft, chunk))
            return tuple(sorted(Block(life.offset, life.size, life.tensor) for life in there))

        chunks = tuple(map(chunk_states, gallocr.buf_tallocs))
        taken = tuple(
            tuple(blocks(buft.name, c) for c in range(len(states)))
            for buft, states in zip(gallocr.bufts, chunks, strict=True)
        )
        return AllocMoment(dict(enumerate(hash_nodes(gallocr))), chunks, taken, dict(self.most_free))
