"""The known devices: where each one's profile is, and what its backends are called."""

from __future__ import annotations

import re
from functools import partial
from importlib import import_module

from ggmltool.ggml.devices.profile import Profile, ReleaseProfiles
from ggmltool.ggml.devices.unsupported import aborts

CUSTOM = Profile("custom", unsupported=aborts("graph_compute", "unsupported op {op}", "refused"))
RPC = Profile("RPC", caps=frozenset(("mmap_support",)))

_KNOWN = {
    "custom": ("profiles.CUSTOM", ""),
    "CPU": ("cpu.PROFILE", r"CPU"),
    "BLAS": ("blas.PROFILE", r"BLAS"),
    "CUDA": ("cuda.PROFILE", r"CUDA\d*"),
    "ROCm": ("cuda.ROCM", r"ROCm\d*"),
    "Metal": ("metal.PROFILE", r"Metal|MTL\d+"),
    "Vulkan": ("vulkan.PROFILE", r"Vulkan\d+"),
    "SYCL": ("sycl.PROFILE", r"SYCL\d+"),
    "OpenCL": ("opencl.PROFILE", r"OpenCL|GPUOpenCL"),
    "CANN": ("cann.PROFILE", r"CANN\d+"),
    "RPC": ("profiles.RPC", r"RPC\d*(\[[^\]]*\])?"),
}
"""By the name of a profile the module beside this one that has it, by what name, and what its backends are called."""


def _profile(place: str) -> Profile:
    module, _, name = place.partition(".")
    profile: Profile = getattr(import_module(f"{__package__}.{module}"), name)
    return profile


PROFILES = ReleaseProfiles({name: partial(_profile, place) for name, (place, _) in _KNOWN.items()})
"""The known profiles by name. A device's module is imported when its profile is asked for."""


def profile_of_name(name: str) -> str:
    """The profile of a backend called `name`: "CUDA" for "CUDA0", "custom" for an unknown name."""
    return next((profile for profile, (_, names) in _KNOWN.items() if names and re.fullmatch(names, name)), "custom")
