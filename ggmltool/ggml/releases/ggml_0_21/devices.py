"""The devices of ggml 0.21: those of 0.20.2."""

from __future__ import annotations

from dataclasses import replace

from ggmltool.ggml.devices.profile import Profile
from ggmltool.ggml.releases.ggml_0_20_2.devices import PROFILES as BEFORE

PROFILES: dict[str, Profile] = {name: replace(profile, ggml="0.21") for name, profile in BEFORE.items()}
"""The profiles by name."""
