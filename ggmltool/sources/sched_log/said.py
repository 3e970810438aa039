"""Lines that say something in words: where a program died, what it could not allocate, what llama.cpp reserved."""

from __future__ import annotations

import re

from ggmltool.sources.sched_log.lines import without_ansi

SAID_MARKS = (
    b"graph", b"GGML_ASSERT", b"A error: ", b"ROCm error", b"current device: ", b"failed", b"unable to allocate",
    b"pipeline parallelism", b"preferred buffer type", b"params_fit", b"fit_params", b"is assigned to device",
    b"layers to GPU", b"what():  ", b"error loading model",
)  # fmt: skip
"""What the lines that are looked at here have in them, where `ggml` is not in them anyway."""

_PLACE = re.compile(rb"\.(?:c|cpp|cu|cuh|m|mm|h):\d")
_FILE = (
    rb"(?:[\w./\\:+~ -]*[/\\])?(?:ggml|llama|ops|binary-ops|unary-ops|gguf)[\w.-]*\.(?:c|cpp|cu|cuh|m|mm|h):\d{1,7}: "
)
_ABORT = re.compile(
    rb"(?:" + _FILE + rb")?GGML_ASSERT(?:\(.{1,300}\)(?: failed)?|: \S{1,200}:\d{1,7}: .{1,200})"
    rb"|(?<![\w/\\.-])" + _FILE + rb"(?!warning|error|note)\S.{0,300}"
    rb"|(?:CUDA|ROCm|MUSA) error: \S.{0,200}"
)  # fmt: skip
_AFTER = re.compile(rb"current device: \d.{0,250}")
_FIT = (
    rb"(?:common|llama)_(?:params_fit|fit_params)\w*: .{0,60}(?:projected|will leave|cannot meet|cannot fulfill"
    rb"|context size|fit params|targets for free|entire model|surplus|deficit|MiB used| used, )"
)
_SAID = re.compile(
    rb"(?:" + _FIT + rb"|(?P<behind>pipeline parallelism enabled|graph splits += |graph nodes += "
    rb"|graph(?: \(pp bs=\d+, tg bs=\d+\))?: nodes = |graph reallocation: nodes = |graph reallocs += "
    rb"|compute buffer allocation failed|failed to (?!open|load|parse|read|find(?! a memory slot))"
    rb"|could not reserve|unable to allocate|allocating \d+\.\d+ MiB on device|layer \d+ is assigned to device"
    rb"|tensor '.{1,70}' .{1,60} cannot be used with preferred|offloaded \d+/\d+ layers"
    rb"|error: failed to allocate|error loading model: )"
    rb"|what\(\):  |ggml_vulkan: (?:Device m|M)emory allocation)(?:.{0,300}\S)?"
)  # fmt: skip
_FUNCTION = re.compile(rb"[\w:~]{1,80}: +$")
"""What stands before it: looked for once it is found, since looking at every letter is what takes time."""
_LOOKED_BACK = 100
_CUDA = re.compile(r"(?:CUDA|ROCm|MUSA) error")


def may_say(line: bytes) -> bool:
    """Whether a line may be one of those that are read here."""
    for mark in SAID_MARKS:
        if mark in line:
            return True
    return b"ggml" in line and _PLACE.search(line) is not None


def aborted(line: bytes) -> str | None:
    """Where and why the program died, if this line says so."""
    line = without_ansi(line)
    if b"GGML_ASSERT" not in line and b" error: " not in line and _PLACE.search(line) is None:
        return None  # the search behind every letter of a long line takes a while
    found = _ABORT.search(line)
    return None if found is None else _text(found[0])


def after_abort(line: bytes) -> str | None:
    """What CUDA says in the line after its error: the device and the function."""
    found = _AFTER.search(without_ansi(line))
    return None if found is None else _text(found[0])


def is_repeated(text: str, before: str) -> bool:
    """Whether an abort is the end of the error of CUDA just before it."""
    return text.endswith(": CUDA error") and _CUDA.match(before) is not None


def said(line: bytes) -> str | None:
    """What llama.cpp or a device says of memory and graphs, if this line does."""
    line = without_ansi(line)
    found = _SAID.search(line)
    if found is None:
        return None
    function = _FUNCTION.search(line, max(found.start() - _LOOKED_BACK, 0), found.start()) if found["behind"] else None
    return _text(line[found.start() if function is None else function.start() : found.end()])


def _text(raw: bytes) -> str:
    return " ".join(raw.decode("utf-8", "surrogateescape").partition('\\n"')[0].split())
