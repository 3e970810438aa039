"""`fit` of models of real shapes: nothing is better, the printed line has its numbers. `exhaustive.py` asks more."""

from __future__ import annotations

import pytest

from ggmltool.ask.fit.record import fit
from ggmltool.ask.fit.wishes import Ranges, Wishes
from ggmltool.ask.place.options import Placing
from tests.sources.exhaustive import better, fitted, same_numbers
from tests.sources.library import needs_library
from tests.sources.real_models import real

pytestmark = needs_library


@pytest.mark.parametrize(("name", "n_gpus"), [("gemma-270m", 1), ("qwen2vl-7b", 2)])
def test_no_other_placement_of_a_real_shape_is_better(name: str, n_gpus: int) -> None:
    found = fitted(real(name), n_gpus)
    assert found.found.best is not None
    assert found.found.proved
    assert list(better(found, 20)) == []
    assert same_numbers(found)


def test_cards_of_an_uneven_model_are_filled_by_bytes_not_by_layers() -> None:
    """llama.cpp#12654: a 49B whose layers differ overflows one of two equal cards if each gets as many layers."""
    device, ranges = ("CUDA0:19GiB", "CUDA1:19GiB"), Ranges(contexts=(8192,), ubatches=(512,), n_cpu_ffn=0)
    found = fit(Wishes(str(real("nemotron-49b")), ranges, Placing(device=device, n_depth=4096))).facts
    best = found.found.best
    assert best is not None
    assert best.room >= 0
    first, second = best.choice.counts
    assert first + second == 81
    assert first < second - 10
