"""`capture --for`: the memory that llama-server reserves, as it logs it, and that of the library's own defaults."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import ggmltool
from ggmltool.sources.llama.capture.capture import capture
from ggmltool.sources.llama.capture.options import AUTO_PARALLEL, CaptureOptions
from tests.cli.conftest import SAMPLES, Call
from tests.sources.library import needs_library
from tests.sources.models import cached
from tests.sources.test_place import gemma

pytestmark = needs_library

SERVER = """
import json, sys
import xllamacpp
asked = json.loads(sys.argv[1])
params = xllamacpp.CommonParams()
params.model.path = asked.pop("path")
for name, value in asked.items():
    setattr(params, name, value)
params.warmup = params.fit_params = False
params.verbosity = 9
xllamacpp.Server(params)
"""
"""The server of llama.cpp as the package xllamacpp carries it, with its own log."""

COMPUTE = re.compile(r"sched_reserve: +CPU compute buffer size = +([0-9.]+) MiB")
OUTPUTS = re.compile(r"llama_context: n_outputs_max += (\d+)")
RESERVED = re.compile(r"reserving a graph for ubatch with n_tokens = +(\d+), n_seqs = +(\d+), n_outputs = +(\d+)")


def served(path: Path, **params: Any) -> str:
    """What the server logs until its context is there; then it is ended, which it does not always do well by itself."""
    words = [sys.executable, "-c", SERVER, json.dumps({"path": str(path), **params})]
    said = ""
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        deadline = threading.Timer(120, child.kill)
        deadline.start()
        for line in child.stdout or ():
            said += line.decode("utf-8", "replace")
            if COMPUTE.search(said):
                break
        deadline.cancel()
        child.kill()
    assert COMPUTE.search(said), said[-2000:]
    return said


@pytest.mark.parametrize("n_parallel", [1, 3, AUTO_PARALLEL])
@pytest.mark.parametrize("name", ["llama", "gemma2", "llama-moe", "granitehybrid"])
def test_a_capture_for_the_server_is_as_large_as_the_server_logs(name: str, n_parallel: int) -> None:
    """U1: one output of each sequence; -np auto is four sequences that share a cache."""
    shared = n_parallel == AUTO_PARALLEL
    asked: dict[str, Any] = {"n_ctx": 1024, "n_parallel": n_parallel, "kv_unified": shared}
    said = served(cached(name), **asked)
    scenario = capture(cached(name), CaptureOptions(**asked, phase="both")).scenario
    n_tokens, n_seqs, n_outputs = map(int, RESERVED.findall(said)[-1])
    assert (n_tokens, n_seqs, n_outputs) == (512, n_parallel, n_parallel)
    assert int(OUTPUTS.findall(said)[-1]) == scenario["meta"]["n_outputs"] == n_parallel
    loaded = ggmltool.load(scenario)
    sizes = [dict(loaded.plan(graph, step="reserve").buffer_sizes)["CPU"] for graph in ("prompt", "token")]
    assert f"{max(sizes) / 2**20:.2f}" == COMPUTE.findall(said)[-1]


@pytest.mark.parametrize(
    ("options", "n_outputs"),
    [
        ((), 1),
        (("--for", "cli"), 1),
        (("--for", "library"), 512),
        (("-np", "auto"), 4),
        (("-np", 3), 3),
        (("--for", "library", "-np", 3), 512),  # of 513 tokens, three times as many as one sequence has
        (("--outputs", 7), 7),
        (("--for", "library", "--outputs", 7), 7),
        (("--embeddings",), 512),
    ],
)
def test_the_outputs_are_those_of_the_program(call: Call, options: tuple[object, ...], n_outputs: int) -> None:
    """U1: what each program sets n_outputs_max to, and --outputs before all of them."""
    result = call("capture", cached("llama"), "-c", 1024, *options)
    assert result.status == 0
    assert json.loads(result.out)["meta"]["n_outputs"] == n_outputs


def test_a_model_with_an_encoder_has_all_outputs() -> None:
    """U1: llama_context takes n_batch for it, whatever the program says."""
    for program, n_outputs in (("server", 512), ("library", 512)):
        options = CaptureOptions(n_ctx=512, program=program)  # type: ignore[arg-type]
        assert capture(cached("t5"), options).facts["n_outputs"] == n_outputs


def test_the_program_is_said(call: Call) -> None:
    """U1: beside the file that was written, in the scenario's name and in its meta; `place` repeats it."""
    server = "for llama-server, 1 sequence: logits of 1 of 512 tokens"
    result = call("capture", cached("llama"), "-c", 1024, "-o", "server.json")
    assert result.err.splitlines()[1] == f"{server} (without -np llama-server has 4: -np auto)"
    assert json.loads(Path("server.json").read_text("utf-8"))["meta"]["program"] == "server"
    assert call("plan", "server.json").out.startswith("llama for llama-server, prompt of 512 tokens")
    library = "for the library, 1 sequence: logits of 512 of 512 tokens"
    result = call("capture", cached("llama"), "-c", 1024, "--for", "library", "-o", "library.json")
    assert result.err.splitlines()[1] == library


def test_gemma_3_270m_is_as_large_as_the_server_says(call: Call) -> None:
    """U1: 27.28 MiB with this release of llama.cpp (26.77 with that of August), 527 MiB on the library's defaults."""
    path = gemma()
    said = served(path, n_ctx=8192)
    for options, size in (((), 28602400), (("--for", "library"), 552892416)):
        assert call("capture", path, "-c", 8192, *options, "-o", "gemma.json", "--force").status == 0
        sizes = dict(ggmltool.load("gemma.json").plan(step="reserve").buffer_sizes)
        assert sizes == {"CPU": size}
    assert COMPUTE.findall(said)[-1] == f"{28602400 / 2**20:.2f}" == "27.28"


def test_the_sample_of_gemma_is_for_the_library(call: Call) -> None:
    """U1: it has an output for each token, which `place` says."""
    meta = ggmltool.load(SAMPLES / "gemma-3-270m.json.gz").model.meta
    assert meta["n_outputs"] == meta["n_tokens"]
    assert "for the library, 1 sequence" in call("place", "gemma-3-270m").out
