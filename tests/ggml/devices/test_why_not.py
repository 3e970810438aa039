"""A device's reason for a no: there exactly where the answer is no, and readable."""

from __future__ import annotations

from random import Random

import pytest

from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.profiles import PROFILES, make_buft, make_device
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import GluOp, Op, UnaryOp
from ggmltool.ggml.tensor import Tensor
from tests.batches import in_batches
from tests.ggml.graphs import Builder

EXTENTS = (1, 2, 16, 31, 32, 40, 64, 128, 256, 512)
COMMON = ("f32", "f32", "f32", "f16", "bf16", "q8_0", "i32")


def make(profile: str) -> Device:
    own = make_buft(PROFILES["CPU" if profile == "BLAS" else profile], "D", "D")
    return make_device(PROFILES[profile], "D", own)


def any_node(random: Random, op: Op) -> Tensor:
    """A node of any types, shapes and parameters, with gaps in its sources now and then."""
    build = Builder()

    def leaf() -> Tensor:
        type = random.choice(COMMON if random.random() < 0.6 else sorted(TYPES))
        ne = [random.choice(EXTENTS) for _ in range(random.choice((1, 2, 4)))]
        ne[0] *= TYPES[type].block_size
        t = build.leaf("x", *ne, type=type)
        if random.random() < 0.3:
            gap = t.type.type_size * random.choice((1, 4))
            t.set_layout(t.ne, (t.nb[0] * random.choice((1, 2)), *(n + gap for n in t.nb[1:])))
        return t

    n_functions = {Op.UNARY: len(UnaryOp), Op.GLU: len(GluOp)}.get(op, 3)
    params = (random.randrange(n_functions), random.choice((0, 1, 0x3F800000)))
    sources = [leaf() for _ in range(random.choice((1, 2, 5)))]
    if op == Op.FLASH_ATTN_EXT:
        sources += [leaf() for _ in range(3 - len(sources))]
    return build.node("n", op, *sources, type=random.choice(COMMON), params=params)


@in_batches("profile, op", [(profile, op) for profile in sorted(PROFILES) for op in Op], by=lambda case: case[0])
def test_there_is_a_reason_exactly_where_the_answer_is_no(profile: str, op: Op) -> None:
    device, random = make(profile), Random(int(op))
    for _ in range(60):
        n = any_node(random, op)
        try:
            answer = device.supports_op(n)
        except GgmlAssert:
            with pytest.raises(GgmlAssert):
                device.why_not(n)
            continue
        why = device.why_not(n)
        assert (why is None) == answer
        assert why is None or (len(why) > 8 and not set("{}") & set(why))


def test_a_reason_names_what_is_particular_to_the_op() -> None:
    build = Builder()
    a, b = build.leaf("a", 256, 64, type="q4_0"), build.leaf("b", 256, 4, type="f16")
    product = build.node("n", Op.MUL_MAT, a, b, ne=(64, 4), type="f32")
    assert make("CUDA").why_not(product) == "source 1 is f16, and source 0 is q4_0, not f16 too"
    assert make("CPU").why_not(product) == (
        "it multiplies q4_0 by f32 or by the type that it converts f32 to, not by f16"
    )
    assert make("BLAS").why_not(product) == "source 1 is f16, not f32"
    assert make("custom").why_not(product) is None
