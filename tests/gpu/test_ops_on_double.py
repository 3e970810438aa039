"""Every op on a GPU, whose cupy is a double: it calls nothing that cupy lacks, and gives what it gives on the host."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from ggmltool.ggml.blocks import can_decode, can_encode
from ggmltool.ggml.devices.gpus import find
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.releases.table import DEFAULT
from tests.conformance.checked import compared
from tests.conformance.ops_case import Call, Engine, bytes_of, check_result
from tests.gpu.conftest import Doubles
from tests.gpu.on_gpu import OnGpu, other_on_host, tolerance
from tests.needs import library

FEWER = {"lightning_indexer": 8, "flash_attn_ext": 4}
"""Of these ops only one case in so many, since they are large."""

WAITS = frozenset(("asnumpy", "bool", "float", "index", "int", "item", "nonzero", "tolist", "unique"))
"""Calls for which the host waits."""

WAITING = frozenset(("mul_mat_id", "win_part", "win_unpart", "get_rel_pos", "im2col_back", "pool_2d_back"))
"""Ops that wait: mul_mat_id for the choice of experts, as in ggml, and some that ggml has on no GPU."""

READ_BY_HOST = frozenset(t.name for t in TYPES.values() if t.quantized and not can_decode(t))
WRITTEN_BY_HOST = frozenset(t.name for t in TYPES.values() if t.quantized and not can_encode(t))
"""Types that the host converts."""

CASES: dict[str, list[Call]] = defaultdict(list)
for _case in compared():
    CASES[_case.fn].append(_case)


@pytest.mark.parametrize("fn", CASES)
def test_a_gpu_gives_what_the_host_gives(fn: str, double: Doubles) -> None:
    lib = library()
    cupy = double()
    cupy.state.timeline.races = False
    found = find()
    assert found.gpus, found.why
    rng = np.random.default_rng(1)
    wrong, waited = [], set()
    for case in CASES[fn][:: FEWER.get(fn, 1)]:
        data = [bytes_of(lib, s, rng) for s in (*case.sources, case.sinks) if s is not None]
        try:
            expected = Engine(case, DEFAULT).compute(data)
        except GgmlError:
            continue
        cupy.state.timeline.calls.clear()
        got = OnGpu(case, found.gpus[0]).compute(data)
        by_host = WRITTEN_BY_HOST if fn in ("cpy", "set_rows", "add_cast", "add") else READ_BY_HOST
        if not any(s is not None and s.type in by_host for s in case.sources):
            waited.update(WAITS.intersection(cupy.state.timeline.calls))
        if other_on_host(case):
            continue
        try:
            check_result(replace(case, nmse=tolerance(case)), got, expected)
        except AssertionError as error:
            wrong.append(str(error).splitlines()[0])
    assert wrong == []
    assert fn in WAITING or not waited
