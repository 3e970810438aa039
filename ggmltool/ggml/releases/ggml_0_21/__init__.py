"""ggml 0.21.0, as llama.cpp b10566 carries it."""

from __future__ import annotations

from dataclasses import replace

from ggmltool.ggml.releases.ggml_0_20_2 import RELEASE as BEFORE
from ggmltool.ggml.releases.release import Library

RELEASE = replace(
    BEFORE,
    name="0.21",
    date="2026-08-21",
    commit="8599e0ea",
    folder="ggml_0_21",
    like=BEFORE,
    build="b10566",
    library=Library("0.21.0", "xllamacpp==2026.8.10566"),
    rules=replace(BEFORE.rules, records_every_split=True),
    ops=replace(BEFORE.ops, rope_has_offset=True),
)
