"""These tests need the real Vulkan backend and a Vulkan driver; elsewhere they skip, and where CI is set they fail."""

from __future__ import annotations

import os

import pytest

from ggmltool.oracle.vulkan import Vulkan, VulkanUnavailable
from ggmltool.oracle.vulkan import vulkan as started


@pytest.fixture(scope="session")
def vulkan() -> Vulkan:
    """The real backend."""
    try:
        return started()
    except VulkanUnavailable as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))
