"""Devices and models as people have them: what tools print is read, anything else is refused with what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ggmltool.scenario.devices.texts import listed_devices
from ggmltool.sources.llama import capture as capturing
from tests.cli.conftest import Call, call
from tests.sources.library import needs_library
from tests.sources.models import cached

__all__ = ["call"]

GIB, MIB = 1 << 30, 1 << 20
SMI = """\
Mon Nov 23 14:00:00 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.86.10              Driver Version: 570.86.10      CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
|   0  NVIDIA GeForce RTX 3090        Off |   00000000:01:00.0  On |                  N/A |
|  0%   45C    P8             25W /  350W |     576MiB /  24576MiB |      2%      Default |
|   1  NVIDIA GeForce RTX 3060        Off |   00000000:02:00.0 Off |                  N/A |
|  0%   40C    P8             15W /  170W |       0MiB /  12288MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+
| Processes:                                                                              |
|    0   N/A  N/A            1234      G   /usr/lib/xorg/Xorg                      200MiB |
+-----------------------------------------------------------------------------------------+
"""
LISTED = """\
Available devices:
  CUDA0: NVIDIA GeForce RTX 3090 (24245 MiB, 23971 MiB free)
  Vulkan1: AMD Radeon RX 7900 XTX (RADV NAVI31) (24560 MiB, 24000 MiB free)
"""
ROCM = """\
GPU[0]\t\t: Card Series: \t\tRadeon RX 7900 XTX
GPU[0]\t\t: VRAM Total Memory (B): 25753026560
GPU[0]\t\t: VRAM Total Used Memory (B): 27136000
"""
QUERY = "index, name, memory.total [MiB], memory.free [MiB]\n1, NVIDIA GeForce RTX 4090, 24564 MiB, 20000 MiB\n"
LOG = "llama_model_load: using device CUDA0 (NVIDIA GeForce RTX 3060) (0000:01:00.0) - 11900 MiB free\n"


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        (SMI, [("CUDA0", "RTX 3090", 24000 * MIB), ("CUDA1", "RTX 3060 12GB", 12288 * MIB)]),
        (LISTED, [("CUDA0", "RTX 3090", 23971 * MIB), ("Vulkan1", "RX 7900 XTX", 24000 * MIB)]),
        (ROCM, [("ROCm0", "RX 7900 XTX", 25753026560 - 27136000)]),
        (QUERY, [("CUDA1", "RTX 4090", 20000 * MIB)]),
        (LOG, [("CUDA0", "RTX 3060 12GB", 11900 * MIB)]),
        ("GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n", [("CUDA0", "A100 80GB", None)]),
        ("GPU 3: NVIDIA Something New (UUID: GPU-1)\n", [("CUDA3", None, None)]),
        ("CUDA0:24GiB", []),
        ("name: NPU0\n", []),
        ("", []),
    ],
)  # fmt: skip
def test_what_programs_print_of_devices_is_read(text: str, devices: list[tuple[str, str | None, int | None]]) -> None:
    assert [(d["name"], d.get("rates"), d.get("memory")) for d in listed_devices(text)] == devices


def test_a_saved_listing_or_a_line_of_it_stands_for_the_devices(tmp_path: Path, call: Call) -> None:
    for i, given in enumerate((SMI, LISTED)):
        (tmp_path / f"{i}.txt").write_text(given)
    for device in (str(tmp_path / "0.txt"), str(tmp_path / "1.txt"), LISTED.splitlines()[1], SMI):
        done = call("place", "--device", device, "gemma-3-270m", "--json")
        assert done.status == 0, done.err
        assert json.loads(done.out)["devices"][0]["device"] == "CUDA0"
        assert "is not a known device" not in done.err


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("smi.txt", '"smi.txt" is neither a device nor a file'),
        ("{file}", "is a file without devices; save what nvidia-smi"),
        ("12 cats", "is not a known device"),
        (",".join(f"CUDA{i}:8GiB" for i in range(3000)), "3000 devices are too many"),
    ],
)
@pytest.mark.parametrize("command", ["place", "sweep", "fit"])
@needs_library
def test_a_wrong_device_is_refused_before_the_capture(
    command: str, device: str, said: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(capturing, "capture_many", never)
    monkeypatch.setattr(capturing, "capture", never)
    (tmp_path / "notes.txt").write_text("nothing here\n")
    done = call(command, "--device", device.format(file=tmp_path / "notes.txt"), str(cached("llama")))
    assert done.status == 2
    assert said in done.err


@pytest.mark.parametrize("command", ["place", "sweep", "fit", "capture", "plan"])
@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("lfs.gguf", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        ("page.gguf", "<!DOCTYPE html>\n<html></html>", "an HTML page"),
        ("page.yaml", "\n<html></html>", "an HTML page"),
        ("junk.gguf", "hello", "not a GGUF file: it does not begin with GGUF"),
        ("ggml-org/gemma-3-270m-GGUF", None, "models are not downloaded here"),
        ("ggml-org/gemma-3-270m-GGUF:Q4_K_M", None, "models are not downloaded here"),
        ("https://example.com/model.gguf", None, "download it first"),
        ("nowhere/model.gguf", None, "no such file\n"),
    ],
)
def test_what_is_no_model_is_told_with_what_to_do(
    command: str, name: str, content: str | None, said: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_text(content)
    done = call(command, name)
    assert done.status == 2
    assert said in done.err
    assert "must be a map" not in done.err
