"""GGUF files beside a scenario: what is in them, and that their tensors are mapped, not copied."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter

import ggmltool
from ggmltool.scenario.encoded import read_gguf_tensor
from ggmltool.scenario.errors import Mistake

N = 2048
VALUES = np.arange(2 * N, dtype=np.float32).reshape(2, N)


def write(folder: Path) -> Path:
    path = folder / "m.gguf"
    writer = GGUFWriter(path, "test")
    writer.add_array("tokens", ["a", "", "word"])
    writer.add_array("scores", [0.5, 1.5])
    writer.add_array("nested", [[1, 2], [3]])
    writer.add_bool("yes", True)
    writer.add_custom_alignment(64)
    writer.add_tensor("w", VALUES)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def scenario(folder: Path) -> ggmltool.Scenario:
    weight = {"type": "f32", "ne": [N, 2], "data": {"gguf": "m.gguf", "tensor": "w"}}
    document: dict[str, Any] = {
        "ggmltool": 1,
        "backends": [{"name": "CPU"}],
        "contexts": {"weights": {"buft": "CPU", "usage": "weights", "tensors": {"w": weight}}},
        "graphs": {"main": {"nodes": {"row": f"view(w, ne=[{N}], offset={4 * N})", "twice": "scale(row, s=2)"}}},
    }
    (folder / "a.json").write_text(json.dumps(document))
    return ggmltool.load(folder / "a.json")


def test_tensors_are_found_behind_the_metadata(tmp_path: Path) -> None:
    tensor = read_gguf_tensor(write(tmp_path), "w")
    assert (tensor.ne, tensor.size, tensor.offset % 64) == ((N, 2, 1, 1), VALUES.nbytes, 0)
    assert np.array_equal(tensor.values().reshape(2, N), VALUES)


def test_a_weight_is_the_file_itself_and_so_are_its_views(tmp_path: Path) -> None:
    path = write(tmp_path)
    before = path.read_bytes()
    run = scenario(tmp_path).start(values=True)
    run.compute("main")
    assert np.array_equal(run.get("twice").ravel(), 2 * VALUES[1])
    buffer = run.tensor("w").buffer
    assert buffer is not None
    (mapped,) = buffer.mapped.values()
    assert isinstance(mapped, np.memmap)
    assert mapped.tobytes() == VALUES.tobytes()
    run.step(scenario(tmp_path).steps([{"set": {"w": {"fill": 3}}}])[0])
    run.compute("main")
    assert np.array_equal(run.get("twice").ravel(), np.full(N, 6, dtype=np.float32))
    assert path.read_bytes() == before, "what is written stays in the run"
    assert np.array_equal(scenario(tmp_path).compute()["twice"].ravel(), 2 * VALUES[1])


@pytest.mark.parametrize(
    ("at", "content", "why"),
    [
        (4, struct.pack("<I", 1), "its version is 1, not 2 or 3"),
        (16, struct.pack("<Q", 1 << 60), "it ends too early"),
        (24, struct.pack("<Q", 1 << 63), "it ends too early"),
        (8, struct.pack("<Q", 1 << 60), "it ends too early"),
    ],
)
def test_damaged_files_are_told(tmp_path: Path, at: int, content: bytes, why: str) -> None:
    path = write(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:at] + content + whole[at + len(content) :])
    with pytest.raises(Mistake, match=f'"m.gguf" is a damaged GGUF file: {why}'):
        read_gguf_tensor(path, "w")


def test_no_cut_and_no_changed_byte_of_the_header_is_a_crash(tmp_path: Path) -> None:
    path = write(tmp_path)
    whole = path.read_bytes()
    head = read_gguf_tensor(path, "w").offset
    for i in range(4, head):
        for content in (whole[:i], whole[:i] + b"\xff" + whole[i + 1 :]):
            other = tmp_path / f"{i}-{len(content)}.gguf"
            other.write_bytes(content)
            try:
                read_gguf_tensor(other, "w")
            except Mistake:
                continue
            assert len(content) == len(whole)
            other.unlink()


def test_an_empty_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "empty.gguf"
    path.write_bytes(b"")
    with pytest.raises(Mistake, match="damaged GGUF file: it is empty"):
        read_gguf_tensor(path, "w")
