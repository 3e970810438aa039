"""A folder of safetensors is captured as the GGUF file that llama.cpp's own converter makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ggmltool
from ggmltool.ggml.dtypes import TYPES_BY_ID
from ggmltool.scenario.gguf import ARRAY, BOOL, STRING, GgufValue
from ggmltool.sources.llama.capture.capture import capture
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.errors import CaptureError
from ggmltool.sources.llama.header.convert import converted
from ggmltool.sources.llama.model_file import open_model, read_header
from tests.cli.conftest import Call
from tests.sources.hf_models import FOLDERS, write_folder
from tests.sources.library import needs_library
from tests.sources.record_converted import RECORDED

OURS_ONLY = ("tokenizer.ggml.model", "general.name")
"""What stands for a vocabulary, and the folder's name."""

LITE = "deepseek-v2"
"""Without low rank for queries: llama.cpp takes that of 26 or 27 layers only."""


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORDED.read_text())[name]
    return found


def content(value: GgufValue) -> object:
    if value.kind == STRING:
        return next(value.texts())
    numbers = value.numbers()
    if value.kind == ARRAY:
        return numbers
    return bool(numbers[0]) if value.kind == BOOL else numbers[0]


@pytest.mark.parametrize("name", FOLDERS)
def test_metadata_and_tensors_are_those_of_the_converter(name: str, tmp_path: Path) -> None:
    header = converted(write_folder(tmp_path / name, FOLDERS[name]()))
    theirs = recorded(name)
    values = {key: content(value) for key, value in header.values.items() if key not in OURS_ONLY}
    vocabulary = values.pop(f"{header.text('general.architecture')}.vocab_size")
    assert vocabulary == theirs["values"].pop(f"{header.text('general.architecture')}.vocab_size", vocabulary)
    assert values == theirs["values"]
    tensors = {t.name.decode(): [TYPES_BY_ID[t.type_id].name, *t.ne] for t in header.tensors}
    assert tensors == theirs["tensors"]


@needs_library
@pytest.mark.parametrize("name", [name for name in FOLDERS if name != LITE])
def test_llama_cpp_takes_it(name: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / name, FOLDERS[name](), 3)
    scenario = capture(folder, CaptureOptions(n_ctx=512, phase="both")).scenario
    tensors = scenario["contexts"]["weights"]["tensors"]
    named = {t.get("name", id).removesuffix(" (copy)") for id, t in tensors.items()}
    assert named <= set(recorded(name)["tensors"])
    assert scenario["meta"]["n_layer"] == 2


def folder_of(tmp_path: Path, **changed: Any) -> Path:
    model = FOLDERS["qwen3"]()
    config = {key: value for key, value in {**model.config, **changed}.items() if value != "gone"}
    return write_folder(tmp_path / "model", model._replace(config=config), 2)


@needs_library
def test_a_folder_is_placed_and_quantized_as_a_file(call: Call, tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    result = call("place", "-ngl", "all", "-c", "512", "--as", "q8_0", "--device", "CUDA0:2GiB", folder)
    assert result.status == 0
    assert "as Q8_0" in result.out
    assert read_header(open_model(folder, "q8_0").path).number("general.file_type") == 7
    captured = call("capture", "-c", "512", folder, tty=True)
    assert captured.err.startswith("Wrote model.json.gz\n")


@needs_library
def test_python_takes_a_folder_and_another_quantization(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    whole = ggmltool.load(folder)
    small = ggmltool.capture(folder, quantization="q4_0")
    assert [node.id for node in whole.plan().nodes] == [node.id for node in small.plan().nodes]
    with pytest.raises(CaptureError, match="exclude each other"):
        ggmltool.capture(folder, quantization="q4_0", weights=True)


def test_cut_files_are_enough_up_to_their_headers(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    whole = converted(folder)
    for file in folder.glob("*.safetensors"):
        size = 8 + int.from_bytes(file.read_bytes()[:8], "little")
        file.write_bytes(file.read_bytes()[:size])
    assert converted(folder) == whole
    file = folder / "model-00002-of-00002.safetensors"
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(CaptureError) as refused:
        converted(folder)
    assert str(refused.value) == (
        f"{file} ends in its header, after 100 bytes; it needs {size} bytes (curl -r 0-{size - 1})"
    )
    file.unlink()
    with pytest.raises(CaptureError, match=r"of 2 files of safetensors 1 missing: model-00002-of-00002\.safetensors;"):
        converted(folder)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"architectures": ["FnordForCausalLM"]},
            "config.json: the architecture 'FnordForCausalLM'; known are Deepseek",
        ),
        ({"architectures": []}, "config.json: no architecture; known are"),
        ({"architectures": "gone"}, "config.json: no architecture; known are"),
        ({"num_hidden_layers": "gone"}, "config.json: num_hidden_layers is missing; expected a whole number"),
        ({"num_hidden_layers": 10**9}, "config.json: 1000000000 layers; expected 1 to 1024"),
        ({"num_hidden_layers": 1}, "Can not map tensor"),
        ({"num_attention_heads": "four"}, "config.json: num_attention_heads is 'four'; expected a whole number"),
        ({"hidden_size": 1e99}, "config.json: hidden_size is '9999999"),
        ({"scoring_func": [None]}, "config.json: scoring_func is '[None]'; expected softmax or sigmoid"),
        ({"rope_theta": 1e300}, "config.json: rope_theta is '1e+300'; expected a number"),
        (
            {"rope_scaling": {"type": "yarn", "factor": 2}},
            "original_max_position_embeddings is missing; expected a whole",
        ),
        ({"rms_norm_eps": [1]}, "config.json: rms_norm_eps is '[1]'; expected a number"),
        ({"quantization_config": {"quant_method": "awq"}}, "config.json: the weights are quantized (awq); name the"),
    ],
)
def test_what_cannot_be_converted_is_told(call: Call, tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    folder = folder_of(tmp_path, **changed)
    result = call("place", folder)
    assert (result.status, result.out) == (2, "")
    assert said in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "ends in its header, after 0 bytes; it needs 8 bytes"),
        (b"\xff" * 20, "is no file of safetensors: its header would have"),
        (b"\x05" + bytes(7) + b"[1,2]", "is not a JSON object"),
        (b"\x05" + bytes(7) + b"{{{{{", "is not JSON"),
        (b"\x0d" + bytes(7) + b'{"a":{"b":1}}', "the tensor 'a' has no dtype and shape that safetensors knows"),
        (b"#" + bytes(7) + b'{"a":{"dtype":"F8","shape":[-1,2]}}', "the tensor 'a' has no dtype and shape"),
        (b"\x20\x4e" + bytes(6) + b"[" * 20000, "is not JSON"),
    ],
)
def test_hostile_files_are_told(tmp_path: Path, content: bytes, said: str) -> None:
    folder = folder_of(tmp_path)
    (folder / "model-00001-of-00002.safetensors").write_bytes(content)
    with pytest.raises(CaptureError) as refused:
        converted(folder)
    assert said in str(refused.value)


def test_what_is_no_such_folder(call: Call, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert "without config.json and safetensors" in call("capture", tmp_path).err
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "config.json").write_text("[")
    result = call("place", tmp_path)
    assert (result.status, result.out) == (2, "")
    assert "config.json is not JSON" in result.err
