"""CUDA and ROCm of ggml 0.26: attention's kernels and sizes, and what they do to a mixture of experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from ggmltool.ggml.buffer import USAGE_WEIGHTS, AddressSpace, Buffer, BufferType
from ggmltool.ggml.device import Device, SplitNodes
from ggmltool.ggml.devices.cuda import Kernel
from ggmltool.ggml.devices.profile import make_buft, make_device
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import GluOp, Op, UnaryOp
from ggmltool.ggml.ops.registry import float_bits
from ggmltool.ggml.releases.ggml_0_26.cuda import best_kernel, flash_attn_nbytes
from ggmltool.ggml.releases.ggml_0_26.cuda_order import graph_optimize
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.table import BY_NAME
from ggmltool.ggml.tensor import FLAG_OUTPUT, Tensor
from tests.ggml.devices.test_cuda import attention
from tests.ggml.graphs import Builder

WEIGHTS = Buffer(BufferType("CUDA0", "CUDA0"), 64, AddressSpace(), USAGE_WEIGHTS)


def device(profile: str) -> Device:
    of = profiles_of(BY_NAME["0.26"])[profile]
    return make_device(of, "D", make_buft(of, "D", "D"))


CUDA, ROCM = device("CUDA"), device("ROCm")


def refusal(of: Device, op: Op, *types: str, ne: tuple[int, ...] = (64, 8), params: tuple[int, ...] = ()) -> str | None:
    """Why a device does not run an op on sources of these types, the first of which is the result's."""
    b = Builder()
    node = b.node("n", op, *(b.leaf("x", *ne, type=type) for type in types[1:]), type=types[0], params=params)
    why = of.refusal(node)
    return None if why is None else why.text


@pytest.mark.parametrize(
    ("op", "types", "runs"),
    [
        (Op.ADD, ("bf16", "bf16", "bf16"), True),
        (Op.ADD, ("bf16", "bf16", "f32"), True),
        (Op.ADD, ("bf16", "bf16", "f16"), False),
        (Op.ADD, ("f32", "bf16", "f32"), False),
        (Op.SCALE, ("bf16", "bf16"), True),
        (Op.SCALE, ("f16", "f16"), False),
        (Op.DUP, ("i32", "i32"), True),
        (Op.CONV_3D, ("f32", "f16", "f32"), True),
        (Op.CONV_3D, ("f32", "bf16", "f32"), False),
        (Op.POOL_1D, ("f32", "f32"), True),
        (Op.SUM_ROWS, ("f16", "f16"), False),
    ],
)
def test_types_that_it_runs(op: Op, types: tuple[str, ...], runs: bool) -> None:
    assert (refusal(CUDA, op, *types) is None) == runs
    assert (refusal(ROCM, op, *types) is None) == runs


def test_functions_run_on_any_strides_and_three_types() -> None:
    b = Builder()
    x = b.leaf("x", 8, 4)
    x.set_layout(x.ne, (8, 64, 256, 256))
    assert CUDA.supports_op(b.node("n", Op.UNARY, x, params=(UnaryOp.SILU,)))
    assert CUDA.supports_op(b.node("n", Op.ROLL, x))
    assert refusal(CUDA, Op.UNARY, "bf16", "bf16", params=(UnaryOp.XIELU,)) == "source 0 is bf16, not f32 or f16"


def test_a_hadamard_transform_of_f16_is_by_f32() -> None:
    hint = (0, 1)
    assert refusal(CUDA, Op.MUL_MAT, "f32", "f32", "f16", ne=(64, 64), params=hint) is None
    assert refusal(CUDA, Op.MUL_MAT, "f32", "bf16", "f16", ne=(64, 64), params=hint) == (
        "in a Hadamard transform of f16, source 0 is bf16, not f32"
    )
    assert refusal(CUDA, Op.MUL_MAT, "f32", "f32", "f16", ne=(64, 64)) == (
        "source 1 is f16, and source 0 is f32, not f16 too"
    )


def test_products_by_expert_have_no_f32_precision() -> None:
    assert refusal(CUDA, Op.MUL_MAT_ID, "f32", "f16", "f32", params=(0, 0, 0, 20)) is None
    assert "f32 precision" in (refusal(CUDA, Op.MUL_MAT_ID, "f32", "f16", "f32", params=(0, 0, 0, 10)) or "")


def test_rocm_sorts_rows_that_fit_into_the_memory_of_a_block() -> None:
    assert refusal(ROCM, Op.ARGSORT, "i32", "f32", ne=(16384,)) is None
    assert refusal(ROCM, Op.ARGSORT, "i32", "f32", ne=(16385,)) == (
        "it sorts rows of up to 16384, and source 0 has 16385"
    )
    assert refusal(ROCM, Op.TOP_K, "i32", "f32", ne=(16385,)) is None
    assert refusal(CUDA, Op.ARGSORT, "i32", "f32", ne=(16385,)) is None


KERNELS: list[tuple[str, tuple[str, ...], Callable[[], Tensor], Kernel]] = [
    ("two types, one row", ("turing", "ada"), lambda: attention(type="q8_0", v_type="q4_0"), Kernel.VEC),
    ("two types, three rows", ("turing", "ada"), lambda: attention(128, 3, type="q8_0", v_type="f16"), Kernel.MMA),
    ("a quantized V only", ("turing",), lambda: attention(128, 2, type="f16", v_type="q8_0"), Kernel.MMA),
    ("q5_1", ("turing", "ada"), lambda: attention(type="q5_1"), Kernel.VEC),
    ("iq4_nl", ("turing", "ada"), lambda: attention(type="iq4_nl"), Kernel.NONE),
    ("large heads that share keys", ("turing", "ada"), lambda: attention(256, 1, gqa=8), Kernel.MMA),
    ("large heads, few share keys", ("turing", "ada"), lambda: attention(256, 1, gqa=4), Kernel.VEC),
    ("RDNA: larger heads", ("wmma",), lambda: attention(256, 17, gqa=2), Kernel.MMA),
    ("RDNA: larger heads, few rows", ("wmma",), lambda: attention(256, 8, gqa=2), Kernel.TILE),
    ("CDNA: heads beyond 256", ("mfma",), lambda: attention(576, 16, gqa=16, v_head=512), Kernel.MMA),
    ("CDNA: the same, few rows", ("mfma",), lambda: attention(576, 8, gqa=16, v_head=512), Kernel.TILE),
    ("CDNA: ALiBi", ("mfma",), lambda: attention(64, 2, gqa=8, bias=8.0), Kernel.TILE),
]


@pytest.mark.parametrize(("has", "make_node", "kernel"), [k[1:] for k in KERNELS], ids=[k[0] for k in KERNELS])
def test_the_kernel_of_attention_depends_on(
    has: tuple[str, ...], make_node: Callable[[], Tensor], kernel: Kernel
) -> None:
    assert best_kernel(make_node(), frozenset(has)) is kernel


@pytest.mark.parametrize(
    ("k", "v", "copies"),
    [
        ("f16", "f16", ""),
        ("q8_0", "q8_0", ""),
        ("f32", "f16", "k"),
        ("f32", "f32", "kv"),
        ("q8_0", "q4_0", "kv"),
        ("q5_0", "q5_0", "kv"),
        ("q8_0", "f16", "k"),
        ("bf16", "f32", "kv"),
    ],
)
def test_what_no_vector_kernel_was_compiled_for_is_copied_as_f16(k: str, v: str, copies: str) -> None:
    n = attention(128, 1, 256, type=k, v_type=v)
    copy = 2 * 128 * 256 * 2
    assert best_kernel(n) is Kernel.VEC
    assert flash_attn_nbytes(n) == n.nbytes + len(copies) * copy
    assert CUDA.buft.get_alloc_size(n) == flash_attn_nbytes(n)


def test_a_build_with_kernels_for_all_types_copies_f32_only() -> None:
    has = frozenset({"turing", "ada", "fa_all_quants"})
    for k, v, copies in (("q8_0", "q4_0", 0), ("q5_1", "f16", 0), ("q5_1", "f32", 1)):
        n = attention(128, 1, 256, type=k, v_type=v)
        assert flash_attn_nbytes(n, has) == n.nbytes + copies * 2 * 128 * 256 * 2


class Optimized(NamedTuple):
    order: list[str]
    keeps: dict[str, list[str]]


def optimize(b: Builder, nodes: list[Tensor], n_own: int | None = None) -> Optimized:
    """The split of the first nodes of a graph (of all) as CUDA leaves it."""
    made = b.graph(*nodes)
    split = SplitNodes(nodes[:n_own], nodes[n_own:] if n_own is not None else ())
    keeps: dict[str, list[str]] = {}
    order = graph_optimize(split, made.use_count, lambda t, until: keeps.setdefault(until.id, []).append(t.id))
    return Optimized([n.id for n in order], keeps)


def experts(b: Builder, glu: int = GluOp.SWIGLU, buffer: Buffer | None = WEIGHTS) -> list[Tensor]:
    """Chosen experts and a shared one of the same input, as a model writes them: the chosen ones first."""
    x, ids = b.node("x", Op.SCALE, b.leaf("in", 32)), b.leaf("ids", 2, 1, type="i32")
    shaped = b.view("shaped", x, 32, 1, 1, op=Op.RESHAPE)
    nodes = [x, shaped]
    for name, op, sources, ne in (
        ("chosen", Op.MUL_MAT_ID, (shaped, ids), (64, 2, 1)),
        ("shared", Op.MUL_MAT, (x,), (64, 1, 1)),
    ):
        n = (32, 64, 4) if op == Op.MUL_MAT_ID else (32, 64)
        pair = []
        for part in ("gate", "up"):
            w = b.leaf(f"{name}_{part}_w", *n, type="q8_0")
            w.buffer = buffer
            pair.append(b.node(f"{name}_{part}", op, w, *sources, ne=ne, type="f32"))
        nodes += [*pair, b.node(f"{name}_glu", Op.GLU, *pair, params=(glu, 0))]
        if name == "chosen":
            nodes.append(b.node("between", Op.SCALE, nodes[-1]))
    return nodes


JOINED = [
    "x", "shaped", "chosen_gate", "chosen_up", "chosen_glu", "shared_gate", "shared_up", "shared_glu", "between",
]  # fmt: skip


def test_a_shared_expert_is_computed_right_behind_the_chosen_ones_and_what_they_read_is_kept() -> None:
    b = Builder()
    assert optimize(b, experts(b)) == (JOINED, {"shared_glu": ["shaped", "ids"]})


@pytest.mark.parametrize(
    "spoil",
    [
        lambda b, nodes: setattr(nodes[2], "flags", nodes[2].flags | FLAG_OUTPUT),
        lambda b, nodes: nodes.append(b.node("more", Op.SCALE, nodes[7])),
        lambda b, nodes: setattr(nodes[8], "op_params", (GluOp.GEGLU, 0)),
        lambda b, nodes: setattr(nodes[6].src[0], "type", nodes[4].type),
        lambda b, nodes: nodes[7].src.__setitem__(1, nodes[5]),
    ],
    ids=["an output", "used elsewhere", "another function", "another type", "another input"],
)
def test_a_shared_expert_stays_where_it_is_if_no_kernel_does_both(
    spoil: Callable[[Builder, list[Tensor]], None],
) -> None:
    b = Builder()
    nodes = experts(b)
    spoil(b, nodes)
    assert optimize(b, nodes) == ([n.id for n in nodes], {})


def test_a_shared_expert_stays_while_weights_have_no_buffer_or_the_function_no_kernel() -> None:
    for b, more in ((Builder(), {"buffer": None}), (Builder(), {"glu": GluOp.REGLU})):
        nodes = experts(b, **more)  # type: ignore[arg-type]
        assert optimize(b, nodes).order == [n.id for n in nodes]


def choice(b: Builder, gating: str = "soft_max", n_experts: int = 8, normed: bool = False) -> list[Tensor]:
    """The choice of two experts for one token."""
    logits = b.node("logits", Op.MUL_MAT, b.leaf("router", 32, n_experts), b.leaf("x", 32), ne=(n_experts,))
    nodes = [logits]
    if gating == "soft_max":
        nodes.append(b.node("probs", Op.SOFT_MAX, logits, params=(float_bits(1.0), 0)))
    elif gating == "sigmoid":
        nodes.append(b.node("probs", Op.UNARY, logits, params=(UnaryOp.SIGMOID,)))
    else:
        nodes.append(b.node("soft", Op.UNARY, logits, params=(UnaryOp.SOFTPLUS,)))
        nodes.append(b.node("probs", Op.SQRT, nodes[-1]))
    shaped = b.view("shaped", nodes[-1], 1, n_experts, op=Op.RESHAPE)
    order = b.node("order", Op.ARGSORT, nodes[-1], type="i32")
    ids = b.view("ids", order, 2)
    ids.set_layout((2, 1, 1, 1), (4, 4 * n_experts, 4 * n_experts, 4 * n_experts))
    nodes += [shaped, order, ids, b.node("weights", Op.GET_ROWS, shaped, ids, ne=(1, 2))]
    if normed:
        flat = b.view("flat", nodes[-1], 2, op=Op.RESHAPE)
        total = b.node("total", Op.SUM_ROWS, flat, ne=(1,))
        least = b.node("least", Op.CLAMP, total)
        quotient = b.node("quotient", Op.DIV, flat, least)
        nodes += [flat, total, least, quotient, b.view("normed", quotient, 1, 2, op=Op.RESHAPE)]
    nodes.append(b.node("after", Op.SCALE, b.leaf("y", 4)))
    return nodes


@pytest.mark.parametrize("gating", ["soft_max", "sigmoid", "softplus"])
@pytest.mark.parametrize("normed", [False, True])
def test_what_chooses_experts_is_kept_until_the_node_behind_it(gating: str, normed: bool) -> None:
    b = Builder()
    nodes = choice(b, gating, normed=normed)
    assert nodes[-1].id == "after"
    assert set(optimize(b, nodes).keeps["after"]) == {n.id for n in nodes[:-1]}


def test_a_choice_that_ends_a_split_is_kept_until_the_first_node_of_the_next_one() -> None:
    b = Builder()
    nodes = choice(b)
    assert list(optimize(b, nodes, len(nodes) - 1).keeps) == ["after"]


def test_a_choice_at_the_end_of_the_graph_is_ggmls_assertion() -> None:
    b = Builder()
    with pytest.raises(GgmlAssert) as error:
        optimize(b, choice(b)[:-1])
    assert error.value.condition == "n_dep_nodes_added == n_dep_nodes"


@pytest.mark.parametrize(("n", "kept"), [(8, True), (256, True), (288, True), (512, True), (12, False), (1024, False)])
def test_there_are_kernels_for_some_numbers_of_experts(n: int, kept: bool) -> None:
    b = Builder()
    assert bool(optimize(b, choice(b, n_experts=n)).keeps) == kept


def weighted_sum(b: Builder, n_experts: int = 2, scaled: bool = False) -> list[Tensor]:
    """What `n_experts` say of three tokens, weighted and added up."""
    experts, weights = b.leaf("experts", 32, n_experts, 3), b.leaf("weights", 1, n_experts, 3)
    nodes = [b.node("scaled", Op.MUL, experts, b.leaf("scale", 1, n_experts, 3))] if scaled else []
    weighted = b.node("weighted", Op.MUL, nodes[-1] if nodes else experts, weights)
    views = [b.view(f"view{i}", weighted, 32, 3, offset=i * weighted.nb[1]) for i in range(n_experts)]
    for view in views:
        view.set_layout(view.ne, (4, weighted.nb[2], 3 * weighted.nb[2], 3 * weighted.nb[2]))
    nodes += [weighted, *views]
    total = views[0]
    for i, view in enumerate(views[1:]):
        total = b.node(f"sum{i}", Op.ADD, total, view, ne=(32, 3))
        nodes.append(total)
    return nodes


@pytest.mark.parametrize(("n", "kept"), [(1, False), (2, True), (8, True), (15, True), (16, False)])
def test_what_a_weighted_sum_of_experts_reads_is_kept_until_the_sum(n: int, kept: bool) -> None:
    b = Builder()
    nodes = weighted_sum(b, n)
    assert optimize(b, nodes) == ([t.id for t in nodes], {nodes[-1].id: ["experts", "weights"]} if kept else {})


def test_a_scale_of_each_expert_is_kept_too() -> None:
    b = Builder()
    nodes = weighted_sum(b, scaled=True)
    assert optimize(b, nodes).keeps == {"sum0": ["experts", "weights", "scale"]}


def test_a_sum_in_another_order_has_no_kernel() -> None:
    b = Builder()
    nodes = weighted_sum(b, 3)
    nodes[-1].src.reverse()
    assert not optimize(b, nodes).keeps
