"""What cannot be captured is told in one message, with llama.cpp's words where it has some."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ggmltool.sources.llama.capture import capture as asking
from tests.cli.conftest import Call
from tests.sources.gguf_file import Description, Shape, write_gguf
from tests.sources.library import needs_library
from tests.sources.models import MODELS, cached


def refused(call: Call, *words: object) -> str:
    """What the command says instead of a result: one line."""
    result = call("capture", *words)
    assert (result.status, result.out) == (2, "")
    assert "Traceback" not in result.err
    assert result.err.startswith("Error: ")
    assert result.err.count("\n") == 1
    assert "\x1b" not in result.err
    return result.err.removeprefix("Error: ").rstrip("\n")


def changed(name: str, values: dict[str, Any] | None = None, tensors: dict[str, Shape | None] | None = None) -> Path:
    """A model with other metadata (`architecture` too) and other tensors, None for none, in the current folder."""
    model = MODELS[name]()
    metadata = model.values | (values or {})
    architecture = metadata.pop("architecture", model.architecture)
    shapes = {key: shape for key, shape in (model.tensors | (tensors or {})).items() if shape is not None}
    write_gguf(Path("model.gguf"), Description(architecture, metadata, shapes))
    return Path("model.gguf")


@needs_library
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "model.gguf: there is no such file"),
        (b"", "model.gguf is empty"),
        (b"PK\3\4 and more", "model.gguf is not a GGUF file: it does not begin with GGUF"),
        (b"GGUF\3\0\0\0", "model.gguf is cut off: its header has 8 of 24 bytes"),
        (b"GGUF" + b"\xff" * 20, "model.gguf: llama.cpp cannot load the model: "),
    ],
)
def test_what_is_no_model(call: Call, content: bytes | None, said: str) -> None:
    if content is not None:
        Path("model.gguf").write_bytes(content)
    assert refused(call, "model.gguf").startswith(said)


@needs_library
def test_what_is_no_regular_file_is_not_read(call: Call) -> None:
    assert refused(call, ".") == ". is a folder without config.json and safetensors; name a GGUF file in it"
    os.mkfifo("pipe.gguf")
    assert refused(call, "pipe.gguf") == "pipe.gguf is not a regular file"
    Path("loop.gguf").symlink_to("loop.gguf")
    assert refused(call, "loop.gguf") == "loop.gguf: Too many levels of symbolic links"


@needs_library
@pytest.mark.parametrize(
    ("keep", "said"),
    [
        (100, "with 1 of its 13 key-value pairs; it needs more than "),
        (1200, "with 11 of the 57 entries of its tensor table; it needs more than "),
    ],
)
def test_a_model_cut_in_its_header(call: Call, keep: int, said: str) -> None:
    Path("model.gguf").write_bytes(cached("llama").read_bytes()[:keep])
    message = refused(call, "model.gguf")
    assert message.startswith(f"model.gguf ends in its header, after {keep} bytes {said}")


@needs_library
def test_tokens_need_the_weights(call: Call) -> None:
    Path("model.gguf").write_bytes(cached("llama").read_bytes()[:-1])
    why = "the weights' values; of model.gguf there is only the header"
    assert refused(call, "model.gguf", "--tokens", "1,2") == f"--prompt and --tokens need {why}"
    assert refused(call, "model.gguf", "--weights") == f"--weights needs {why}"


@needs_library
@pytest.mark.parametrize(
    ("values", "tensors", "said"),
    [
        ({"architecture": "fnord"}, {}, "llama.cpp cannot load the model: unknown model architecture: 'fnord'"),
        ({"architecture": "fno\x1b[2Jrd"}, {}, "unknown model architecture: 'fno\\x1b[2Jrd'"),
        ({"architecture": "clip"}, {}, "CLIP cannot be used as main model, use it with --mmproj instead"),
        ({}, {"blk.2.ffn_up.weight": None}, "tensor 'blk.2.ffn_up.weight' not found"),
        ({}, {"blk.2.ffn_up.weight": ("f32", (256, 100))}, "tensor 'blk.2.ffn_up.weight' has wrong shape"),
        ({"attention.head_count": 3}, {}, "invalid n_rot: 64, expected 85"),
        ({"context_length": 0}, {}, "n_ctx and model->hparams.n_ctx_train cannot both be zero"),
        ({"context_length": 2**32 - 1}, {}, "a context of 4294967295 tokens is too large; use a --ctx-size"),
        ({"block_count": 100_000}, {}, "llama.cpp aborted: llama-model.cpp:"),
    ],
)
def test_a_model_that_llama_cpp_refuses(
    call: Call, values: dict[str, Any], tensors: dict[str, Shape | None], said: str
) -> None:
    assert said in refused(call, changed("llama", values, tensors))


@needs_library
def test_an_abort_while_the_graph_is_built_comes_in_its_words(call: Call) -> None:
    message = refused(call, changed("rwkv7", {"wkv.head_size": 100}), "-c", 256)
    assert "llama.cpp aborted: ggml.c:" in message
    assert "GGML_ASSERT(ggml_nelements(a) == ne0*ne1*ne2) failed" in message


def nothing_but(monkeypatch: pytest.MonkeyPatch, folder: Path, *names: str) -> None:
    """Only these packages are there: distributions `name-version` in an otherwise empty folder."""
    folder.mkdir()
    for name in names:
        info = folder / f"{name}.dist-info"
        info.mkdir()
        distribution, _, version = name.rpartition("-")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    monkeypatch.setattr("sys.path", [str(folder)])
    monkeypatch.delenv("GGMLTOOL_LIBRARIES", raising=False)


def test_the_library_can_be_missing(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nothing_but(monkeypatch, tmp_path / "empty")
    message = refused(call, "model.gguf")
    assert message.startswith("llama.cpp is missing: the package xllamacpp is not installed.")
    assert "pip install 'xllamacpp>=" in message
    message = refused(call, "model.gguf", "--library", "llama-cpp-py-sync==0.11548")
    assert message == (
        "llama.cpp is missing: the package llama-cpp-py-sync==0.11548 is not installed. Install it with "
        "`pip install 'llama-cpp-py-sync==0.11548'`, or name its folder in GGMLTOOL_LIBRARIES."
    )
    message = refused(call, "model.gguf", "--library", "llama-bindings")
    assert message.startswith("--library llama-bindings: the packages with llama.cpp are xllamacpp, llama-cpp-python")


@pytest.mark.parametrize("version", ["0.2.14", "2026.7.10068", "2026.11.1", "2027.1", "nonsense"])
def test_the_library_can_be_another_release(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    nothing_but(monkeypatch, tmp_path / "other", f"xllamacpp-{version}")
    message = refused(call, "model.gguf")
    assert message.startswith(f"xllamacpp {version} is installed; ggmltool knows the structs of xllamacpp>=")


def test_a_package_without_its_library_is_as_good_as_none(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nothing_but(monkeypatch, tmp_path / "hollow", "xllamacpp-2026.10.11549")
    assert refused(call, "model.gguf").startswith("The package xllamacpp has no shared object here.")


@needs_library
def test_structs_of_another_release_are_noticed_whatever_the_version_says() -> None:
    from ggmltool.sources.llama.capture.lib import CONTEXT_DEFAULTS, LlamaLib
    from ggmltool.sources.llama.errors import LlamaUnavailable

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CONTEXT_DEFAULTS, "n_ubatch", 7)
        with pytest.raises(LlamaUnavailable, match=r"other structs than ggmltool knows \(.*n_ubatch"):
            LlamaLib()
    assert LlamaLib().ggml


@needs_library
def test_a_mistake_of_ours_in_the_child_is_told_apart(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys; sys.exit('Traceback:\\n  File child.py, line 1\\nZeroDivisionError: oops')"
    monkeypatch.setattr(asking, "_COMMAND", [sys.executable, "-c", code])
    result = call("capture", cached("llama"))
    assert result.status == 3
    assert "ended with exit status 1: ZeroDivisionError: oops" in result.err
    assert "Traceback" not in result.err
    assert "File child.py, line 1" in call("--traceback", "capture", cached("llama")).err


@needs_library
def test_a_crash_of_the_library_is_a_message(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "terminate called after throwing an instance of 'std::runtime_error'\\n  what():  no luck\\n"
    code = f'import os; os.write(2, b"{said}"); os.abort()'
    monkeypatch.setattr(asking, "_COMMAND", [sys.executable, "-c", code])
    assert refused(call, cached("llama")).endswith("llama.gguf: llama.cpp crashed with SIGABRT: no luck")
