"""Captured graphs on the real scheduler with the real Vulkan device, beside the engine's."""

from __future__ import annotations

import json

import ggmltool
from ggmltool.inspect.verified import Verified, verify
from ggmltool.views.diff.verify import debug_text
from tests.conformance import captured


def names() -> list[str]:
    """The captured graphs that were on a GPU."""
    return [name for name in captured.names() if "CUDA0" in json.dumps(captured.read(name)["backends"])]


def verified(name: str) -> Verified:
    """A captured graph with its GPUs taken for Vulkan's: what the real scheduler and device do otherwise."""
    text = json.dumps(captured.read(name)).replace("CUDA", "Vulkan")
    scenario = json.loads(text)
    scenario["ggml"] = "0.26"
    scenario["backends"] = [backend["name"] for backend in scenario["backends"]]
    return verify(ggmltool.load(scenario), values=False, printed=debug_text, vulkan=True)
