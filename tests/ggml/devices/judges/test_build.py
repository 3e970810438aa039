"""A judge is built out of a source tree that wants headers which are not there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.ggml.devices.cases import Cases
from tests.ggml.devices.judges.build import NotBuiltError, _cut
from tests.ggml.devices.judges.families import Family, Slice
from tests.needs import program

HEADER = """
#include <vendor/runtime.h>
#if VERSION >= 12
enum mode { FAST, SLOW };
#else
enum mode { SLOW };
#endif
static inline bool is_fast(int x) { return x == FAST; }
"""
SOURCE = """
#include "common.cuh"
__global__ void kernel(float * x) { x[threadIdx.x] = warp_reduce(x); }
static void launch(vendor_stream_t stream) { kernel<<<1, 32, 0, stream>>>(nullptr); }
bool supports(int x) {
    return is_fast(x) && LIMIT > x;
}
"""
pytestmark = program("g++", "g++")


def family(*roots: str) -> Family:
    part = Slice("device.cu", roots)
    return Family("ggml-device", "ours.hpp", (part,), (), {}, Cases, None, ("VERSION=12", "LIMIT=4", "__global__="))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "src" / "ggml-device"
    folder.mkdir(parents=True)
    (folder / "common.cuh").write_text(HEADER)
    (folder / "device.cu").write_text(SOURCE)
    (tmp_path / "work" / "stubs").mkdir(parents=True)
    return tmp_path


def test_what_answers_is_compiled_without_kernels_and_the_vendors_headers(source: Path) -> None:
    of = family("supports")
    cut = _cut(of, of.slices[0], source, source / "work")
    text = cut.read_text()
    assert (source / "work" / "stubs" / "vendor" / "runtime.h").read_text() == ""
    assert text.startswith('#include "ours.hpp"\n')
    assert "kernel" not in text
    (source / "work" / "ours.hpp").touch()
    (source / "work" / "main.cpp").write_text(f'#include "{cut.name}"\nint main() {{ return supports(FAST) ? 7 : 1; }}')
    made = source / "work" / "program"
    subprocess.run(["g++", "-std=c++17", "-o", made, source / "work" / "main.cpp"], check=True)
    assert subprocess.run([made], check=False).returncode == 7


def test_a_source_without_such_a_function_is_told(source: Path) -> None:
    of = family("supports_op")
    with pytest.raises(NotBuiltError, match=r"device\.cu: the source does not define supports_op"):
        _cut(of, of.slices[0], source, source / "work")
