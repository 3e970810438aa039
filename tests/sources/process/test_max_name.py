"""A ggml that was built with another GGML_MAX_NAME has larger tensors: its code says how large."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from ggmltool.attach.files.instance import max_name_of
from ggmltool.attach.gdb.link import GdbLink
from ggmltool.state.memory.errors import LinkError, NoBytes
from ggmltool.structs.layout import MAX_NAME, layout, layout_names

AT = 0x1000
OVERHEAD: Mapping[str, int] = {"ggml_tensor_overhead": AT}
ENDBR = b"\xf3\x0f\x1e\xfa"


class Code:
    """A program that has nothing but a function, which gdb cannot disassemble."""

    def __init__(self, code: bytes) -> None:
        self.code = code

    def read(self, address: int, length: int) -> bytes:
        found = self.code[address - AT :][:length]
        if len(found) < length:
            raise NoBytes(address, length)
        return found

    def ask(self, verb: str, *arguments: Any) -> Any:
        if verb == "about":
            return {"architecture": "x86-64"}
        raise LinkError(verb)


def max_name(code: bytes, structs: str = "0.20.2", symbols: Mapping[str, int] = OVERHEAD) -> int:
    return max_name_of(cast("GdbLink", Code(code.ljust(16, b"\x90"))), symbols, structs)


def returns(number: int) -> bytes:
    return b"\xb8" + number.to_bytes(4, "little") + b"\xc3"


@pytest.mark.parametrize("name", layout_names())
@pytest.mark.parametrize("n", [16, 48, 64, 128, 256])
def test_the_size_of_a_tensor_says_how_long_names_are(name: str, n: int) -> None:
    structs = layout(name, n).structs
    tensor = structs["ggml_tensor"]
    members = tensor.members or {}
    usual = layout(name).structs["ggml_tensor"]
    assert tensor.size == usual.size + n - MAX_NAME
    assert members["extra"].offset == members["name"].offset + n
    overhead = structs["ggml_object"].size + tensor.size
    assert max_name(returns(overhead), name) == n
    assert max_name(ENDBR + returns(overhead), name) == n


@pytest.mark.parametrize("code", [returns(0), returns(1 << 31), returns(371), b"\xc3", b"", b"\xb8\x70\x01"])
def test_what_is_no_such_size_changes_nothing(code: bytes) -> None:
    assert max_name(code) == MAX_NAME
    assert max_name(returns(432), symbols={}) == MAX_NAME
