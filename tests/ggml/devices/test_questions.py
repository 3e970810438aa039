"""Questions to devices: as text and back."""

from __future__ import annotations

from random import Random

import pytest

import ggmltool
from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.profile import make_buft, make_device
from ggmltool.ggml.devices.profiles import PROFILES
from ggmltool.ggml.devices.questions import NotAQuestion, OpQuestion, parsed, question, size_question
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import GluOp, Op, UnaryOp
from ggmltool.ggml.tensor import Tensor
from tests.batches import in_batches
from tests.conformance.fuzz import scenario
from tests.ggml.graphs import Builder

TEXTS = (
    "f32[640, 4]",
    "f32[32, 4; 4, 512, 2048, 2048] view",
    "mul_mat(q4_0[640, 512] in Vulkan0 weights, f32[640, 4]) -> f32[512, 4]",
    "silu(f32[8]) -> f32[8]",
    "abs(f32[8] view of CPU compute) -> f32[8] view in CPU compute",
    "xielu{1, 0, -5}(f32[8]) -> f32[8]".replace("{1", "{17"),
    "swiglu(f32[16], -) -> f32[8]",
    "flash_attn_ext{1040187392, 0, 0, 10}(f32[64, 1, 8], f16[64, 32, 2], f16[64, 32, 2], -, f32[8]) -> f32[64, 8]",
    'cpy(f32[8] in "my memory, \\"mine\\"", f16[8]) -> f16[8] view in "a(b)" weights',
    "arange{0, 1090519040, 1065353216}() -> f32[8]",
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_question_is_written_as_it_is_read(text: str) -> None:
    asked = parsed(text)
    assert parsed(asked.text) == asked
    assert asked.text == text or text.startswith("xielu")


def test_every_tensor_of_random_scenarios_can_be_asked_about() -> None:
    n = 0
    for seed in range(60):
        loaded = ggmltool.load(scenario(seed))
        try:
            run = loaded.start()
            graphs = [run.build(name) for name in loaded.model.graphs]
        except ggmltool.GgmlError:
            continue
        for graph in graphs:
            for t in (*graph.nodes, *graph.leafs):
                for asked in (question(t), size_question(t)):
                    assert parsed(asked.text) == asked
                    n += 1
    assert n > 1000


@pytest.mark.parametrize(
    ("text", "message", "offset"),
    [
        ("", "a tensor is written", 0),
        ("f32[8", "a tensor is written", 0),
        ("f99[8]", "no type f99", 0),
        ("f32[8] on CPU", "ends before", 6),
        ("frob(f32[8]) -> f32[8]", "no op frob", 0),
        ("add(f32[8] f32[8]) -> f32[8]", "belongs here", 10),
        ("add(f32[8], f32[8])", "a result is missing", 19),
        ("add(f32[8], ) -> f32[8]", "a tensor is written", 12),
        ("sqr(f32[8] of CPU) -> f32[8]", "only a view", 11),
        ("sqr(f32[8; 4, 4]) -> f32[8]", "four strides", 11),
        ("sqr{99999999999}(f32[8]) -> f32[8]", "a number from", 4),
        ("sqr{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}(f32[8]) -> f32[8]", "17 parameters", 4),
        ("custom(" + ", ".join(["f32[1]"] * 11) + ") -> f32[1]", "10 sources", 93),
        ("f32[9999999999999999999]", "a number from", 4),
        ("f" * 20_000, "20000 characters", 0),
    ],
)
def test_what_is_no_question_is_refused_at_its_place(text: str, message: str, offset: int) -> None:
    with pytest.raises(NotAQuestion, match=message) as info:
        parsed(text)
    assert info.value.offset == offset


def test_a_question_knows_what_stands_in_memory() -> None:
    source = {
        "ggmltool": 1,
        "backends": ["CPU"],
        "contexts": {
            "w": {"buft": "CPU", "usage": "weights", "tensors": {"w": "f32[8, 4]"}},
            "i": {"tensors": {"x": "f32[8]"}},
        },
        "graphs": {"main": {"nodes": {"y": "mul_mat(w, x)", "v": "view(w, [8])", "z": "add(v, x)"}}},
    }
    run = ggmltool.load(source).start()
    asked = {t.id: question(t).text for t in run.build("main").nodes}
    assert asked["y"] == "mul_mat(f32[8, 4] in CPU weights, f32[8]) -> f32[4]"
    assert asked["z"] == "add(f32[8] view of CPU weights, f32[8]) -> f32[8]"
    sized = {t.id: size_question(t) for t in run.build("main").nodes}
    assert isinstance(sized["z"], OpQuestion)
    assert sized["z"].text == "add(f32[8], f32[8]) -> f32[8]"


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
