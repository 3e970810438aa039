"""The devices of ggml 0.26: those of 0.21, with other rules, sizes and node orders."""

from __future__ import annotations

from dataclasses import replace

from ggmltool.ggml.devices.profile import Profile
from ggmltool.ggml.releases.ggml_0_21.devices import PROFILES as BEFORE
from ggmltool.ggml.releases.ggml_0_26 import vulkan, vulkan_order

_CHANGED: dict[str, Profile] = {
    "Vulkan": replace(
        BEFORE["Vulkan"],
        rules=vulkan.RULES,
        check=vulkan.limits,
        graph_optimize=vulkan_order.graph_optimize,
        features=vulkan.FEATURES,
        has=frozenset(vulkan.FEATURES),
    ),
}

PROFILES: dict[str, Profile] = {name: replace(profile, ggml="0.26") for name, profile in (BEFORE | _CHANGED).items()}
"""The profiles by name."""
