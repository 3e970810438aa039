"""The devices of ggml 0.21: those of 0.20.2, with some other sizes and rules."""

from __future__ import annotations

from dataclasses import replace

from ggmltool.ggml.devices.profile import Profile
from ggmltool.ggml.releases.ggml_0_20_2.devices import PROFILES as BEFORE
from ggmltool.ggml.releases.ggml_0_21 import cann, metal, opencl

_CHANGED: dict[str, Profile] = {
    "Metal": replace(BEFORE["Metal"], alloc_size=metal.alloc_size, extra=metal.EXTRA),
    "OpenCL": replace(BEFORE["OpenCL"], rules=opencl.RULES),
    "CANN": replace(BEFORE["CANN"], rules=cann.RULES),
}

PROFILES: dict[str, Profile] = {name: replace(profile, ggml="0.21") for name, profile in (BEFORE | _CHANGED).items()}
"""The profiles by name."""
