"""Weights that an architecture places in a way of its own lie where llama.cpp puts them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from ggmltool.scenario.devices.backends import read_backends
from ggmltool.scenario.load import load_spec
from ggmltool.sources.llama.place.measurer import Measurer
from ggmltool.sources.llama.place.needs import place_and_measure
from ggmltool.sources.llama.place.place import Placer
from tests.sources.fake_gpus import FakeGpu, Refused, Settings, place
from tests.sources.gguf_file import write_gguf
from tests.sources.special_models import SPECIAL_MODELS
from tests.sources.test_place import ONE, PROMPT, TWO, captured, check, options_of

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


@pytest.mark.parametrize(("split", "refused"), [((2, 2, 3), True), ((3, 1, 3), True), ((1, 3, 3), False)])
def test_layers_without_attention_alone_on_a_device_are_refused_as_by_llama_cpp(
    split: tuple[float, ...], refused: bool, folder: Path
) -> None:
    path = folder / "deci.gguf"
    if not path.exists():
        write_gguf(path, SPECIAL_MODELS["deci"]())
    gpus = [FakeGpu(f"CUDA{i}") for i in range(3)]
    settings = Settings(tensor_split=split, alloc=True, options=PROMPT)
    placer = Placer(load_spec(captured(path, PROMPT)), read_backends([gpu.spec() for gpu in gpus]))
    _, needs = place_and_measure(placer, options_of(settings))
    assert (needs.error is not None) is refused
    if needs.error is None:
        assert place(path, gpus, settings).splits
    else:
        with pytest.raises(Refused, match=str(dict(needs.error)["message"])):
            place(path, gpus, settings)
    assert Measurer(placer).needs(options_of(settings)).error == needs.error
