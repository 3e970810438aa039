"""Weights that an architecture places in a way of its own lie where llama.cpp puts them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.sources.fake_gpus import FakeGpu, Settings
from tests.sources.gguf_file import write_gguf
from tests.sources.special_models import SPECIAL_MODELS
from tests.sources.test_place import ONE, PROMPT, TWO, check

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="needs llama.cpp (the package xllamacpp, extra llama)"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("special")


@pytest.mark.parametrize(("n_gpu_layers", "gpus"), [(2, ONE), (3, TWO), (-1, TWO)], ids=["2", "3 of two", "all of two"])
@pytest.mark.parametrize("name", SPECIAL_MODELS)
def test_a_model_with_rules_of_its_own_is_placed_as_llama_cpp_does(
    name: str, n_gpu_layers: int, gpus: list[FakeGpu], folder: Path
) -> None:
    path = folder / f"{name}.gguf"
    if not path.exists():
        write_gguf(path, SPECIAL_MODELS[name]())
    check(path, gpus, Settings(n_gpu_layers, options=PROMPT))
