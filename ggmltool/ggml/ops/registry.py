"""How an op is declared: its constructor (a function that makes the result tensor) and its kernel.

A constructor is written as ggml's own: `ggml_soft_max_ext(ctx, a, mask, scale, max_bias)` is

    @constructor(
        Op.SOFT_MAX,
        "soft_max",
        "soft_max_ext",
        pack="f:scale f:max_bias",
        inplace=True,
        example="kq: f32[32, 4, 2]; mask: f16[32, 4]; soft_max(kq, mask, scale=0.125)",
        shape="mask.type in (f16, f32); mask.ne[0] = a.ne[0]; … -> a.type[a.ne]",
        means={"scale": "factor of the scores", "max_bias": "largest slope of ALiBi; 0 for no slopes"},
    )
    def soft_max_ext(ctx: Context, a: Tensor, mask: Tensor | None = None, scale: float = 1.0,
                     max_bias: float = 0.0, *, inplace: bool = False) -> Tensor: ...

Arguments annotated as tensors are the sources of a scenario's node, the others its parameters, in this order and by
these names. `pack` says which word of op_params holds which parameter ("f:" float bits, "i:" int32, "_" unused), so
that the parameters of a captured graph, raw words, can be read back; where they follow from its shape as well (`ne` of
a reshape), an `unpack` function reads them.

All that is known of an op is said here, and tables, messages, the manual's reference, the oracle's prototypes and the
fuzzers' nodes follow from it: `since` which day ggml has it (of its own repository, from 2024 on; after 2026-08-21 that
of the first build of llama.cpp that has it, of all that were looked at), as small an `example` as can be, what the
constructor asks of the `shape` and type of its sources and what comes out, what each parameter `means`.

A shape is what is asked, one thing behind the other; -> type[extents]. out(n, k, s, p, d) is the extent of a
convolution, (n + 2p - d (k - 1) - 1) / s + 1, and pool(n, k, s, p) that of a pooling, (n + 2p - k) / s + 1. What begins
with a source that may be left out is asked where it is there; strides are another matter, but for "is contiguous". A
name in `means` that ends in # stands for all that differ in the number at their end.

A constructor raises GgmlAssert where ggml would, and ValueError for parameters that no call of ggml's could have.

A node lists its sources in the order of its slots (node.src), which is not always that of the constructor's arguments:
ggml_set_rows(a, b, c) leaves b, c, a, ggml_get_rows_back(a, b, c) leaves no c, and ggml_cast leaves a and the node
itself. `slots="b c a"` says what the slots hold, "self" for the node. A node written with its slots goes through
`for_node(op, src, node)`, the constructor whose slots fit, and `call_order(src)`, its sources in the order of the call:

    c = for_node(node.op, node.src, node)
    c.build(ctx, *c.call_order(node.src), **parameters)

The sources of ggml's `args, n_args` are one argument with a star: `*args: Tensor | None`.
"""

from __future__ import annotations

import functools
import inspect
import re
import struct
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ggmltool.ggml import ops
from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.op import Op, OpRules
from ggmltool.ggml.tensor import MAX_SRC, Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

S = TypeVar("S")

SELF = "self"
"""In `slots`: the node itself."""

int64_t = int
size_t = int
"""In a constructor's signature: a number that C takes as another type than int."""

Build = Callable[..., Tensor]
"""A constructor: (ctx, *sources, **parameters) -> result."""


def _unmade(*_: object, **__: object) -> Tensor:
    raise NotImplementedError("a constructor is declared before its function")


@dataclass(frozen=True, slots=True)
class Raw:
    """What a captured node says about itself: the raw words of its op_params and its explicit shape."""

    op_params: tuple[int, ...]
    type: Any
    ne: tuple[int, int, int, int]
    nb: tuple[int, int, int, int]
    view_offs: int

    def word(self, i: int) -> int:
        """Word `i` of op_params as ggml reads it: zero if none is given."""
        return self.op_params[i] if i < len(self.op_params) else 0


Unpack = Callable[[Raw], "dict[str, Any] | None"]
"""Tells a constructor's parameters from a captured node; None if they cannot be told."""


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of a constructor: its name, the annotation as written, and whether it may be left out.

    `choices` maps the words accepted for an enumeration (`neox`) to its numbers. `default` is what it is when left out
    (None if it is required).
    """

    name: str
    kind: str
    required: bool
    choices: Mapping[str, int] | None = None
    default: object = None


class OpPart(NamedTuple):
    """What an op has since a day: a source in slot `source`, or one of these `words` of op_params that is not `before`,
    values that the word always had.
    """

    what: str
    since: str
    source: int = -1
    words: tuple[int, ...] = ()
    before: tuple[int, ...] = (0,)

    def is_in(self, src: Sequence[object], op_params: Sequence[int]) -> bool:
        """Whether a node with these sources and words has it."""
        if self.source >= 0:
            return len(src) > self.source and src[self.source] is not None
        return any(len(op_params) > word and op_params[word] not in self.before for word in self.words)


class ShapeRule(NamedTuple):
    """What a constructor asks, each in a line, and the type and extents of its result."""

    asks: tuple[str, ...]
    gives: str


COMMON_MEANINGS = {
    "ne": "extents of the result",
    "ne#": "extent of dimension #",
    "nb#": "byte stride of dimension #",
    "offset": "bytes from the beginning of a",
    "type": "type of the result",
}
"""What parameters of these names mean where their constructor and their op do not say."""


_C_NUMBER = re.compile(r"\b(?:int64_t|size_t)\b")


class _Signature(NamedTuple):
    """What the arguments of a constructor are: `shown` the sources as texts call them, `n_most` how many ggml takes."""

    sources: tuple[str, ...]
    shown: tuple[str, ...]
    n_required: int
    n_most: int
    params: tuple[Param, ...]


@dataclass(slots=True)
class Constructor:
    """A ggml constructor as a scenario may name it; called with its function it registers that (see the module).

    It has the function's name, without a "_" at the end, or `name`, and by `also` another one. `inplace`: it has an
    `_inplace` twin, the keyword `inplace=True`, which ggml has since `inplace_since` if that is younger. `canonical`:
    it is the one that long-form and captured nodes of `op` go through (the first one registered for an op is, unless
    another claims it). `by_name_only`: nodes of `op` that were not written as a call do not go through it. `parts` are
    what the op has since other days, `note` is what else is to be said. `prototype` is what ggml's function takes where
    that is not what the constructor does, as letters (`oracle.prototypes`), or that of each function of these; "" for
    none.
    """

    op: Op
    name: str = ""
    also: str = ""
    pack: str = ""
    inplace: bool = False
    canonical: bool = False
    unpack: Unpack | None = None
    choices: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    slots: str = ""
    by_name_only: bool = False
    since: str = ""
    inplace_since: str = ""
    example: str = ""
    shape: str = ""
    means: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    parts: tuple[OpPart, ...] = ()
    prototype: str | Mapping[str, str] | None = None
    build: Build = _unmade
    _signature: _Signature | None = field(default=None, repr=False)

    def __call__(self, build: Build) -> Build:
        """Register the function that makes the result."""
        for name in (self.name or build.__name__.rstrip("_"), self.also):
            if name:
                entry = replace(self, name=name, build=build, inplace_since=self.inplace_since or self.since)
                CONSTRUCTORS[name] = entry
                by_op = SELF_BY_OP if entry.makes_self_edge else BY_OP
                if not self.by_name_only and (self.canonical or self.op not in by_op):
                    by_op[self.op] = entry
        return build

    def _inspect(self) -> _Signature:
        if self._signature is None:
            sources: list[str] = []
            shown: list[str] = []
            needed = spare = 0
            params: list[Param] = []
            for i, p in enumerate(inspect.signature(self.build).parameters.values()):
                kind = _C_NUMBER.sub("int", str(p.annotation))
                if i == 0 or p.name == "inplace":
                    continue
                if p.kind is inspect.Parameter.VAR_POSITIONAL:
                    shown.append(f"{p.name}…")
                    # One more than ggml takes, so that the constructor can refuse it in ggml's words.
                    sources += [f"{p.name}[{n}]" for n in range(MAX_SRC - len(sources))]
                    spare = 1
                elif kind.startswith("Tensor"):
                    sources.append(p.name)
                    shown.append(p.name.rstrip("_"))
                    if p.default is inspect.Parameter.empty:
                        needed = len(sources)
                else:
                    required = p.default is inspect.Parameter.empty
                    default = None if required else p.default
                    params.append(Param(p.name, kind, required, self.choices.get(p.name), default))
            self._signature = _Signature(tuple(sources), tuple(shown), needed, len(sources) - spare, tuple(params))
        return self._signature

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the source tensors, in ggml's order."""
        return self._inspect().sources

    @property
    def shown_sources(self) -> tuple[str, ...]:
        """The sources as texts call them: without a keyword's "_", and any number of them by one name, `args…`."""
        return self._inspect().shown

    @property
    def n_required_sources(self) -> int:
        return self._inspect().n_required

    @property
    def n_most_sources(self) -> int:
        return self._inspect().n_most

    @property
    def params(self) -> tuple[Param, ...]:
        """The other parameters, in ggml's order."""
        return self._inspect().params

    @property
    def rule(self) -> ShapeRule:
        """`shape` in its parts; empty where the result follows from parameters alone."""
        asks, _, gives = self.shape.partition("->")
        return ShapeRule(tuple(part.strip() for part in asks.split(";") if part.strip()), gives.strip())

    def meaning(self, param: str) -> str:
        """What a parameter means in a few words: by its own name, else by that of all that differ in their number."""
        stem = param.rstrip("0123456789")
        of_op = CONSTRUCTORS.get(self.op.name.lower()) or self
        for means in (self.means, of_op.means, COMMON_MEANINGS):
            found = means.get(param) or means.get(f"{stem}#", "").replace("#", param[len(stem) :])
            if found:
                return found
        return ""

    @property
    def makes_self_edge(self) -> bool:
        """Whether the node is a source of itself (ggml_cast)."""
        return SELF in self.slots.split()

    def call_order(self, src: Sequence[S | None]) -> list[S | None]:
        """What a node's slots hold, in the order of the constructor's arguments; without the node itself.

        Slots beyond those that are declared stay where they are, so that a source too many is noticed.
        """
        if not self.slots:
            return list(src)
        slots = self.slots.split()
        held = {name: src[i] if i < len(src) else None for i, name in enumerate(slots)}
        out = [held.get(name) for name in self.sources] + list(src[len(slots) :])
        while out and out[-1] is None:
            out.pop()
        return out

    def read_params(self, raw: Raw) -> dict[str, Any] | None:
        """The parameters of a captured node, from its raw words; None if they cannot be told."""
        if self.unpack is not None:
            return self.unpack(raw)
        if not self.pack and self.params:
            return None
        out: dict[str, Any] = {}
        for i, word in enumerate(self.pack.split()):
            if word != "_":
                bits = raw.word(i)
                out[word[2:]] = float_of(bits) if word[0] == "f" else bits
        return out


K = TypeVar("K", int, str)


class Registry(dict[K, Constructor]):
    """Constructors: families of ops are imported until one has what is asked. To walk through all, `load()` first."""

    def __missing__(self, key: K) -> Constructor:
        for _ in ops.families():
            if key in self:
                return self[key]
        raise KeyError(key)

    def get(self, key: K) -> Constructor | None:  # type: ignore[override]
        """The constructor, found as by `[key]`; None if there is none."""
        try:
            return self[key]
        except KeyError:
            return None


CONSTRUCTORS: Registry[str] = Registry()
"""Every constructor by the name a scenario uses."""

BY_OP: Registry[int] = Registry()
"""For each op the constructor that takes all of its parameters."""

SELF_BY_OP: Registry[int] = Registry()
"""The same for nodes that are a source of themselves."""

COMPOSITES: Registry[str] = Registry()
"""Functions of ggml's that build several nodes, by name (see `composites`); `op` is that of the last node."""


def since_of(name: str) -> str:
    """The day since which ggml has the op, the function or the constructor of this name, "" for before 2024."""
    base = name.removesuffix("_inplace")
    c = CONSTRUCTORS.get(base)
    if c is None:
        return ""
    return c.since if name == base else c.inplace_since


def for_node(op: int, src: Sequence[S | None], node: S) -> Constructor | None:
    """The constructor that a node with these slots goes through, None if the op has none; `src` calls it `node`."""
    return SELF_BY_OP.get(op) if node in src else BY_OP.get(op)


def words(*values: int) -> tuple[int, ...]:
    """op_params from words: each cut to an int32 as ggml stores it, without trailing zeros."""
    last = len(values)
    while last and values[last - 1] & 0xFFFFFFFF == 0:
        last -= 1
    return tuple((v + 0x80000000 & 0xFFFFFFFF) - 0x80000000 for v in values[:last])


def float_bits(x: float) -> int:
    """The int32 whose bits are those of the float32 nearest to `x`."""
    try:
        return int(struct.unpack("<i", struct.pack("<f", x))[0])
    except OverflowError:
        return int(struct.unpack("<i", struct.pack("<f", float("inf") if x > 0 else float("-inf")))[0])


def float_of(bits: int) -> float:
    """The float32 with the bits of the int32 `bits`."""
    return float(struct.unpack("<f", struct.pack("<i", bits))[0])


constructor = Constructor
"""Declares a constructor: `@constructor(Op.SUM, …)` before its function."""


class Arrays(Protocol):
    """What a kernel sees of memory: tensors as arrays of shape `ne` reversed, on the device that computes.

    `xp` is the array library, `rules` are those of the ggml whose kernels compute. Off the host (`on_host` false) a
    kernel neither rounds as ggml's CPU does nor looks at indices before it uses them, for which the host would have to
    wait.
    """

    xp: Any
    on_host: bool
    rules: OpRules

    def raw(self, t: Tensor, verb: str = "reads") -> Any:
        """A strided view of the tensor's memory in its own type (f16, bf16, i32 …; quantized: see `f32`)."""
        ...

    def f32(self, t: Tensor) -> NDArray[Any]:
        """The values as float32: a view for f32, else converted or dequantized."""
        ...

    def put(self, t: Tensor, values: Any) -> None:
        """Write values (shape `ne` reversed, or broadcastable to it), converted to the tensor's type as ggml does."""
        ...

    def kept(self, t: Tensor, part: Hashable, convert: Callable[[], Any]) -> Any:
        """What `convert` makes of a part of `t`; of weights it may be what it made before."""
        ...

    def written(self, t: Tensor) -> None:
        """The memory of `t` has been written to, other than by `put`."""
        ...

    def decode(self, data: Any, type: DType) -> Any:
        """Elements as `raw` has them, or rows of quantized ones, as float32."""
        ...

    def encode(self, values: Any, type: DType) -> Any:
        """Values as the elements of `type`, or its quantized rows, that `raw` takes."""
        ...

    def to_host(self, values: Any) -> NDArray[Any]:
        """Values as an array of numpy; the host waits for them."""
        ...

    def from_host(self, values: Any) -> Any:
        """The host's values as an array of `xp`."""
        ...


Kernel = Callable[[Arrays, Tensor], None]

KERNELS: dict[int, Kernel] = {}
"""The kernel of each op."""


def kernel(*ops: Op) -> Callable[[Kernel], Kernel]:
    """Register the function that computes `ops`: it reads the sources and writes the result, which is not empty.

    Infinities and NaN are values to ggml, so numpy's warnings about them are off while it runs.
    """

    def register(fn: Kernel) -> Kernel:
        @functools.wraps(fn)
        def quiet(x: Arrays, dst: Tensor) -> None:
            import numpy as np

            if 0 in dst.ne:
                return
            with np.errstate(all="ignore"):
                fn(x, dst)
            x.written(dst)

        for op in ops:
            KERNELS[op] = quiet
        return fn

    return register
