"""What the engine announces while it works: every decision, with its reason as a code and its facts.

A listener is a callable that takes one event; without one an announcement costs a single test. Tensors are named by
their ids, buffers by their buffer types, positions by the index of the node in the graph the allocator walks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from ggmltool.ggml.why import NO_FACTS, Facts, Why


class Entered(NamedTuple):
    """A function that mirrors one of ggml's begins; `detail` is its argument as people write it."""

    function: str
    detail: str = ""


class Left(NamedTuple):
    """The function that was entered last (and not left) is done."""

    function: str


class Assigned(NamedTuple):
    """A tensor got a backend. `rule` is the scheduler's pass (0 the user's call, 1 to 4), `cause` ggml's label.

    `by` is the tensor that settled it: the one with memory, the weight, the neighbor, the view's source, the user of a
    source; "" if it was none. `why` is the reason's code, `facts` what it is about.
    """

    tensor: str
    backend: str
    rule: int
    cause: str
    why: Why
    by: str = ""
    facts: Facts = NO_FACTS


class PassedOver(NamedTuple):
    """A rule was asked for a tensor and did not settle it; `backend` is the one it was asked of, if any."""

    tensor: str
    rule: int
    cause: str
    why: Why
    backend: str = ""
    facts: Facts = NO_FACTS


class Refused(NamedTuple):
    """A backend was considered for a tensor by the rule `cause` and does not support its op.

    `condition` is what the device's rule says, in its own words; `lacks`: it has no such op at all.
    """

    tensor: str
    backend: str
    rule: int
    cause: str
    condition: str
    lacks: bool = False


class SplitStarted(NamedTuple):
    """A new split begins at node `at`."""

    split: int
    backend: str
    at: int
    node: str
    why: Why
    facts: Facts = NO_FACTS


class InputAdded(NamedTuple):
    """`tensor` will be copied to `backend` before `split`, for its node `node`."""

    split: int
    backend: str
    tensor: str
    node: str
    copies: tuple[str, ...]


class GraphInputCopied(NamedTuple):
    """Pipeline copies of a graph input were made on its own backend."""

    tensor: str
    backend: str
    copies: tuple[str, ...]


class Reordered(NamedTuple):
    """A device put the nodes of a split, of which the first was number `at`, into an order of its own."""

    backend: str
    at: int
    nodes: tuple[str, ...]


class KeptUntil(NamedTuple):
    """A device wants a tensor to keep its memory until a node of its split has been computed."""

    backend: str
    tensor: str
    until: str


class AllocationStarted(NamedTuple):
    """The allocator turns to node `at` (-1: leafs and inputs, before the first node)."""

    at: int
    node: str


class Allocated(NamedTuple):
    """A tensor got `size` bytes (rounded up to the alignment) at `offset` of `chunk` in buffer type `buft`.

    `asked` is the size before rounding, 0 if unknown.
    """

    tensor: str
    buft: str
    chunk: int
    offset: int
    size: int
    asked: int = 0


class Reused(NamedTuple):
    """A node is computed in the memory of its source `parent`."""

    tensor: str
    parent: str
    buft: str
    chunk: int
    offset: int


class NotReused(NamedTuple):
    """A node could have been computed in the memory of `parent`, but for what `why` says."""

    tensor: str
    parent: str
    why: Why
    facts: Facts = NO_FACTS


class Freed(NamedTuple):
    """A tensor's `size` bytes were given back. `extra`: only the tail that an in-place node does not need.

    `asked` is the size before rounding, 0 if unknown.
    """

    tensor: str
    buft: str
    chunk: int
    offset: int
    size: int
    extra: bool = False
    asked: int = 0


class Kept(NamedTuple):
    """A tensor is not needed any more and stays, because it is a graph output."""

    tensor: str


class Grown(NamedTuple):
    """A compute buffer was (re)allocated, sizes in bytes of all its chunks."""

    buft: str
    old_size: int
    new_size: int


class ReallocNeeded(NamedTuple):
    """The reserved plan does not serve a graph. Sizes are bytes (or numbers of nodes or leafs), None where neither is
    the matter. `node` is where it was found out; `slot` says that `tensor` is this source of it.
    """

    why: Why
    tensor: str = ""
    old_size: int | None = None
    new_size: int | None = None
    node: str = ""
    slot: int | None = None


class IdsChanged(NamedTuple):
    """Node or leaf `at` of the scheduler's graph has another buffer type than last time."""

    at: int
    tensor: str
    is_leaf: bool
    old_backend: str
    new_backend: str


class UsedAfterFree(NamedTuple):
    """`tensor` lies in a compute buffer that was freed in step number `step`, to grow from `old_size` to `new_size`
    bytes, and is used: by `node`, which is computed, or ("") read or written by the program.
    """

    tensor: str
    node: str
    buft: str
    old_size: int
    new_size: int
    step: int


class Logged(NamedTuple):
    """A line that ggml logs in a release build."""

    level: str
    text: str


class Synchronized(NamedTuple):
    """The host waited for all of a backend's work."""

    backend: str


class EventCall(NamedTuple):
    """An event of the pipeline: `call` is record, wait or synchronize; `copy` the pipeline copy it belongs to."""

    call: str
    backend: str
    copy: int


class TensorCopied(NamedTuple):
    """Bytes moved between tensors of two buffers.

    `how`: "set" (from host memory), "get" (to host memory), "cpy" and "async" (by the device), "bounce" (got, then
    set, for want of anything better).
    """

    src: str
    dst: str
    nbytes: int
    how: str
    src_buft: str
    dst_buft: str


class TensorWritten(NamedTuple):
    """Bytes written to (`get` False) or read from a tensor, at `offset`."""

    tensor: str
    buft: str
    offset: int
    nbytes: int
    get: bool = False


class Computed(NamedTuple):
    """A backend computed nodes of one split (-1: of a graph that no scheduler split)."""

    split: int
    backend: str
    nodes: tuple[str, ...]


Event = (
    Entered | Left | Assigned | PassedOver | Refused | SplitStarted | InputAdded | GraphInputCopied | KeptUntil
    | Reordered | AllocationStarted | Allocated | Reused | NotReused | Freed | Kept | Grown | ReallocNeeded |
    IdsChanged | UsedAfterFree | Logged | Synchronized | EventCall | TensorCopied | TensorWritten | Computed
)  # fmt: skip
Said = Assigned | PassedOver | Refused
"""What is announced about one tensor while backends are assigned."""

SPLIT_GRAPH = ("ggml_backend_sched_split_graph", "sched_split_graph")
"""The function in which a scheduler assigns backends and cuts the graph: its name, and that of January 2024."""

Listener = Callable[[Event], None]


class _Listened(Protocol):
    """Who has a listener, or none."""

    events: Listener | None


_S = TypeVar("_S", bound=_Listened)
_P = ParamSpec("_P")
_R = TypeVar("_R")
_Call = Callable[Concatenate[_S, _P], _R]


def announced(function: str) -> Callable[[_Call[_S, _P, _R]], _Call[_S, _P, _R]]:
    """A method, or a function of a scheduler, that mirrors ggml's `function`. One that fails is never done."""

    def decorate(call: _Call[_S, _P, _R]) -> _Call[_S, _P, _R]:
        @wraps(call)
        def telling(s: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            if s.events is None:
                return call(s, *args, **kwargs)
            s.events(Entered(function))
            result = call(s, *args, **kwargs)
            s.events(Left(function))
            return result

        return telling

    return decorate
