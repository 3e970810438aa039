"""A model from its header on: the first bytes of a file, or of the parts of a split one, are captured as the whole."""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ggmltool.scenario.gguf import value_of
from ggmltool.sources.llama.capture.capture import capture
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.errors import CaptureError
from ggmltool.sources.llama.model_file import CutError, ModelFile, OddError, open_model, read_header, write_header
from tests.sources.gguf_file import write_gguf, write_parts
from tests.sources.library import needs_library
from tests.sources.models import MODELS, cached

OPTIONS = CaptureOptions(n_ctx=512, n_batch=512)


def scenario(path: Path) -> dict[str, Any]:
    return capture(path, OPTIONS).scenario


def cut(path: Path, folder: Path, keep: int | None = None) -> Path:
    """The first bytes of a file under the same name: all before the data, unless it is said how many."""
    n = read_header(path).size if keep is None else keep
    new = folder / path.name
    new.write_bytes(path.read_bytes()[:n])
    return new


@needs_library
@pytest.mark.parametrize("name", MODELS)
def test_the_header_alone_is_captured_as_the_whole(name: str, tmp_path: Path) -> None:
    path = cached(name)
    only_header = cut(path, tmp_path)
    opened = open_model(only_header)
    assert (opened.title, opened.has_values, opened.path.name) == (str(only_header), False, path.name)
    assert opened.path.stat().st_size == read_header(path).whole
    assert opened.path.stat().st_blocks * 512 < read_header(path).size + 2 * 4096
    assert scenario(only_header) == scenario(path)


def test_a_whole_file_is_taken_as_it_is(tmp_path: Path) -> None:
    path = cached("llama")
    assert open_model(path) == ModelFile(path, str(path))
    needed = read_header(path).needed
    assert open_model(cut(path, tmp_path, needed)).has_values
    assert not open_model(cut(path, tmp_path, needed - 1)).has_values


@needs_library
@pytest.mark.parametrize("keep", [None, 3000, "second"])
def test_headers_of_all_parts_are_captured_as_the_whole(tmp_path: Path, keep: object) -> None:
    model = MODELS["gemma3"]()
    write_gguf(tmp_path / "gemma3.gguf", model)
    first = write_parts(tmp_path, "gemma3", model, 3)
    assert open_model(first).path == first
    for part in sorted(tmp_path.glob("gemma3-*"))[1 if keep == "second" else 0 :]:
        n = read_header(part).size if keep != 3000 else 3000
        part.write_bytes(part.read_bytes()[:n])
    assert not open_model(first).has_values
    alike, whole = scenario(first), scenario(tmp_path / "gemma3.gguf")
    assert alike["contexts"] == whole["contexts"]
    assert alike["graphs"] == whole["graphs"]


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ((2,), "and 1 missing: m-00002-of-00006.gguf; the first"),
        ((2, 4), "and 2 missing: m-00002-of-00006.gguf, m-00004-of-00006.gguf; the first"),
        (
            (2, 3, 4, 5),
            "and 4 missing: m-00002-of-00006.gguf, m-00003-of-00006.gguf, m-00004-of-00006.gguf …;",
        ),
    ],
)
def test_missing_parts_are_named(tmp_path: Path, gone: tuple[int, ...], said: str) -> None:
    first = write_parts(tmp_path, "m", MODELS["llama"](), 6)
    for i in gone:
        (tmp_path / f"m-{i:05}-of-00006.gguf").unlink()
    with pytest.raises(CaptureError) as refused:
        open_model(first)
    assert str(refused.value).startswith(f"{first} is the first of 6 parts, ")
    assert said in str(refused.value)


def test_a_later_part_names_the_first(tmp_path: Path) -> None:
    write_parts(tmp_path, "m", MODELS["llama"](), 3)
    with pytest.raises(CaptureError, match=r"is part 2 of 3; name the first one, m-00001-of-00003\.gguf"):
        open_model(tmp_path / "m-00002-of-00003.gguf")


def needed(said: str) -> int:
    """How many bytes a message says are not enough."""
    words = said.split()
    return int(words[words.index("than") + 1])


@pytest.mark.parametrize("name", ["llama", "gemma2", "t5"])
def test_a_cut_header_says_how_much_is_needed_at_least(tmp_path: Path, name: str) -> None:
    path = cached(name)
    size = read_header(path).size
    content = path.read_bytes()[:size]
    part = tmp_path / "part.gguf"
    least = 0
    for keep in (*range(24, size - 80, 83), *range(size - 80, size - 32)):
        part.write_bytes(content[:keep])
        with pytest.raises(CutError) as refused:
            read_header(part)
        assert f"ends in its header, after {keep} bytes with " in str(refused.value)
        assert keep < needed(str(refused.value)) <= size
        least = max(least, needed(str(refused.value)))
    assert least > size - 64


def test_the_message_names_what_is_cut(tmp_path: Path) -> None:
    with pytest.raises(CutError, match="with 5 of its 13 key-value pairs; it needs more than"):
        open_model(cut(cached("llama"), tmp_path, 230))
    with pytest.raises(
        CutError, match=r"with \d+ of the 57 entries of its tensor table; .* about \d+ by those: get the"
    ):
        open_model(cut(cached("llama"), tmp_path, 2000))
    many = {"tokenizer.ggml.tokens": value_of(["word"] * 5000)}
    write_header(tmp_path / "whole.gguf", many, [])
    with pytest.raises(CutError) as refused:
        open_model(cut(tmp_path / "whole.gguf", tmp_path, 9000).rename(tmp_path / "cut.gguf"))
    assert needed(str(refused.value)) > 9000 + 8 * 4000


def test_a_header_is_written_as_it_was_read(tmp_path: Path) -> None:
    for name in MODELS:
        header = read_header(cached(name))
        write_header(tmp_path / "again.gguf", header.values, [(t.name, t.type_id, t.ne) for t in header.tensors])
        again = read_header(tmp_path / "again.gguf")
        assert again == header
        assert (tmp_path / "again.gguf").stat().st_size == header.whole


@pytest.mark.parametrize("seed", range(8))
def test_hostile_headers_are_odd_or_cut(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = cached("granitehybrid")
    content = path.read_bytes()[: read_header(path).size]
    target = tmp_path / "hostile.gguf"
    for _ in range(250):
        raw = bytearray(content)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(4, len(raw) - 8)
            match rng.randrange(3):
                case 0:
                    raw[at] = rng.randrange(256)
                case 1:
                    raw[at : at + 8] = struct.pack("<Q", rng.choice([0, 1 << 20, 1 << 31, 1 << 62, (1 << 64) - 1]))
                case _:
                    del raw[at:]
                    raw += bytes(8)
        target.write_bytes(raw)
        try:
            header = read_header(target)
        except (CutError, OddError):
            continue
        assert len(header.tensors) <= 1 << 18
        assert header.whole >= header.size > 0
        with suppress(CaptureError):
            assert open_model(target, rng.choice(("q4_K_M", "iq2_xs", "f16"))).quantization


def test_values_that_are_no_numbers_are_none(tmp_path: Path) -> None:
    values = {"nan": value_of(float("nan")), "list": value_of([7, 8]), "text": value_of("7"), "half": value_of(7.5)}
    write_header(tmp_path / "m.gguf", values, [])
    header = read_header(tmp_path / "m.gguf")
    assert [header.number(key, 3) for key in (*values, "none")] == [3, 7, 3, 3, 3]
    with pytest.raises(OSError, match="64 TiB"):
        write_header(tmp_path / "m.gguf", {}, [(b"t", 0, (1 << 40, 1 << 10))])
