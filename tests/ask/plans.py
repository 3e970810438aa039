"""Plans made by hand, so that the views' tests need no engine."""

from __future__ import annotations

from pathlib import Path

from ggmltool.ggml.events import Allocated, AllocationStarted, Event, Freed, Kept, Reused
from ggmltool.ggml.plan import (
    CopyPlan,
    DebugNode,
    DebugSource,
    DebugSplit,
    LeafPlan,
    NodePlan,
    Plan,
    SchedDebug,
    SplitPlan,
)
from ggmltool.scenario.tensor_info import TensorInfo
from ggmltool.show.table import Style

KIB = 1024
GOLDEN = Path(__file__).parent / "golden"
STYLES = {"40": Style(40), "80": Style(80), "color": Style(100, "256")}
"""What views are looked at in: two widths, and colors."""


def node(index: int, id: str, op: str, backend: str, cause: str, split: int, src: tuple[str | None, ...]) -> NodePlan:
    return NodePlan(
        index, id, id, op, op, "f32", (64, 40, 1, 1), (4, 256, 10 * KIB, 10 * KIB), backend, cause, split, 1, src,
        backend, "compute", 0, index * 10 * KIB, 10 * KIB,
    )  # fmt: skip


TWO_DEVICES = Plan(
    graph="main",
    step="alloc",
    ok=True,
    backends=(("CUDA0", "CUDA0"), ("CPU", "CPU")),
    splits=(
        SplitPlan(0, "CUDA0", 0, 2, ("inp",)),
        SplitPlan(1, "CPU", 2, 3, ("a+mask",)),
        SplitPlan(2, "CUDA0", 3, 4, ("b",)),
    ),
    nodes=(
        node(0, "a", "MUL_MAT", "CUDA0", "1.wgt0", 0, ("w1", "CUDA0#inp#0")),
        node(1, "a+mask", "ADD", "CUDA0", "2.sup", 0, ("a", "CUDA0#inp#0")),
        node(2, "b", "MUL_MAT", "CPU", "1.wgt0", 1, ("w2", "CPU#a+mask#0")),
        node(3, "d", "RESHAPE", "CUDA0", "4.vsrc", 2, ("CUDA0#b#0",)),
    ),
    leafs=(
        LeafPlan(0, "w1", "CUDA0", "CUDA0", "weights", 0, 0),
        LeafPlan(1, "inp", "CPU", "CPU", "compute", 0, 0),
        LeafPlan(2, "w2", "CPU", "CPU", "weights", 0, 0),
    ),
    copies=(
        CopyPlan("CUDA0#inp#0", "inp", "CUDA0", 0, "CUDA0", 0, 0),
        CopyPlan("CPU#a+mask#0", "a+mask", "CPU", 0, "CPU", 0, 0),
        CopyPlan("CUDA0#b#0", "b", "CUDA0", 0, "CUDA0", 0, 0),
    ),
    buffer_sizes=(("CUDA0", 30 * KIB), ("CPU", 20 * KIB)),
    log=("ggml_gallocr_reserve_n: reallocating CUDA0 buffer from size 0.00 MiB to 0.03 MiB",),
    ggml="0.20.2",
)


def info(
    id: str, op: str = "NONE", symbol: str = "none", src: tuple[str | None, ...] = (), **more: object
) -> TensorInfo:
    return TensorInfo(id, id, "f32", (64, 40, 1, 1), 10 * KIB, op, symbol, 0, src)._replace(**more)


TENSORS = {
    t.id: t
    for t in (
        info("w1", address=0x1000, has_data=True),
        info("w2", address=0x1170, has_data=True),
        info("inp", address=0x2000, flags=1),
        info("a", "MUL_MAT", "X*Y", ("w1", "inp"), address=0x3000),
        info("a+mask", "ADD", "x+y", ("a", "inp"), address=0x3170),
        info("b", "MUL_MAT", "X*Y", ("w2", "a+mask"), address=0x32E0),
        info("d", "RESHAPE", "reshape(x)", ("b",), address=0x3450, view_src="b"),
    )
}

REFUSED = Plan(
    graph="main",
    step="alloc",
    ok=False,
    backends=(("CPU", "CPU"),),
    error=(
        ("kind", "abort"),
        ("function", "ggml_backend_sched_alloc_graph"),
        ("condition", "!sched->is_alloc"),
        ("message", "GGML_ASSERT(!sched->is_alloc) failed"),
        ("explanation", "the graph before this one was not reset;\nput a step `reset` between the two"),
    ),
    ggml="0.20.2",
)

EVENTS: tuple[Event, ...] = (
    AllocationStarted(-1, ""),
    Allocated("inp", "CPU", 0, 0, 10 * KIB),
    AllocationStarted(0, "inp (view)"),
    AllocationStarted(1, "CUDA0#inp#0"),
    Allocated("CUDA0#inp#0", "CUDA0", 0, 0, 10 * KIB),
    Freed("inp", "CPU", 0, 0, 10 * KIB),
    AllocationStarted(2, "a"),
    Allocated("a", "CUDA0", 0, 10 * KIB, 12 * KIB),
    AllocationStarted(3, "a+mask"),
    Reused("a+mask", "a", "CUDA0", 0, 10 * KIB),
    Freed("a", "CUDA0", 0, 20 * KIB, 2 * KIB, extra=True),
    Freed("CUDA0#inp#0", "CUDA0", 0, 0, 10 * KIB),
    AllocationStarted(4, "CPU#a+mask#0"),
    Allocated("CPU#a+mask#0", "CPU", 0, 0, 10 * KIB),
    AllocationStarted(5, "b"),
    Allocated("b", "CPU", 0, 10 * KIB, 10 * KIB),
    AllocationStarted(6, "CUDA0#b#0"),
    Allocated("CUDA0#b#0", "CUDA0", 0, 0, 10 * KIB),
    Kept("CUDA0#b#0"),
)

DEBUG: SchedDebug = (
    DebugSplit(0, "CPU", (), ()),
    DebugSplit(
        1,
        "CUDA0",
        (("inp", 10 * KIB), ("mask", 3 << 20)),
        (
            DebugNode(
                0, "MUL_MAT", "a", 10 * KIB, "CUDA0", "1.wgt0", 1, True,
                (
                    DebugSource("w1.gpu", 16 * KIB, "CUDA0", "1.dst"),
                    DebugSource("CUDA0#inp#0", 10 * KIB, None, "4.cpy"),
                ),
            ),
            DebugNode(
                12, "FLASH_ATTN_EXT", "größer als zwanzig Bytes", 270_000 << 20, "Vulkan0", "2.sup", 2, False, (),
            ),
        ),
    ),
)  # fmt: skip
