"""Settings of all tests."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says nothing on a busy machine.
settings.register_profile("ggmltool", deadline=None)
settings.load_profile("ggmltool")
