"""ggml 0.20.2, of August 2026: the shared engine as it is. Other releases are like it, or like one that is."""

from __future__ import annotations

from ggmltool.ggml.releases.release import Library, Release, Rules

RELEASE = Release(
    "0.20.2",
    "2026-08-18",
    "8c63e709",
    "ggml_0_20_2",
    Rules(),
    library=Library("0.20.2", "libggml-python==0.20.2.post1", "oracle"),
)
