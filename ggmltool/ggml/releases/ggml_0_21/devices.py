"""The devices of ggml 0.21: those of 0.20.2, with some other sizes and rules."""

from __future__ import annotations

from dataclasses import replace

from ggmltool.ggml.devices.profile import Profile
from ggmltool.ggml.devices.profiles import PROFILES as BEFORE


def _metal(before: Profile) -> Profile:
    from ggmltool.ggml.releases.ggml_0_21 import metal

    return replace(before, alloc_size=metal.alloc_size, extra=metal.EXTRA)


def _opencl(before: Profile) -> Profile:
    from ggmltool.ggml.releases.ggml_0_21 import opencl

    return replace(before, rules=opencl.RULES)


def _cann(before: Profile) -> Profile:
    from ggmltool.ggml.releases.ggml_0_21 import cann

    return replace(before, rules=cann.RULES)


PROFILES = BEFORE.changed("0.21", {"Metal": _metal, "OpenCL": _opencl, "CANN": _cann})
"""The profiles by name."""
