"""Functions of a program that answer yes to everything, found by their code: callbacks that do nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ggmltool.attach.link import Link

_LENGTH = 32
"""Bytes of code that are looked at: the longest of these functions has fewer."""

_X86 = (
    rb"(?:\xf3\x0f\x1e\xfa)?"  # endbr64
    rb"(?:\x55\x48\x89\xe5)?"  # push rbp; mov rbp, rsp
    rb"(?:\x48\x89\x7d[\x80-\xff])?(?:\x48\x89\x75[\x80-\xff])?"  # arguments put below the frame, never looked at
    rb"(?:%s)"
    rb"(?:\x5d)?"  # pop rbp
    rb"\xc3"  # ret
)
_ARM = (
    rb"(?:\x5f\x24\x03\xd5)?"  # bti c
    rb"(?:%s)"
    rb"\xc0\x03\x5f\xd6"  # ret
)
_CODES = (_X86 % rb"\xb8\x01\x00\x00\x00", _ARM % rb"\x20\x00\x80[\x52\xd2]")
"""What a function has to be, on x86-64 and arm64: the number 1 as its result, and nothing else."""

_LIKELY = re.compile(r"ggml_cpu_has_|ggml_backend_.*_(?:get_)?device_count|ggml_backend_.*is_host")


def constant_function(link: Link, symbols: Mapping[str, int]) -> int | None:
    """The address of a function that takes no notice of its arguments and answers 1 (None: there is none).

    `symbols` are ggml's. It is one of ggml_cpu_has_…, which say at compile time what the CPU can do, or another whose
    code is as plain.
    """
    likely = [at for name, at in sorted(symbols.items()) if _LIKELY.match(name)]
    return _first(link, likely) or _first(link, symbols.values())


def _first(link: Link, addresses: Iterable[int]) -> int | None:
    wanted = list(dict.fromkeys(addresses))
    codes = link.read_many([(address, _LENGTH) for address in wanted])
    for address, code in zip(wanted, codes, strict=True):
        if any(re.match(pattern, code, re.DOTALL) for pattern in _CODES):
            return address
    return None
