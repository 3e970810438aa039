"""What a driver of Vulkan has to have for an op, in ggml 0.26; the real backend has no part in it."""

from __future__ import annotations

import pytest

from ggmltool.ggml.devices.profiles import make_buft, make_device
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.ggml_0_26.vulkan import FEATURES
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.oracle.vulkan import ASKED

REASONS = {
    "fp16": "LIGHTNING_INDEXER needs half-precision arithmetic, which this driver has not",
    "subgroup_shuffle": "FLASH_ATTN_EXT shuffles the lanes of a subgroup, which this driver cannot",
    "subgroup_arithmetic": "CUMSUM adds up the lanes of a subgroup, which this driver cannot",
    "subgroup_16": "DSV4_HC_COMB needs subgroups of 16 lanes, which this driver has not",
    "memory_model": "without Vulkan's memory model it sorts 1024 elements at most, not 2048",
}


@pytest.mark.parametrize("missing", FEATURES)
def test_a_driver_without_a_feature_refuses_what_needs_it(missing: str) -> None:
    profile = profiles_of(RELEASES["0.26"])["Vulkan"]
    buft = make_buft(profile, "Vulkan0", "Vulkan0")
    whole = make_device(profile, "Vulkan0", buft)
    device = make_device(profile, "Vulkan0", buft, features=profile.has - {missing})
    assert {name for name, op in ASKED.items() if whole.why_not(op()) is None} == set(FEATURES) == set(ASKED)
    assert device.why_not(ASKED[missing]()) == REASONS[missing]
    others = {name for name, op in ASKED.items() if name != missing and device.why_not(op()) is not None}
    # The lanes of a hyper-connection's matrix are shuffled, too.
    assert others == ({"subgroup_16"} if missing == "subgroup_shuffle" else set())


def test_an_indexer_takes_no_view_amid_an_aligned_block() -> None:
    profile = profiles_of(RELEASES["0.26"])["Vulkan"]
    op = ASKED["fp16"]()
    assert op.op == Op.LIGHTNING_INDEXER
    keys = op.src[1]
    assert keys is not None
    keys.view_offs = 32
    coarse, fine = (
        make_device(profile, "Vulkan0", make_buft(profile, "Vulkan0", "Vulkan0", alignment=n)) for n in (64, 16)
    )
    assert coarse.why_not(op) == "an operand of LIGHTNING_INDEXER begins at no multiple of 64 bytes"
    assert fine.why_not(op) is None
