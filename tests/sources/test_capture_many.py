"""Many graphs of one model come from one process, each as if it were captured alone."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ggmltool.sources.llama.capture import capture as asking
from ggmltool.sources.llama.capture.capture import Captured, capture, capture_many
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.errors import CaptureError, LlamaUnavailable
from tests.sources.gguf_file import write_gguf
from tests.sources.library import needs_library
from tests.sources.models import MODELS, cached

pytestmark = needs_library

BASE = CaptureOptions(n_ctx=512, n_batch=512)
VARIED = [
    BASE,
    replace(BASE, n_ctx=4096, phase="both"),
    replace(BASE, n_ubatch=64, n_parallel=2),
    replace(BASE, n_parallel=4, kv_unified=True, phase="token"),
    replace(BASE, type_k="q8_0", type_v="q4_0"),
    replace(BASE, flash_attn="off", program="library"),
    replace(BASE, swa_full=True, offload_kqv=False),
    BASE,
]


def told(outcomes: Iterable[Captured | CaptureError]) -> list[object]:
    """Outcomes to be compared: without the milliseconds that the library logs, of errors the message."""
    return [
        str(o) if isinstance(o, CaptureError) else (o.scenario, [re.sub(r"[0-9.]+ ms", "", line) for line in o.log])
        for o in outcomes
    ]


def alone(path: Path, asked: Sequence[CaptureOptions]) -> list[object]:
    """Each of them captured by a process of its own."""
    outcomes: list[Captured | CaptureError] = []
    for options in asked:
        try:
            outcomes.append(capture(path, options))
        except CaptureError as error:
            outcomes.append(error)
    return told(outcomes)


def said(outcomes: Sequence[Captured | CaptureError]) -> list[str]:
    return [str(o) if isinstance(o, CaptureError) else "" for o in outcomes]


@pytest.mark.parametrize("name", ["llama", "llama-moe", "gemma3", "deepseek2", "mamba2", "granitehybrid"])
def test_each_is_what_it_is_alone(name: str) -> None:
    assert told(capture_many(cached(name), VARIED)) == alone(cached(name), VARIED)


def test_nothing_is_asked_for_nothing() -> None:
    assert list(capture_many(cached("llama"), [])) == []


def test_tokens_are_decoded_between_others() -> None:
    asked = [BASE, replace(BASE, tokens=(1, 2, 3)), replace(BASE, n_ctx=256)]
    assert told(capture_many(cached("llama"), asked)) == alone(cached("llama"), asked)


def test_what_is_refused_is_an_error_in_its_place() -> None:
    path = cached("llama")
    asked = [
        BASE,
        replace(BASE, flash_attn="off", type_v="q8_0"),
        replace(BASE, n_parallel=300),
        replace(BASE, n_tokens=9999),
        replace(BASE, n_ctx=2048),
    ]
    outcomes = list(capture_many(path, asked))
    refusals = said(outcomes)
    assert [bool(text) for text in refusals] == [False, True, True, True, False]
    assert "quantized V cache requires flash_attn" in refusals[1]
    assert "n_seq_max must be <= 256" in refusals[2]
    assert "--n-tokens 9999 needs --ubatch-size 9999" in refusals[3]
    assert told([outcomes[0], outcomes[4]]) == alone(path, [asked[0], asked[4]])


def test_a_model_that_cannot_be_loaded_is_an_error_for_each(tmp_path: Path) -> None:
    path = tmp_path / "damaged.gguf"
    path.write_bytes(b"GGUF" + b"\xff" * 60)
    refusals = said(list(capture_many(path, [BASE] * 3)))
    assert len(refusals) == 3
    assert all("llama.cpp cannot load the model" in text for text in refusals)


def test_what_is_no_model_or_no_library_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="there is no such file"):
        capture_many(tmp_path / "nowhere.gguf", [BASE])
    with pytest.raises(LlamaUnavailable, match="is not installed"):
        capture_many(cached("llama"), [BASE, replace(BASE, library="xllamacpp==1.2")])


def process_that(monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    """The capturing process is one that does something else; it has `asked`, and `reply` writes."""
    code = f"""
import json, os, signal, sys
from ggmltool.sources.llama.capture.options import written
asked = json.load(sys.stdin)["options"]
def reply(value):
    os.write(1, written(value))
{does}
"""
    monkeypatch.setattr(asking, "_COMMAND", [sys.executable, "-P", "-c", code])


def test_after_a_crash_the_others_go_on_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    process_that(
        monkeypatch,
        """
reply({"loaded": True})
for options in asked:
    if options["n_ctx"] == 3:
        reply({"abort": "/home/user/ggml.c:7: GGML_ASSERT(no) failed"})
        os._exit(0)
    if options["n_ctx"] == 4:
        os.write(1, b"half a reply")
        os.write(2, b"terminate called\\n  what():  no luck\\n")
        os.kill(os.getpid(), signal.SIGABRT)
    reply({"scenario": {"meta": {"n_ctx": options["n_ctx"]}}, "log": []})
""",
    )
    outcomes = list(capture_many(cached("llama"), [replace(BASE, n_ctx=n) for n in (1, 2, 3, 4, 5)]))
    found = [o.facts["n_ctx"] if isinstance(o, Captured) else str(o).partition(": ")[2] for o in outcomes]
    assert found == [
        1,
        2,
        "llama.cpp aborted: ggml.c:7: GGML_ASSERT(no) failed",
        "llama.cpp crashed with SIGABRT: no luck",
        5,
    ]


def test_a_crash_while_the_model_is_loaded_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    process_that(monkeypatch, 'os.write(2, b"oops\\n"); os.kill(os.getpid(), signal.SIGSEGV)')
    (text,) = set(said(list(capture_many(cached("llama"), [BASE] * 3))))
    assert text.endswith("llama.cpp crashed with SIGSEGV: oops")


def test_a_mistake_of_ours_is_none_of_the_library_s(monkeypatch: pytest.MonkeyPatch) -> None:
    process_that(monkeypatch, 'reply({"loaded": True}); raise ValueError("oops")')
    with pytest.raises(RuntimeError, match="exit status 1: ValueError: oops"):
        list(capture_many(cached("llama"), [BASE] * 3))


def test_who_wants_no_more_leaves_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    process_that(
        monkeypatch,
        f"""
import time
from pathlib import Path
Path({str(tmp_path / "pid")!r}).write_text(str(os.getpid()))
reply({{"loaded": True}})
reply({{"scenario": {{}}, "log": []}})
time.sleep(600)
""",
    )
    captures = capture_many(cached("llama"), [BASE] * 3)
    next(captures)
    pid = (tmp_path / "pid").read_text()
    assert Path(f"/proc/{pid}").exists()
    captures.close()  # type: ignore[attr-defined]
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("command", "refused"),
    [("place", "architecture"), ("sweep", "tensor"), ("fit", "cache"), ("fit", "tensor"), ("capture", "cache")],
)
def test_a_command_that_cannot_capture_ends_in_status_2(command: str, refused: str, tmp_path: Path) -> None:
    """In a process of its own, for it is its end that is looked at: threads and processes of the capture are gone."""
    model = MODELS["llama"]()
    path, options = tmp_path / "model.gguf", ["--flash-attn", "off", "-ctv", "q4_0"]
    if refused == "architecture":
        model = model._replace(architecture="nosuch")
    if refused == "tensor":
        model = model._replace(tensors={n: t for n, t in model.tensors.items() if n != "blk.2.ffn_up.weight"})
    write_gguf(path, model)
    said = subprocess.run(
        [sys.executable, "-m", "ggmltool", command, str(path), "-c", "512", *options],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert said.stderr.count("Error: ") == 1
    assert "Fatal" not in said.stderr
    assert said.returncode == 2
