"""ggml's own text: widths and cuts count bytes, headers and nodes as ggml_backend_sched_print_assignments has them."""

from __future__ import annotations

import pytest

from ggmltool.ask.splits.sched_debug import fmt_size, sched_debug
from ggmltool.ggml.plan import DebugNode, DebugSplit
from tests.ask.plans import DEBUG, GOLDEN
from tests.golden import check_golden


@pytest.mark.parametrize(
    ("file", "level", "causes"),
    [("sched_debug_1", 1, True), ("sched_debug_2", 2, True), ("sched_debug_2_no_causes", 2, False)],
)
def test_the_text_is_that_of_ggml(file: str, level: int, causes: bool) -> None:
    check_golden(GOLDEN / f"{file}.txt", sched_debug(DEBUG, level, causes))


def test_a_line_of_a_real_log_comes_out_byte_for_byte() -> None:
    node = DebugNode(0, "MUL_MAT", "a", 10240, "CUDA0", "1.wgt0", 1, True, DEBUG[1].nodes[0].sources)
    text = sched_debug((DebugSplit(0, "CUDA0", (("inp", 10240), ("mask", 10240)), (node,)),), causes=False)
    assert text == (
        "\n## SPLIT #0: CUDA0 # 2 inputs: [inp (  10K)] [mask (  10K)] \n"
        "node #  0 (   MUL_MAT):                    a (  10K) [CUDA0         ] use=1,c=1:"
        "               w1.gpu (  16K) [CUDA0         ]          CUDA0#inp#0 (  10K) [ NULL         ]\n"
    )


def test_names_are_cut_within_a_character_as_printf_does() -> None:
    node = DebugNode(0, "ADD", "x" * 19 + "é", 0, "CPU", "", 0, True, ())
    text = sched_debug((DebugSplit(0, "CPU", (), (node,)),))
    assert b"x" * 19 + b"\xc3 (   0K)" in text.encode("utf-8", "surrogateescape")


def test_sizes_are_whole_k_or_m() -> None:
    assert [fmt_size(n) for n in (0, 1023, 1024, 2**20 - 1, 2**20, 5 * 2**30)] == [
        "0K", "0K", "1K", "1023K", "1M", "5120M",
    ]  # fmt: skip
