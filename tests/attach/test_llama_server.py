"""llama.cpp's own server on a GPU and the CPU, as most people run it: some layers, or the KV cache, stay on the CPU."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path

import pytest

import ggmltool
from ggmltool.ask.attach.verified import verify_written
from ggmltool.attach.calls import calls, visit
from ggmltool.attach.session import AttachSession
from tests.attach.in_gdb import session as in_gdb
from tests.attach.programs import environment, serving
from tests.needs import made, needs_gdb, real_vulkan
from tests.sources.gguf_file import write_gguf
from tests.sources.models import MODELS, VOCAB

pytestmark = needs_gdb
SAME = "the program did what the plan says"
WAYS = {"some layers": ("-ngl", "3"), "cache on the CPU": ("-ngl", "99", "-nkvo")}
"""Where the CPU computes in the GPU's host buffer and has a buffer of its own as well."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A llama of six layers with a vocabulary, which the server needs to answer."""
    described = MODELS["llama"]()
    vocabulary = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *(f"<{i}>" for i in range(3, VOCAB))],
        "tokenizer.ggml.scores": [0.0] * VOCAB,
        "tokenizer.ggml.token_type": [2, 3, 3, *[1] * (VOCAB - 3)],
    }
    path = tmp_path_factory.mktemp("models") / "llama.gguf"
    write_gguf(path, described._replace(values=described.values | vocabulary))
    return path


def server(model: Path, way: str, port: int = 0) -> list[str]:
    real_vulkan()
    return made(lambda: serving(model, port or free_port(), *WAYS[way]))


def free_port() -> int:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def answering(model: Path, way: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A server that is asked for tokens again and again."""
    port = free_port()
    with subprocess.Popen(server(model, way, port), env=environment(), stderr=subprocess.DEVNULL) as process:
        ends = threading.Event()

        def asks() -> None:
            body = json.dumps({"prompt": [1, 5, 6], "n_predict": 4, "cache_prompt": False}).encode()
            asked = urllib.request.Request(
                f"http://127.0.0.1:{port}/completion", body, {"Content-Type": "application/json"}
            )
            while not ends.is_set():
                with suppress(OSError):
                    urllib.request.urlopen(asked, timeout=60).read()
                time.sleep(0.1)

        asking = threading.Thread(target=asks, daemon=True)
        asking.start()
        try:
            yield process, port
        finally:
            ends.set()
            process.kill()
            asking.join()


@contextmanager
def launched(arguments: list[str]) -> Iterator[AttachSession]:
    """A server that is looked at from its start, and ended with the block."""
    session = AttachSession.launch(arguments)
    try:
        with session:
            yield session
    finally:
        os.kill(session.pid, signal.SIGKILL)
        session.wait()


@pytest.mark.parametrize("way", WAYS)
def test_every_call_of_a_server_is_a_scenario_whose_plan_is_what_it_did(
    way: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in environment().items():
        monkeypatch.setenv(key, value)
    functions = []
    with launched(server(model, way)) as session:
        for called in islice(calls(session, "any"), 5):
            seen = visit(session)
            found = verify_written(seen.written, seen.decided, seen.left)
            assert found.same, found.first
            assert {"Vulkan_Host", "CPU"} <= seen.written.document["buffer_types"].keys()
            functions.append(called.function)
    assert functions[-2:] == ["ggml_backend_sched_alloc_graph", "ggml_backend_sched_graph_compute_async"]


@pytest.mark.parametrize("way", WAYS)
def test_a_server_that_answers_is_attached_to_and_its_file_is_loaded(way: str, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.json.gz"
    with answering(model, way) as (process, _):
        command = [sys.executable, "-m", "ggmltool", "attach", "--verify", "-o", str(path), str(process.pid)]
        looked = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=120)
        assert looked.returncode == 0, looked.stderr
        assert SAME in looked.stdout
        assert process.poll() is None
    plan = ggmltool.load(path).plan()
    assert plan.ok
    assert dict(plan.backends) == {"Vulkan0": "Vulkan0", "CPU": "Vulkan_Host"}


def test_in_gdb_its_graph_is_verified_and_saved(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.json.gz"
    said = in_gdb(
        server(model, "some layers"),
        "break ggml_backend_sched_graph_compute_async",
        "run",
        "ggml verify",
        f"ggml save {path}",
        "kill",
    )
    assert SAME in said
    assert f"Wrote {path}" in said
    assert ggmltool.load(path).plan().ok
