"""CUDA and ROCm of ggml 0.26: attention's kernels and sizes, and what they do to a mixture of experts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ggmltool.ggml.buffer import USAGE_WEIGHTS, AddressSpace, Buffer, BufferType
from ggmltool.ggml.device import Device, SplitNodes
from ggmltool.ggml.devices.cuda import Kernel
from ggmltool.ggml.devices.profile import make_buft, make_device
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import GluOp, Op
from ggmltool.ggml.ops.registry import float_bits
from ggmltool.ggml.releases.ggml_0_26.cuda import best_kernel
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


def optimize(b: Builder, nodes: list[Tensor]) -> tuple[list[str], list[str]]:
    """The nodes of a graph as CUDA leaves them, and what is to be kept."""
    kept: list[str] = []
    made = b.graph(*nodes)
    order = graph_optimize(SplitNodes(nodes, ()), made.use_count, lambda t, until: kept.append(t.id))
    return [n.id for n in order], kept


def experts(b: Builder) -> list[Tensor]:
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
            w.buffer = WEIGHTS
            pair.append(b.node(f"{name}_{part}", op, w, *sources, ne=ne, type="f32"))
        nodes += [*pair, b.node(f"{name}_glu", Op.GLU, *pair, params=(GluOp.SWIGLU, 0))]
        if name == "chosen":
            nodes.append(b.node("between", Op.SCALE, nodes[-1]))
    return nodes


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
    order, kept = optimize(b, nodes)
    assert (order[5:8], kept) == (["shared_gate", "shared_up", "shared_glu"], ["shaped", "ids"])
    spoil(b, nodes)
    assert optimize(b, nodes) == ([n.id for n in nodes], [])


def test_a_choice_at_the_end_of_the_graph_is_ggmls_assertion() -> None:
    b = Builder()
    logits = b.node("logits", Op.MUL_MAT, b.leaf("router", 32, 8), b.leaf("x", 32), ne=(8,))
    probs = b.node("probs", Op.SOFT_MAX, logits, params=(float_bits(1.0), 0))
    shaped, order = b.view("shaped", probs, 1, 8, op=Op.RESHAPE), b.node("order", Op.ARGSORT, probs, type="i32")
    ids = b.view("ids", order, 2)
    ids.set_layout((2, 1, 1, 1), (4, 32, 32, 32))
    weights = b.node("weights", Op.GET_ROWS, shaped, ids, ne=(1, 2))
    with pytest.raises(GgmlAssert) as error:
        optimize(b, [logits, probs, shaped, order, ids, weights])
    assert error.value.condition == "n_dep_nodes_added == n_dep_nodes"
