"""Estimates against published measurements: the half that nothing was fitted to is met within what the manual says."""

from __future__ import annotations

import hashlib
import re
import statistics
from collections import Counter
from functools import cache
from importlib.resources import files

import pytest

from ggmltool.estimate.rates import fitted_shares
from ggmltool.estimate.records import ShareRange
from ggmltool.scenario.devices.rates import known_devices
from tests.estimate.calibrate import (
    OUT,
    Case,
    Errors,
    cases,
    errors,
    errors_of,
    fit,
    generation_of,
    of_package,
    off,
    text_of,
    unfitted,
)
from tests.estimate.left_out import device_errors, left_out, read_left_out
from tests.estimate.measurements import Row, measurements
from tests.sources.library import needs_library
from tests.sources.real_models import BENCH_MODELS, weights_nbytes

pytestmark = needs_library

PUBLISHED_GIB = {
    "llama-7b q4_0": 3.56,
    "llama-8b q4_K_M": 4.58,
    "llama-8b f16": 14.96,
    "llama-70b q4_K_M": 39.59,
    "llama-3b q4_K_M": 1.87,
    "tinyllama q4_K_M": 636.18 / 1024,
    "qwen2-7b q8_0": 7.54,
    "gemma3-4b q4_0": 2.35,
    "gpt-oss-20b mxfp4": 11.27,
    "gpt-oss-120b mxfp4": 59.02,
    "qwen3-30b-a3b q8_0": 30.25,
}
"""The size that llama-bench prints for the file that was measured."""


@cache
def every() -> list[Case]:
    return cases(measurements())


def held() -> list[Case]:
    return [case for case in every() if case.row.half == "held"]


def said_in_the_manual(row: str) -> Errors:
    """The errors in a row of the manual's tables."""
    page = (files("ggmltool") / "docs" / "devices.md").read_text("utf-8")
    said = re.search(rf"^\| {row} \| (\d+) \| ([\d.]+)% \| ([\d.]+)% \| (\d+)% \|$", page, re.MULTILINE)
    assert said is not None
    n, *rest = map(float, said.groups())
    return Errors(int(n), *(x / 100 for x in rest))


@pytest.mark.parametrize("model", PUBLISHED_GIB)
def test_a_model_is_as_large_as_the_one_that_was_measured(model: str) -> None:
    assert weights_nbytes(BENCH_MODELS[model]()) / 2**30 == pytest.approx(PUBLISHED_GIB[model], rel=0.005)


def test_every_measurement_names_a_known_device_and_where_it_was_published() -> None:
    rows = measurements()
    assert len(rows) >= 300
    for row in rows:
        assert row.backend in known_devices()[row.device].families
        assert row.model in BENCH_MODELS
        assert re.fullmatch(r"(https://github\.com/\S+|“[^”]+”.*?)( quoting llama\.cpp discussion #\d+)?", row.source)
        assert "/discussions/" not in row.source
        assert re.fullmatch(r"(pp|tg)\d+", row.test)
        assert row.rate > 0
    assert len(
        {(r.device, r.count, r.backend, r.model, r.test, r.depth, r.ubatch, r.flash, r.rate) for r in rows}
    ) == len(rows)
    assert {r.backend for r in rows} == {"CUDA", "ROCm", "Vulkan", "Metal", "CPU"}


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("A100 80GB", "the card with PCIe"),
        ("H100 SXM", "the card with SXM"),
        ("M4 Max 128GB", "the size of the memory"),
    ],
)
def test_what_a_quoted_measurement_does_not_say_is_named(device: str, words: str) -> None:
    quoted = [row for row in measurements() if row.device == device and "quoting" in row.source]
    assert quoted
    assert all(words in row.assumed for row in quoted)
    assert not any(row.assumed for row in measurements() if "llama.cpp/blob/master/benches" in row.source)


def test_which_half_a_measurement_is_of_follows_from_its_device_and_model() -> None:
    rows = [row for row in measurements() if row.half != "new"]
    for row in rows:
        digest = hashlib.sha256(f"{row.device} {row.model}".encode()).digest()
        assert row.fitted == bool(digest[0] % 2)
        assert row.half in ("fit", "held")
    assert min(Counter(row.half for row in rows).values()) >= 140


def assert_same(found: Errors, said: Errors) -> None:
    assert found.n == said.n
    assert found.median == pytest.approx(said.median, abs=0.02)
    assert found.most == pytest.approx(said.most, abs=0.08)
    assert found.within == pytest.approx(said.within, abs=0.08)


def test_the_held_out_half_is_met_within_a_fifth_and_as_the_manual_says() -> None:
    found = errors(held(), of_package)
    assert found.median <= 0.20
    assert found.within >= 0.65
    assert_same(found, said_in_the_manual("all"))


def test_what_was_found_after_all_was_chosen_is_met_as_the_manual_says() -> None:
    new = [case for case in every() if case.row.half == "new"]
    assert_same(errors(new, of_package), said_in_the_manual("found later, all"))


def test_a_card_without_measurements_is_met_as_the_manual_says() -> None:
    found = read_left_out(measurements())
    assert {x.row for x in found} == {row for row in measurements() if row.backend != "CPU"}
    assert len(found) == len({x.row for x in found})
    assert_same(errors_of([x.estimate for x in found]), said_in_the_manual("left out, all"))
    for backend in ("CUDA", "Metal", "ROCm", "Vulkan"):
        for prompt, test in ((True, "prompt"), (False, "answer")):
            group = [x.estimate for x in found if x.row.backend == backend and x.row.is_prompt == prompt]
            assert_same(errors_of(group), said_in_the_manual(f"left out, {backend}, {test}"))
    medians = [e.median for e in device_errors(found).values()]
    page = (files("ggmltool") / "docs" / "devices.md").read_text("utf-8")
    tenths = statistics.quantiles(medians, n=10, method="inclusive")
    assert f"half of {len(medians)} cards and backends are met within {tenths[4]:.0%}" in page
    assert f"nine of ten within {tenths[8]:.0%}" in page


@pytest.mark.parametrize(
    ("device", "backend"), [("A40", "CUDA"), ("M1 8GB", "Metal"), ("Instinct MI210", "ROCm"), ("RTX 2080 Ti", "Vulkan")]
)
def test_left_out_estimates_are_those_of_factors_fitted_without_the_device(device: str, backend: str) -> None:
    rows: dict[Row, float] = {x.row: x.mid for x in read_left_out(measurements())}
    again = left_out(every(), [(device, backend)])
    assert again
    for one in again:
        assert one.mid == pytest.approx(rows[one.row], rel=0.03)
        assert one.low <= one.mid <= one.high


@pytest.mark.parametrize("backend", ["CUDA", "ROCm", "Vulkan", "Metal"])
@pytest.mark.parametrize("prompt", [True, False])
def test_no_backend_is_far_off(backend: str, prompt: bool) -> None:
    group = [case for case in held() if case.row.backend == backend and case.row.is_prompt == prompt]
    assert len(group) >= 5
    assert errors(group, of_package).median <= 0.25


def test_estimates_are_neither_all_too_high_nor_all_too_low() -> None:
    assert abs(statistics.median(off(case, of_package(case.row)) for case in held())) < 0.1


def test_fitting_finds_shares_that_are_better_than_those_that_it_starts_from() -> None:
    group = [case for case in every() if case.row.backend == "Vulkan" and case.row.fitted]
    prior = {"matvec": 0.7, "matmul_quantized": 0.25}
    found = fit(group, prior, unfitted)
    assert found.keys() == prior.keys()
    before = statistics.mean(abs(off(case, unfitted(case.row))) for case in group)
    assert before > 0.2
    assert found != prior


def test_what_is_written_is_what_is_read() -> None:
    shares = {name: {key: ShareRange(*value) for key, value in of.items()} for name, of in fitted_shares().items()}
    assert text_of(shares) == OUT.read_text("utf-8")
    generations = {generation_of(row.device) for row in measurements() if row.fitted}
    assert {name.partition(" ")[2] for name in shares} - {""} <= generations
