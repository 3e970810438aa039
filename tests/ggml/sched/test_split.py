"""The five passes: which backend a tensor gets and why, pass by pass, and where splits begin."""

from __future__ import annotations

import pytest

from ggmltool.ggml.device import NO, Backend, Device, op_table
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert
from ggmltool.ggml.events import Assigned, InputAdded, PassedOver, Refused, SplitStarted
from ggmltool.ggml.op import FIRST_UNARY_KEY, Op, UnaryOp
from ggmltool.ggml.sched.scheduler import Scheduler
from ggmltool.ggml.tensor import FLAG_INPUT, Tensor
from ggmltool.ggml.why import Facts, Why
from tests.ggml.sched.bench import Bench, device, names

GPU0, CPU = device("GPU0"), device("CPU", "cpu")


def passes(b: Bench, *outputs: Tensor) -> dict[str, list[str | None]]:
    """The backend of every tensor of the graph after each of the passes 1 to 4."""
    seen: dict[str, list[str | None]] = {}
    graph = b.graph(*outputs)
    tensors = [*graph.leafs, *graph.nodes]

    def look(number: int, s: Scheduler) -> None:
        if number < 5:
            for t in tensors:
                i = s.ids[t.index]
                seen.setdefault(t.name, []).append(s.names[i] if i != -1 else None)

    b.sched.on_pass = look
    b.sched.split_graph(graph)
    return seen


def test_each_pass_decides_what_the_ones_before_left_open() -> None:
    b = Bench()
    t = b.parse("w:64,64@0 x:64,4! mask:64,4 h=MUL_MAT(w,x) y=ADD(h,mask)")
    seen = passes(b, t["y"])
    assert seen["w"] == ["GPU0"] * 4
    assert seen["x"] == ["CPU"] * 4
    assert seen["h"] == ["GPU0"] * 4
    assert seen["y"] == [None, "GPU0", "GPU0", "GPU0"]
    assert seen["mask"] == [None, None, None, "GPU0"]
    assert [b.cause(t[name]) for name in ("w", "x", "h", "y", "mask")] == ["1.dst", "1.inp", "1.wgt0", "2.sup", "4.cur"]


def test_every_assignment_is_announced_with_its_reason() -> None:
    b = Bench()
    b.split(b.parse("w:64,64@0 x:64,4! h=MUL_MAT(w,x)")["h"])
    assert [(e.tensor, e.backend, e.rule, e.cause) for e in b.of(Assigned)] == [
        ("w", "GPU0", 1, "1.dst"),
        ("x", "CPU", 1, "1.inp"),
        ("h", "GPU0", 1, "1.wgt0"),
    ]
    assert [(e.why, e.by, e.facts) for e in b.of(Assigned)] == [
        (Why.MEMORY, "w", Facts(buft="GPU0")),
        (Why.INPUT, "x", Facts()),
        (Why.WEIGHT, "w", Facts(buft="GPU0")),
    ]


@pytest.mark.parametrize(
    ("devices", "text", "on", "splits"),
    [
        # A weight behind a hole counts by its slot.
        ([GPU0, CPU], "w:64@1 x:64! y=SOFT_MAX(x,_,w)", "y CPU 1.wgt2", None),
        # GPUs spread down and up, and the CPU only into what they leave.
        (
            [GPU0, CPU],
            "w:8,8@0 u:8,8@1 x:8,2! a=SIN(x) b=MUL_MAT(w,a) c=SIN(b) d=MUL_MAT(u,c) e=SIN(d)",
            "a GPU0 2.sup; b GPU0 1.wgt0; c GPU0 2.sup; d CPU 1.wgt0; e CPU 2.sup",
            [("GPU0", ["x"], ["a", "b", "c"]), ("CPU", ["c"], ["d", "e"])],
        ),
        # A refusal does not end a spread.
        (
            [device("GPU0", without=[Op.SIN]), CPU],
            "w:8,8@0 x:8,2! h=MUL_MAT(w,x) s=SIN(h) c=COS(s)",
            "h GPU0 1.wgt0; s CPU 3.best; c GPU0 2.sup",
            [("GPU0", ["x"], ["h"]), ("CPU", ["h"], ["s"]), ("GPU0", ["s"], ["c"])],
        ),
        # Pass 3 counts the sources that a backend can read; of equals the first counts.
        ([GPU0, device("GPU1"), CPU], "a:8&1 c:8&1 y=ADD(a,c)", "y GPU1 3.best", None),
        ([GPU0, device("GPU1"), CPU], "a:8&0 c:8&1 y=ADD(a,c)", "y GPU0 3.best", None),
        # The sources of a view stay as they are.
        (
            [device("GPU0", without=[Op.SIN]), CPU],
            "w:8,8@0 x:8,2! h=MUL_MAT(w,x) v=VIEW(h) s=SIN(v)",
            "s CPU 3.best; v GPU0 4.vsrc",
            [("GPU0", ["x"], ["h", "v"]), ("CPU", ["v"], ["s"])],
        ),
        # A weight from elsewhere begins a split once there are inputs.
        (
            [device("GPU0", offload=1), CPU],
            "u:8,8@1 x:8,2! first=MUL_MAT(u,x) other:8,8@1 second=MUL_MAT(other,first)",
            "first GPU0 1.off; second GPU0 1.off",
            [("GPU0", ["u", "x"], ["first"]), ("GPU0", ["other"], ["second"])],
        ),
        # A tensor is copied once, and later splits use the same copy.
        (
            [GPU0, CPU],
            "w:8,8@0 u:8,8@1 x:8,2! h=MUL_MAT(w,x) c=MUL_MAT(u,h) y=MUL_MAT(w,c) z=ADD(y,x)",
            "h GPU0 1.wgt0; c CPU 1.wgt0; y GPU0 1.wgt0; z GPU0 2.sup",
            [("GPU0", ["x"], ["h"]), ("CPU", ["h"], ["c"]), ("GPU0", ["c"], ["y", "z"])],
        ),
    ],
)
def test_a_graph_is_assigned_and_cut_like_this(
    devices: list[Backend], text: str, on: str, splits: list[tuple[str, list[str], list[str]]] | None
) -> None:
    b = Bench(*devices)
    tensors = b.parse(text)
    b.split(list(tensors.values())[-1])
    for row in on.split("; "):
        name, backend, cause = row.split()
        assert (b.backend(tensors[name]), b.cause(tensors[name])) == (backend, cause), row
    assert splits is None or b.splits() == splits
    if "z" in tensors:
        assert tensors["z"].src[1] is tensors["h"].src[1]
    if "v" in tensors:
        assert tensors["v"].src == [tensors["h"]]
    if "s" in tensors:
        assert Refused("s", "GPU0", 2, "2.sup", "SIN is not supported", True) in b.of(Refused)


@pytest.mark.parametrize(
    "text", ["w:64,64@1 x:64,64! y=ROPE(x,w)", "w:64,64@1 x:64,64! y=FLASH_ATTN_EXT(x,w)", "k:64&0 x:64! y=MUL(x,k)"]
)
def test_these_do_not_look_at_weights(text: str) -> None:
    b = Bench()
    assert passes(b, b.parse(text)["y"])["y"][0] is None


def test_a_node_that_writes_into_memory_goes_where_that_is() -> None:
    b = Bench()
    k = b.placed("k", 64, on=0)
    y = b.view("y", k, op=Op.CPY, src=(b.input("x", 64), k))
    b.split(y)
    assert (b.backend(y), b.cause(y)) == ("GPU0", "1.dst")


def test_a_node_that_cannot_be_run_where_its_memory_is_aborts() -> None:
    b = Bench(device("GPU0", without=[Op.CPY]), device("CPU", "cpu"))
    k = b.placed("k", 64, on=0)
    with pytest.raises(GgmlAbort) as error:
        b.split(b.view("y", k, op=Op.CPY, src=(b.input("x", 64), k)))
    assert error.value.message == ("pre-allocated tensor (y) in a buffer (GPU0) that cannot run the operation (CPY)")
    assert "GPU0 does not support CPY, CPU cannot use GPU0; " in error.value.explanation


def test_views_neither_take_nor_stop_a_spread() -> None:
    b = Bench()
    w, x = b.weight("w", 8, 8, on=0), b.input("x", 8, 2)
    h = b.node("h", Op.MUL_MAT, w, x, ne=(8, 2))
    k = b.placed("k", 16, on=1)
    v = b.view("v", k)
    y = b.node("y", Op.MUL, h, v)
    seen = passes(b, b.view("r", h), y)
    assert seen["y"][1] == "GPU0"
    assert seen["v"][0] == "CPU"
    assert seen["r"] == [None, None, None, "GPU0"]


def test_pass_3_lifts_a_node_to_a_backend_with_the_same_memory() -> None:
    base = device("CPU", "cpu")
    table = op_table((Op.SIN,), True)
    fast = Backend("FAST", Device("FAST", "accel", base.device.buft, table, any_host=True))
    b = Bench(fast, base)
    x = b.input("x", 8)
    s = b.node("s", Op.SIN, x)
    c = b.node("c", Op.COS, s)
    b.split(c)
    assert (b.backend(s), b.backend(c)) == ("CPU", "FAST")
    assert b.splits() == [("CPU", [], ["s"]), ("FAST", [], ["c"])]


def test_a_node_nobody_can_run_is_ggmls_assertion() -> None:
    b = Bench(device("GPU0", without=[Op.SIN]), device("CPU", "cpu", without=[Op.SIN]))
    with pytest.raises(GgmlAssert) as error:
        b.split(b.node("s", Op.SIN, b.input("x", 8)))
    assert error.value.condition == "*cur_backend_id != -1"
    assert "no backend supports s (SIN)" in error.value.explanation


def test_functions_of_a_family_are_asked_for_one_by_one() -> None:
    gpu = device("GPU0")
    gpu.device.table[FIRST_UNARY_KEY + UnaryOp.SILU] = NO
    b = Bench(gpu, device("CPU", "cpu"))
    x = b.placed("x", 8, on=0)
    s = b.node("s", Op.UNARY, x, params=(UnaryOp.SILU,))
    g = b.node("g", Op.UNARY, x, params=(UnaryOp.GELU,))
    b.split(s, g)
    assert [b.backend(t) for t in (s, g)] == ["CPU", "GPU0"]


def test_a_split_begins_where_the_backend_changes() -> None:
    b = Bench()
    b.split(b.parse("w:8,8@0 u:8,8@1 x:8,2! h=MUL_MAT(w,x) c=MUL_MAT(u,h)")["c"])
    assert b.splits() == [("GPU0", ["x"], ["h"]), ("CPU", ["h"], ["c"])]
    assert [(e.split, e.backend, e.at, e.node) for e in b.of(SplitStarted)] == [(0, "GPU0", 0, "h"), (1, "CPU", 1, "c")]
    assert [(e.split, e.tensor, e.node, e.copies) for e in b.of(InputAdded)] == [
        (0, "x", "h", ("GPU0#x#0",)),
        (1, "h", "c", ("CPU#h#0",)),
    ]


def test_an_input_with_pipeline_copies_is_one_of_them() -> None:
    b = Bench(parallel=True)
    t = b.parse("w:8,8@0 x:8,2! h=MUL_MAT(w,x)")
    x = t["x"]
    b.split(t["h"])
    own = b.sched.copies[x.index]
    assert own is not None
    assert own[1] is not None
    assert names(own[1]) == ["x", "CPU#x#1", "CPU#x#2", "CPU#x#3"]
    assert own[1][0] is x
    assert own[0] is not None
    assert names(own[0]) == [f"GPU0#x#{c}" for c in range(4)]
    assert all(t.flags & FLAG_INPUT for t in own[0])
    assert b.sched.graph_inputs == [x]


def test_copies_of_strided_tensors_have_their_strides() -> None:
    b = Bench(device("GPU0", without=[Op.SIN]), device("CPU", "cpu"))
    k = b.placed("k", 8, 8, on=0)
    v = b.view("v", k, 1, 8)
    v.set_layout((1, 8, 1, 1), (4, 32, 256, 256))
    s = b.node("s", Op.SIN, v)
    b.split(s)
    copy = s.src[0]
    assert copy is not None
    assert (copy.ne, copy.nb, copy.nbytes) == (v.ne, v.nb, 7 * 32 + 4)


def test_rules_that_do_not_settle_a_tensor_say_why_and_what_settles_it_is_named() -> None:
    b = Bench()
    b.split(b.parse("w:64,64@0 v:64,64@1 x:64,4! h=MUL_MAT(w,x) s=SQR(h) y=MUL_MAT(v,s)")["y"])
    told = [(e.tensor, e.rule, e.cause, e.backend, e.why, e.facts) for e in b.of(PassedOver)]
    assert [t for t in told if t[0] == "s"] == [
        ("s", 1, "1.dst", "", Why.NO_MEMORY, Facts()),
        ("s", 1, "1.inp", "", Why.NOT_INPUT, Facts()),
        ("s", 1, "1.wgt", "", Why.NO_WEIGHT, Facts()),
    ]
    assert ("y", 1, "1.off", "GPU0", Why.NEVER_OFFLOADS, Facts()) in told
    assert ("y", 1, "1.wgt0", "GPU0", Why.BUFT, Facts(buft="CPU")) in told
    by = {e.tensor: e.by for e in b.of(Assigned)}
    assert by == {"w": "w", "v": "v", "x": "x", "h": "w", "s": "h", "y": "v"}
