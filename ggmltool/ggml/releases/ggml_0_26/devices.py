"""The devices of ggml 0.26: those of 0.21, with other rules, sizes and node orders."""

from __future__ import annotations

from dataclasses import replace

from ggmltool.ggml.devices.profile import Profile
from ggmltool.ggml.releases.ggml_0_21.devices import PROFILES as BEFORE

PROFILES: dict[str, Profile] = {name: replace(profile, ggml="0.26") for name, profile in BEFORE.items()}
"""The profiles by name."""
