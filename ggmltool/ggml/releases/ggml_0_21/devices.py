"""The devices of ggml 0.21: those of 0.20.2, with some other sizes and rules."""

from __future__ import annotations

from dataclasses import replace

from ggmltool.ggml.devices.profile import Profile
from ggmltool.ggml.devices.profiles import PROFILES as BEFORE


def _changed(before: Profile) -> Profile:
    from ggmltool.ggml.releases.ggml_0_21 import rules

    if before.name == "Metal":
        return replace(before, alloc_size=rules.metal_alloc_size, extra=rules.METAL_EXTRA)
    return replace(before, rules=rules.OPENCL_RULES if before.name == "OpenCL" else rules.CANN_RULES)


PROFILES = BEFORE.changed("0.21", dict.fromkeys(("Metal", "OpenCL", "CANN"), _changed))
"""The profiles by name."""
