"""Devices as data: what the tables, rules and buffer types of a device answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType, tensor_alloc
from ggmltool.ggml.device import NO, RULE, YES, Backend, Device, batch_size, op_table
from ggmltool.ggml.op import EMPTY_OPS, FIRST_GLU_KEY, FIRST_UNARY_KEY, N_OP_KEYS, GluOp, Op, UnaryOp, keys_of, op_key
from ggmltool.ggml.tensor import Tensor
from tests.ggml.graphs import Builder

EVERYTHING = op_table((), True)


def device(table: bytearray = EVERYTHING, **options: object) -> Device:
    buft = BufferType("D", "D")
    return Device("D", "gpu", buft, table, **options)  # type: ignore[arg-type]


@given(st.sets(st.integers(0, N_OP_KEYS - 1)), st.booleans())
def test_a_table_lists_what_there_is_or_what_is_missing_but_empty_ops_are_always_there(
    keys: set[int], exclude: bool
) -> None:
    table = op_table(keys, exclude)
    for key in range(N_OP_KEYS):
        listed = key in keys
        assert table[key] == (YES if key in EMPTY_OPS or listed != exclude else NO)


def test_a_rule_decides_only_about_ops_that_are_in_the_table() -> None:
    table = op_table((Op.ADD, Op.MUL), False, (Op.MUL, Op.SUB, Op.VIEW))
    assert [table[op] for op in (Op.ADD, Op.MUL, Op.SUB, Op.VIEW)] == [YES, RULE, NO, YES]


def test_a_family_name_means_all_its_functions() -> None:
    assert len(keys_of("unary")) == 1 + len(UnaryOp)
    assert len(keys_of("glu")) == 1 + len(GluOp)
    assert keys_of("silu") == (FIRST_UNARY_KEY + UnaryOp.SILU,)
    assert keys_of("mul_mat") == (Op.MUL_MAT,)
    with pytest.raises(KeyError):
        keys_of("softmax")


def test_a_function_has_a_key_of_its_own() -> None:
    assert op_key(Op.UNARY, (UnaryOp.GELU,)) == FIRST_UNARY_KEY + UnaryOp.GELU
    assert op_key(Op.GLU, (GluOp.SWIGLU, 1)) == FIRST_GLU_KEY + GluOp.SWIGLU
    assert op_key(Op.ADD, (5,)) == Op.ADD
    assert op_key(Op.UNARY, (10_000,)) == Op.UNARY


def test_a_device_without_silu_may_have_gelu() -> None:
    b = Builder()
    x = b.leaf("x", 4)
    d = device(op_table(keys_of("silu"), True))
    assert not d.supports_op(b.node("s", Op.UNARY, x, params=(UnaryOp.SILU,)))
    assert d.supports_op(b.node("g", Op.UNARY, x, params=(UnaryOp.GELU,)))
    assert d.why_not(b.node("t", Op.UNARY, x, params=(UnaryOp.SILU,))) == "SILU is not supported"


def test_a_rule_is_asked_about_its_op_only() -> None:
    b = Builder()
    x = b.leaf("x", 4)
    asked = []

    def rule(t: Tensor) -> str | None:
        asked.append(t.name)
        return None if t.ne[0] == 4 else "ne[0] is {ne[0]}"

    d = device(op_table((), True, (Op.ADD,)), rules={Op.ADD: rule})
    assert d.supports_op(b.node("a", Op.ADD, x, x))
    assert not d.supports_op(b.node("b", Op.ADD, x, x, ne=(5,)))
    assert d.supports_op(b.node("c", Op.MUL, x, x))
    assert asked == ["a", "b"]
    assert d.why_not(b.node("d", Op.ADD, x, x, ne=(5,))) == "ne[0] is 5"


def test_a_check_may_refuse_what_the_table_allows() -> None:
    b = Builder()
    x = b.leaf("x", 4)
    d = device(check=lambda t: "its name is {op}" if t.name == "no" else None)
    yes, no = b.node("yes", Op.ADD, x, x), b.node("no", Op.ADD, x, x)
    assert (d.supports_op(yes), d.why_not(yes)) == (True, None)
    assert (d.supports_op(no), d.why_not(no)) == (False, "its name is ADD")


def test_a_restricted_buffer_type_decides_alone_about_ops_on_what_lies_there() -> None:
    own = BufferType("D", "D")
    repack = BufferType("D_REPACK", "D", ops=frozenset((int(Op.MUL_MAT),)))
    table = op_table((Op.MUL_MAT, Op.ADD), True)
    d = Device("D", "gpu", own, table, bufts=[repack])
    b = Builder()
    w, x = b.leaf("w", 4), b.leaf("x", 4)
    tensor_alloc(Buffer(repack, 64, AddressSpace()), w, 0)
    assert d.supports_op(b.node("product", Op.MUL_MAT, w, x))
    assert d.why_not(b.node("sine", Op.SIN, w)) == "with source 0 in D_REPACK it does not support SIN"
    assert d.supports_op(b.view("view", w))
    assert not d.supports_op(b.node("other", Op.MUL_MAT, x, w)), "only source 0 counts"
    assert d.supports_op(b.node("cosine", Op.COS, x))


def test_a_device_uses_its_own_types_the_listed_ones_and_perhaps_every_host_type() -> None:
    host, other = BufferType("H", "X", host=True), BufferType("O", "X")
    plain = device()
    assert plain.supports_buft(plain.buft)
    assert not plain.supports_buft(host)
    assert device(bufts=[other]).supports_buft(other)
    hosts = device(any_host=True)
    assert hosts.supports_buft(host)
    assert not hosts.supports_buft(other)
    assert hosts.why_not_buft(host) is None
    assert hosts.why_not_buft(other) == "O is not host memory, nor one of its own buffer types (D)"
    assert plain.why_not_buft(other) == "O is not one of the buffer types it can use (D)"


def test_a_type_of_the_same_name_is_another_type() -> None:
    assert not device().supports_buft(BufferType("D", "D"))


@pytest.mark.parametrize(
    ("op", "size"),
    [(Op.GET_ROWS, 0), (Op.MUL_MAT, 3), (Op.MUL_MAT_ID, 5), (Op.ROPE, 5), (Op.ROPE_BACK, 5), (Op.ADD, 105)],
)
def test_the_batch_size_of_an_op_is_where_ggml_looks_for_it(op: Op, size: int) -> None:
    b = Builder()
    assert batch_size(b.node("n", op, b.leaf("x", 2, 3, 5, 7))) == size


def test_a_device_asks_for_ops_from_a_batch_size_on_or_never() -> None:
    b = Builder()
    n = b.node("n", Op.ADD, b.leaf("x", 2, 32))
    assert device(offload_min_batch=32).offload_op(n)
    assert not device(offload_min_batch=33).offload_op(n)
    assert not device().offload_op(n)


def test_a_backend_is_a_name_on_a_device() -> None:
    d = device()
    assert (Backend("D0", d).name, Backend("D0", d).device) == ("D0", d)
