"""Scenarios that lead out of memory, ask for what no op gives, or for too much: one message each, never a crash."""

from __future__ import annotations

import base64
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from ggmltool.ggml import ops
from ggmltool.ggml.bounds import BOUNDS, MAX_OPERATIONS, Bounds
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import GgmlAssert, GgmlError, GgmlFailed, GgmlOverrun
from ggmltool.ggml.ops.cpu.judge import work_of
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.run.run import values_of
from ggmltool.scenario.scenario import LoadedScenario
from tests.forked import first_crash
from tests.scenarios import scenario_of

ops.load()


def scenario(tensors: dict[str, Any], nodes: dict[str, Any], *backends: Any) -> dict[str, Any]:
    return scenario_of(tensors, nodes, backends=list(backends) or ["CPU"])


def compute(given: dict[str, Any], bounds: Bounds = BOUNDS) -> None:
    """Load, do the steps, and read every tensor that has memory. Raises what ggml would say."""
    run = LoadedScenario(load_spec(given, bounds=bounds)).start(values=True)
    for step in run.model.steps:
        run.step(step)
        if run.plans and not run.plans[-1].ok:
            raise run.failure(run.plans[-1])
    for _, tensors in run.newest.values():
        for t in tensors:
            if t.buffer is not None:
                values_of(t)


def refusal(given: dict[str, Any], bounds: Bounds = BOUNDS) -> GgmlError | ScenarioError:
    with pytest.raises((GgmlError, ScenarioError)) as caught:
        compute(given, bounds)
    return caught.value


PART = {"a": "f32[4, 3]", "b": "f32[2, 2]"}


@pytest.mark.parametrize(("op", "ggml"), [("acc", "0.20.2"), ("acc", "0.26"), ("set", "0.20.2"), ("set", "0.26")])
@pytest.mark.parametrize("raw", [False, True], ids=["named", "raw words"])
def test_a_part_that_begins_before_its_tensor_is_refused(op: str, ggml: str, raw: bool) -> None:
    """The last byte is inside, as size_t wraps, and the first far before it; acc checks it since 0.26."""
    nb1, offset = 2_000_000_000, -2_000_000_000
    if raw:
        node: Any = {"op": op, "type": "f32", "ne": [4, 3], "src": ["a", "b"], "op_params": [nb1, 48, 48, offset]}
    else:
        node = f"{op}(a, b, nb1={nb1}, nb2=48, nb3=48, offset={offset})"
    error = refusal(scenario(PART, {"y": node}) | {"ggml": ggml})
    if op == "set" or ggml == "0.26":
        assert isinstance(error, GgmlAssert)
        assert error.condition == "offset < (size_t)(1 << 30)"
    else:
        assert isinstance(error, GgmlOverrun)
        assert error.message == "ggml writes 2000000000 bytes before y"


def test_rows_may_go_backwards_within_their_tensor() -> None:
    """A negative stride is one of C's too, and right where it stays inside."""
    given = scenario(
        {
            "a": {"type": "f32", "ne": [2, 2], "data": [0, 0, 0, 0]},
            "b": {"type": "f32", "ne": [2, 2], "data": [1, 2, 3, 4]},
        },
        {"y": "acc(a, b, nb1=-8, nb2=16, nb3=16, offset=8)"},
    )
    assert LoadedScenario(load_spec(given)).compute()["y"].reshape(-1).tolist() == [3, 4, 1, 2]


def test_set_may_end_where_its_tensor_does_and_write_behind_it() -> None:
    """ggml asserts that the last element begins no later than the end, and then it lies beyond."""
    error = refusal(scenario(PART, {"y": "set(a, b, nb1=16, nb2=48, nb3=48, offset=28)"}))
    assert isinstance(error, GgmlOverrun)
    assert error.message == "ggml writes 4 bytes beyond y"


def test_blocks_that_do_not_fit_their_strides_are_a_mistake_in_the_file() -> None:
    """Data was written beyond the bytes that such strides leave a tensor."""
    block = base64.b64encode(bytes(34)).decode()
    one = {"type": "q8_0", "ne": [32], "nb": [1], "data": {"base64": block}}
    given = scenario({f"t{i}": one for i in range(50)}, {"y": "cont(t0)"})
    assert first_crash([given], lambda g: refusal(g) and None) is None
    error = refusal(given)
    assert isinstance(error, ScenarioError)
    assert "nb [1, 1, 1, 1] gives q8_0[32] 1 bytes (ggml_nbytes), and its last block ends at 34" in str(error)


def test_a_row_of_part_of_a_block_is_a_mistake_at_its_extent() -> None:
    """It was planned without a word, and then called transposed."""
    for tensor in ("q4_K[4, 8]", {"type": "q4_K", "ne": [100, 8]}):
        error = refusal(scenario({"a": tensor}, {}))
        assert isinstance(error, ScenarioError)
        assert "blocks of 256 elements" in error.message
        assert error.expected == "a multiple of 256"


def test_what_is_no_block_is_not_called_transposed() -> None:
    """A view may have such rows, and a product then says what is wrong with them."""
    given = scenario(
        {"a": "q4_K[256, 8]", "b": "f32[4, 2]"}, {"v": "view(a, ne=[4, 8], offset=0)", "y": "mul_mat(v, b)"}
    )
    error = refusal(given)
    assert isinstance(error, GgmlAssert)
    assert "has rows of 4 elements, but q4_K is made of blocks of 256" in error.explanation


def test_a_transposed_quantized_leaf_can_still_be_described() -> None:
    """With strides of its own, a leaf may be what ggml_transpose makes of whole blocks."""
    spec = load_spec(scenario({"a": {"type": "q8_0", "ne": [4, 32], "nb": [34, 34]}}, {})).contexts[0].tensors[0]
    assert spec.ne == (4, 32, 1, 1)


TOO_MUCH = {
    "product": ({"a": "f32[10000, 10000]", "b": "f32[10000, 10000]"}, "mul_mat(a, b)", "1.0e+12 operations"),
    "attention": (
        {"q": "f32[128, 65536, 8]", "k": "f16[128, 65536, 8]", "v": "f16[128, 65536, 8]"},
        "flash_attn_ext(q, k, v, scale=1)",
        "operations",
    ),
    "window": (
        {"a": "f32[64, 64]"},
        "pool_2d(a, op=max, k0=100000, k1=100000, s0=1, s1=1, p0=50000, p1=50000)",
        "operations",
    ),
    "tokens": ({"k": "f32[1, 1, 10000000]", "s": "f32[1]"}, "gated_linear_attn(k, k, k, k, s, scale=1)", "operations"),
    "strides": ({"a": {"type": "f32", "ne": [8, 4], "nb": [1 << 32], "data": {"fill": 1}}}, "cont(a)", "of memory"),
    "arange": ({}, "arange(start=0, stop=2147483648, step=1)", "computing y (ARANGE) needs about 48.0 GiB of memory"),
    "repeated": ({"a": {"type": "f32", "ne": [1 << 32], "nb": [0]}}, "cont(a)", "of memory"),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_what_would_take_too_much_is_refused_before_it_begins(name: str) -> None:
    """Products and attention of 10^12 operations, loops without end, and memory that nobody has."""
    tensors, node, text = TOO_MUCH[name]
    error = refusal(scenario(tensors, {"y": node}), Bounds(nbytes=4 << 30))
    assert isinstance(error, GgmlFailed)
    assert text in error.message
    assert "--no-compute" in error.explanation


def test_the_bound_on_work_can_be_lifted() -> None:
    """It is an option, and a bound of the scenario."""
    given = scenario({"a": "f32[8, 8]", "b": "f32[8, 8]"}, {"y": "mul_mat(a, b)"})
    assert "--max-operations" in getattr(refusal(given, Bounds(operations=100)), "explanation", "")
    compute(given, Bounds(operations=1 << 20))


@pytest.mark.parametrize(
    ("tensors", "node"),
    [
        ({"w": "q8_0[640, 262144]", "x": "f32[640, 512]"}, "mul_mat(w, x)"),
        ({"w": "q4_K[4096, 128256]", "x": "f32[4096, 512]"}, "mul_mat(w, x)"),
        ({"x": "f32[8192, 512, 32]"}, "soft_max(x)"),
        ({"q": "f32[128, 512, 32]", "k": "f16[128, 32768, 8]"}, "flash_attn_ext(q, k, k, scale=1)"),
    ],
    ids=["gemma 270m", "llama 8b", "softmax", "attention"],
)
def test_nodes_of_models_are_within_the_bound(tensors: dict[str, str], node: str) -> None:
    """What people compute stays possible without an option."""
    run = LoadedScenario(load_spec(scenario(tensors, {"y": node}))).start()
    run.build("main")
    assert work_of(run.newest["main"][0].nodes[-1]).operations < MAX_OPERATIONS


TABLE: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("no_kernel.yaml").read_text("utf-8"))
"""With nodes as captured graphs have them: what this release's constructor refuses is taken as it is written."""


@pytest.mark.parametrize("row", TABLE, ids=range(len(TABLE)))
def test_what_no_kernel_can_do_is_refused_with_its_reason(row: dict[str, Any]) -> None:
    """The table of what was met, each on the CPU, and what computes on a simulated GPU alike."""
    if "error" not in row:
        attempt(row["scenario"])
        return
    error = refusal(row["scenario"])
    assert row["error"] in {kind.__name__ for kind in type(error).__mro__}
    assert row.get("says", "") in str(error)


GPU = {"name": "GPU0"}
WILD = (0, 1, 2, 3, 4, 8, 12, 16, 18, 32, 34, 36, 64, 100, 1 << 20, 1 << 31, 1 << 32, 1 << 62, (1 << 63) - 1)
SIGNED = (*WILD, -1, -4, -8, -16, -64, -(1 << 31), -2_000_000_000, 2_000_000_000, (1 << 31) - 1)
HOSTILE_TYPES = ("f32", "f32", "f32", "f32", "f16", "i32", "q8_0", "q4_0")


class Hostile:
    """A scenario whose strides, offsets, row numbers or raw words may lead anywhere; most of it is plain."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.wild = rng.choice((0.0, 0.1, 0.3, 0.7))

    def number(self, signed: bool = False) -> int:
        if self.rng.random() < self.wild:
            return self.rng.choice(SIGNED if signed else WILD)
        return self.rng.randrange(0, 128, 4)

    def nb(self, n: int, size: int) -> list[int]:
        """Strides: plain multiples of an element's bytes, or wild ones."""
        plain = [size * self.rng.choice((1, 1, 2, 32, 64)) for _ in range(n)]
        return [self.rng.choice(WILD) if self.rng.random() < self.wild else stride for stride in plain]

    def tensors(self) -> dict[str, Any]:
        rng = self.rng
        type_ = rng.choice(HOSTILE_TYPES)
        a: dict[str, Any] = {
            "type": type_,
            "ne": [32 * rng.randint(1, 4), rng.randint(1, 8), rng.randint(1, 4)],
            "flags": ["input"],
        }
        if rng.random() < self.wild:
            a["nb"] = self.nb(rng.randint(1, 4), TYPES[type_].type_size)
        if rng.random() < 0.5:
            a["data"] = rng.choice([{"fill": 1}, {"normal": {}}, {"uniform": {"low": -9, "high": 9}}])
        rows = rng.randint(1, 4)
        numbers = [rng.choice((-1, 9, 1 << 30)) if rng.random() < self.wild else 0 for _ in range(rows)]
        leaf_type = rng.choice(HOSTILE_TYPES)
        return {
            "a": a,
            "b": {"type": "f32", "ne": [rng.choice((8, 32, a["ne"][0])), rows]},
            "ids": {"type": rng.choice(["i32", "i64"]), "ne": [rows], "data": numbers},
            "leaf": {
                "type": leaf_type,
                "ne": [32, rng.randint(1, 2)],
                "nb": self.nb(rng.randint(1, 4), TYPES[leaf_type].type_size),
                "view_src": "a",
                "view_offs": self.number(),
            },
        }

    def view(self, a: dict[str, Any], whole: str) -> Any:
        rng = self.rng
        n = rng.randint(1, 4)
        ne = [rng.choice((1, 2, 4, 32)) for _ in range(n)]
        nb = self.nb(4, TYPES[a["type"]].type_size)
        written = {"op": "view", "src": ["a"], "type": a["type"], "ne": ne}
        words = [rng.choice((-1, -64, 1 << 30)) if rng.random() < self.wild else 4 * rng.randint(0, 4) for _ in "01"]
        return rng.choice(
            [
                f"view({whole}, ne={ne}, nb={nb[1 : rng.randint(1, 4)]}, offset={self.number()})",
                f"view_{n}d({whole}, {', '.join(map(str, (*ne, *nb[1:n], self.number())))})",
                f"permute({whole}, {', '.join(map(str, rng.sample(range(4), 4)))})",
                f"reshape({whole}, ne={a['ne'][::-1]})",
                f"transpose({whole})",
                {**written, "nb": nb, "view_src": "a", "view_offs": self.number()},
                {**written, "op_params": words},
            ]
        )

    def node(self, tensors: dict[str, Any], place: str) -> Any:
        rng = self.rng
        steps = [self.number(True) for _ in range(4)]
        named = f"nb1={steps[0]}, nb2={steps[1]}, nb3={steps[2]}, offset={steps[3]}"
        raw = [max(min(s, (1 << 31) - 1), -(1 << 31)) for s in steps]
        columns = tensors["b"]["ne"][0]
        return rng.choice(
            [
                *(f"{op}({place}, b, {named})" for op in ("set", "set_inplace", "acc", "acc_inplace")),
                f"set_1d({place}, b, offset={self.number()})",
                f"set_2d({place}, b, nb1={self.number()}, offset={self.number()})",
                {
                    "op": rng.choice(["acc", "set"]),
                    "src": [place, "b"],
                    "type": "f32",
                    "ne": tensors["a"]["ne"],
                    "op_params": raw,
                },
                *(f"cpy({a}, {b})" for a, b in (("b", place), (place, "b"), (place, "v"), ("b", "b"))),
                *(f"set_rows({place}, {rows}, ids)" for rows in ("b", "v")),
                *(f"{op}({place})" for op in ("cont", "sqr", "soft_max", "sum_rows", "transpose")),
                f"get_rows({place}, ids)",
                f"scale_inplace({place}, s=2)",
                f"mul_mat({place}, b)",
                f"add({place}, v)",
                f"get_rows_back(b, ids, ne=[{columns}, {rng.randint(1, 4)}])",
            ]
        )

    def scenario(self) -> dict[str, Any]:
        rng, tensors = self.rng, self.tensors()
        if rng.random() < 0.6:
            del tensors["leaf"]
        whole = rng.choice([name for name in tensors if name not in ("b", "ids")])
        nodes = {"v": self.view(tensors["a"], whole), "y": self.node(tensors, rng.choice(["a", "v", whole]))}
        given = scenario(tensors, nodes, *rng.choice([("CPU",), (GPU, "CPU"), ("CUDA0", "CPU")]))
        if rng.random() < 0.5:
            given["contexts"]["c"]["buft"] = "CPU"
        return given


def hostile(rng: random.Random) -> dict[str, Any]:
    return Hostile(rng).scenario()


def attempt(given: dict[str, Any]) -> None:
    with suppress(ScenarioError, GgmlError):
        compute(given, Bounds(nbytes=1 << 28))


@pytest.mark.parametrize("seed", range(8))
def test_no_stride_and_no_offset_leads_out_of_memory(seed: int) -> None:
    """Whatever strides, offsets, row numbers and raw words say, there are values or a documented error."""
    rng = random.Random(seed)
    assert first_crash([hostile(rng) for _ in range(60)], attempt) is None


def test_most_hostile_scenarios_get_beyond_loading() -> None:
    """The generator is worth something: many of its scenarios are computed, and many are refused by the check."""
    rng = random.Random(5)
    outcomes = []
    for _ in range(240):
        try:
            compute(hostile(rng))
            outcomes.append("computed")
        except (GgmlError, ScenarioError) as error:
            outcomes.append(type(error).__name__)
    assert outcomes.count("computed") > 10
    assert outcomes.count("GgmlOverrun") > 2
