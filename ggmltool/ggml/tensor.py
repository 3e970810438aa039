"""ggml_tensor and the predicates on its layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.op import IS_VIEW_OP, GluOp, Op, UnaryOp, op_key
from ggmltool.ggml.version import SIZE_MAX

if TYPE_CHECKING:
    from ggmltool.ggml.buffer import Buffer

MAX_DIMS = 4
MAX_SRC = 10
MAX_OP_PARAMS = 16
"""Words of op_params (GGML_MAX_OP_PARAMS is 64 bytes)."""
MAX_NAME = 64

FLAG_INPUT = 1
FLAG_OUTPUT = 2
FLAG_PARAM = 4
FLAG_LOSS = 8
FLAG_COMPUTE = 16
FLAGS: dict[str, int] = {"input": FLAG_INPUT, "output": FLAG_OUTPUT, "param": FLAG_PARAM, "loss": FLAG_LOSS}

Dims = tuple[int, int, int, int]

CustomFunction = Callable[..., Any]
"""What computes a node of a custom op: given the values of its sources, it returns those of the result."""


def cut_name(name: str) -> str:
    """The name as ggml stores it: at most 63 bytes, cut without regard to characters (ggml_set_name).

    A byte that is half a character stays as a surrogate escape, so that printing it gives ggml's bytes.
    """
    if len(name) * 4 < MAX_NAME:
        return name
    raw = name.encode("utf-8", "surrogateescape")
    if len(raw) < MAX_NAME:
        return name
    return raw[: MAX_NAME - 1].decode("utf-8", "surrogateescape")


def contiguous_nb(type: DType, ne: Dims) -> Dims:
    """The byte strides of a new tensor (ggml_new_tensor_impl)."""
    nb0 = type.type_size
    nb1 = nb0 * (ne[0] // type.block_size)
    nb2 = nb1 * ne[1]
    return (nb0, nb1, nb2, nb2 * ne[2])


def nbytes_of(type: DType, ne: Dims, nb: Dims) -> int:
    """ggml_nbytes: the bytes from the first to the last element, strides included."""
    if ne[0] <= 0 or ne[1] <= 0 or ne[2] <= 0 or ne[3] <= 0:
        return 0
    block = type.block_size
    first = type.type_size + (ne[0] - 1) * nb[0] if block == 1 else ne[0] * nb[0] // block
    return first + (ne[1] - 1) * nb[1] + (ne[2] - 1) * nb[2] + (ne[3] - 1) * nb[3]


def nbytes_of_empty(type: DType, ne: Dims, nb: Dims) -> int:
    """ggml_nbytes of a tensor without elements where ggml does not ask for them: its sum, in a size_t."""
    block = type.block_size
    first = type.type_size + (ne[0] - 1) * nb[0] if block == 1 else ne[0] * nb[0] // block
    return (first + (ne[1] - 1) * nb[1] + (ne[2] - 1) * nb[2] + (ne[3] - 1) * nb[3]) & SIZE_MAX


class Tensor:
    """A ggml_tensor.

    `id` is the tensor's name in the scenario (unique there), `name` what ggml calls it (at most 63 bytes, need not
    be unique). `index` is a small integer that the scheduler and the allocator index their state lists with.
    `data` is a simulated address (0 is NULL), `nbytes` ggml_nbytes and `key` the op key of `ggml.op`; both follow
    from the other fields. `src` has no trailing holes; a hole in front is None. `fun` is the Python function of a
    node whose op is a custom one (`ops/custom.py`), where somebody has given it one.
    """

    __slots__ = (
        "buffer", "data", "flags", "fun", "id", "index", "is_view_op", "key", "name", "nb", "nbytes", "ne",
        "op", "op_params", "src", "type", "view_offs", "view_src",
    )  # fmt: skip

    def __init__(
        self,
        type: DType,
        ne: Dims,
        nb: Dims | None = None,
        op: int = 0,
        op_params: tuple[int, ...] = (),
        flags: int = 0,
        src: list[Tensor | None] | None = None,
        view_src: Tensor | None = None,
        view_offs: int = 0,
        name: str = "",
        id: str = "",
        index: int = -1,
    ) -> None:
        self.type = type
        self.ne = ne
        self.nb = nb if nb is not None else contiguous_nb(type, ne)
        self.nbytes = nbytes_of(type, ne, self.nb)
        self.op = op
        self.op_params = op_params
        self.key = op_key(op, op_params)
        self.is_view_op = IS_VIEW_OP[op]
        self.flags = flags
        self.src: list[Tensor | None] = src if src is not None else []
        self.view_src = view_src
        self.view_offs = view_offs
        self.buffer: Buffer | None = None
        self.data = 0
        self.name = name
        self.id = id
        self.index = index
        self.fun: CustomFunction | None = None

    def __repr__(self) -> str:
        return f"<Tensor {self.label!r} {Op(self.op).name} {self.type.name}{list(self.ne)}>"

    @property
    def label(self) -> str:
        """What events, plans and views call it: its id, or the name of a copy or dependency, which has no id."""
        return self.id or self.name

    def clone(self, index: int) -> Tensor:
        """The same tensor anew: without sources, memory and view source, with an index of its own."""
        t = Tensor.__new__(Tensor)
        t.type = self.type
        t.ne = self.ne
        t.nb = self.nb
        t.nbytes = self.nbytes
        t.op = self.op
        t.op_params = self.op_params
        t.key = self.key
        t.is_view_op = self.is_view_op
        t.flags = self.flags
        t.src = []
        t.view_src = None
        t.view_offs = self.view_offs
        t.buffer = None
        t.data = 0
        t.name = self.name
        t.id = self.id
        t.index = index
        t.fun = self.fun
        return t

    def become_like(self, src: Tensor, name: str, index: int) -> None:
        """Be a new tensor of the type, extents and strides of `src`, whatever this one was before."""
        self.type = src.type
        self.ne = src.ne
        self.nb = src.nb
        self.nbytes = src.nbytes
        self.op = 0
        self.op_params = ()
        self.key = 0
        self.is_view_op = False
        self.flags = 0
        self.src = []
        self.view_src = None
        self.view_offs = 0
        self.buffer = None
        self.data = 0
        self.name = name
        self.id = ""
        self.index = index
        self.fun = None

    def set_layout(self, ne: Dims, nb: Dims) -> None:
        """Change extents and strides after creation, as ggml's view constructors do."""
        self.ne = ne
        self.nb = nb
        self.nbytes = nbytes_of(self.type, ne, nb)

    def set_op(self, op: Op, op_params: tuple[int, ...] = (), *src: Tensor | None) -> Self:
        """Make this tensor the result of `op`: at most 16 words of parameters, at most 10 sources; and return it."""
        self.op = op
        self.op_params = op_params
        self.key = op_key(op, op_params)
        self.is_view_op = IS_VIEW_OP[op]
        last = len(src)
        while last and src[last - 1] is None:
            last -= 1
        self.src = list(src[:last])
        return self


def flag_names(flags: int) -> list[str]:
    """The names of a tensor's flags."""
    return [name for name, bit in (*FLAGS.items(), ("compute", FLAG_COMPUTE)) if flags & bit]


def signed(word: int) -> int:
    """A word of op_params as an int32."""
    word &= 0xFFFF_FFFF
    return word - (1 << 32) if word >> 31 else word


def op_desc(t: Tensor) -> str:
    """ggml_op_desc: the op's name, or the function's for UNARY and GLU; UNARY(99) if there is no such function."""
    return op_desc_of(t.op, t.op_params)


def op_desc_of(op: int, op_params: tuple[int, ...]) -> str:
    """The same of an op with its parameters."""
    functions: type[UnaryOp | GluOp]
    if op == Op.UNARY:
        functions = UnaryOp
    elif op == Op.GLU:
        functions = GluOp
    else:
        return Op(op).name
    number = op_params[0] if op_params else 0
    return functions(number).name if 0 <= number < len(functions) else f"{Op(op).name}({number})"


def root_of(t: Tensor) -> Tensor:
    """The tensor whose memory `t` has: the end of the chain of `view_src`.

    A view's `view_src` is no view when it is made; in the ggml of 2024 it becomes one if it is computed in place.
    """
    while t.view_src is not None:
        t = t.view_src
    return t


def nelements(t: Tensor) -> int:
    """ggml_nelements."""
    return t.ne[0] * t.ne[1] * t.ne[2] * t.ne[3]


def nrows(t: Tensor) -> int:
    """ggml_nrows."""
    return t.ne[1] * t.ne[2] * t.ne[3]


def dims(ne: Sequence[int]) -> str:
    """Extents as ggml users write them, without the trailing ones: `[640, 512]`."""
    last = len(ne)
    while last > 1 and ne[last - 1] == 1:
        last -= 1
    return f"[{', '.join(map(str, ne[:last]))}]"


def n_dims(t: Tensor) -> int:
    """ggml_n_dims: the highest dimension with more than one element, at least 1."""
    for i in (3, 2, 1):
        if t.ne[i] > 1:
            return i + 1
    return 1


def is_empty(t: Tensor) -> bool:
    """ggml_is_empty: some extent is zero."""
    return 0 in t.ne


def _is_contiguous(t: Tensor, m: int, n: int) -> bool:
    """ggml_is_contiguous_m_n: dimensions above `m` and below `n` have no gaps; a stride of an extent 1 is ignored."""
    ne, nb = t.ne, t.nb
    next_nb = t.type.type_size
    if ne[0] != t.type.block_size and nb[0] != next_nb:
        return False
    next_nb *= ne[0] // t.type.block_size
    for i in range(1, n):
        if i > m:
            if ne[i] != 1 and nb[i] != next_nb:
                return False
            next_nb *= ne[i]
        else:
            next_nb = ne[i] * nb[i]
    return True


def is_computed(t: Tensor) -> bool:
    """Whether a backend has anything to compute for a node: it has an op that is no view, elements, and is wanted."""
    return bool(t.op and not t.is_view_op and t.flags & FLAG_COMPUTE) and 0 not in t.ne


def is_contiguous(t: Tensor) -> bool:
    """ggml_is_contiguous (also ggml_is_contiguous_0)."""
    return _is_contiguous(t, 0, 4)


def is_contiguous_1(t: Tensor) -> bool:
    """ggml_is_contiguous_1: contiguous for dimensions 2 and 3."""
    return _is_contiguous(t, 1, 4)


def is_contiguous_2(t: Tensor) -> bool:
    """ggml_is_contiguous_2: contiguous for dimension 3."""
    return _is_contiguous(t, 2, 4)


def is_contiguous_to(t: Tensor, n: int) -> bool:
    """ggml_is_contiguous_to_n: contiguous in the dimensions below `n`."""
    return _is_contiguous(t, 0, n)


def is_contiguous_rows(t: Tensor) -> bool:
    """ggml_is_contiguous_rows."""
    return t.ne[0] == t.type.block_size or t.nb[0] == t.type.type_size


def is_contiguous_channels(t: Tensor) -> bool:
    """ggml_is_contiguous_channels: channels (dimension 2) are the most inner."""
    return t.nb[0] > t.nb[2] and t.nb[1] > t.nb[0] and t.nb[2] == t.type.type_size


def is_padded_1d(t: Tensor) -> bool:
    """ggml_is_padded_1d: gaps between rows only."""
    return t.nb[0] == t.type.type_size and t.nb[2] == t.nb[1] * t.ne[1] and t.nb[3] == t.nb[2] * t.ne[2]


def is_transposed(t: Tensor) -> bool:
    """ggml_is_transposed."""
    return t.nb[0] > t.nb[1]


def is_permuted(t: Tensor) -> bool:
    """ggml_is_permuted."""
    return t.nb[0] > t.nb[1] or t.nb[1] > t.nb[2] or t.nb[2] > t.nb[3]


def is_scalar(t: Tensor) -> bool:
    """ggml_is_scalar."""
    return t.ne == (1, 1, 1, 1)


def is_vector(t: Tensor) -> bool:
    """ggml_is_vector."""
    return t.ne[1] == 1 and t.ne[2] == 1 and t.ne[3] == 1


def is_matrix(t: Tensor) -> bool:
    """ggml_is_matrix."""
    return t.ne[2] == 1 and t.ne[3] == 1


def is_3d(t: Tensor) -> bool:
    """ggml_is_3d."""
    return t.ne[3] == 1


def are_same_shape(a: Tensor, b: Tensor) -> bool:
    """ggml_are_same_shape."""
    return a.ne == b.ne


def are_same_layout(a: Tensor, b: Tensor) -> bool:
    """ggml_are_same_layout: same type, extents and strides (also those of extents of 1)."""
    return a.type is b.type and a.ne == b.ne and a.nb == b.nb


def can_repeat(small: Tensor, big: Tensor) -> bool:
    """ggml_can_repeat: `small` can be repeated into `big`."""
    if is_empty(small):
        return is_empty(big)
    return all(b % s == 0 for s, b in zip(small.ne, big.ne, strict=True))


def can_mul_mat(a: Tensor, b: Tensor) -> bool:
    """ggml_can_mul_mat: rows of equal length, a can be repeated over b's matrices."""
    return (
        a.ne[0] == b.ne[0] and (a.ne[2] != 0 and b.ne[2] % a.ne[2] == 0) and (a.ne[3] != 0 and b.ne[3] % a.ne[3] == 0)
    )
