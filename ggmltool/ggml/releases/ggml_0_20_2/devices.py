"""The devices of 0.20.2: ggmltool/ggml/devices."""

from ggmltool.ggml.devices.profiles import PROFILES

__all__ = ["PROFILES"]
