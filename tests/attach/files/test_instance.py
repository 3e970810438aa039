"""A ggml that was linked into a program: its functions are found beside its static variables, some are inlined."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from ggmltool.attach.files.elf import opened
from ggmltool.attach.files.instance import HEART, STOPS, SYMBOLS, Instance, instances_of, max_name_of
from ggmltool.attach.gdb.link import GdbLink
from ggmltool.ggml.releases.table import NEWEST
from ggmltool.state.errors import LinkError, NoBytes
from ggmltool.structs.layout import MAX_NAME, layout, layout_names
from tests.needs import needs_gcc

FILE = "/srv/program"
_, ALLOC, COMPUTE = STOPS
LINKED = """
int shadow __asm__("_ZZ20ggml_backend_cpu_regE20ggml_backend_cpu_reg");
const char version[] = "0.20.2", zlib[] = "1.2.13";
void ggml_backend_cpu_reg(void) {}
int main(void) { ggml_backend_cpu_reg(); return shadow + version[0]; }
"""


class NoCode:
    """A program of whose code nothing can be read."""

    def read(self, address: int, length: int) -> bytes:
        raise NoBytes(address, length)

    def ask(self, verb: str, *arguments: Any) -> Any:
        raise NoBytes(0, 0)


def instance(symbols: dict[str, int], version: str = "") -> Instance:
    link = cast("GdbLink", NoCode())
    (found,) = instances_of(link, {FILE: symbols}, lambda _: False, lambda _: version)
    return found


@needs_gcc
@pytest.mark.parametrize("merged", ["-Wl,-O2", "-Wl,-O0"])
def test_a_function_is_found_whose_name_is_the_end_of_a_static_variables(merged: str, tmp_path: Path) -> None:
    (tmp_path / "p.c").write_text(LINKED)
    subprocess.run(["gcc", merged, "-o", tmp_path / "p", tmp_path / "p.c"], check=True)
    with opened(str(tmp_path / "p")) as elf:
        assert list(elf.symbols(SYMBOLS).addresses) == ["ggml_backend_cpu_reg"]
        assert elf.versions() == {"0.20.2"}


def test_functions_that_link_time_optimization_has_inlined_are_named() -> None:
    found = instance({ALLOC: 16}, "0.20.2")
    assert found.release.name == found.version == "0.20.2"
    assert found.inlined == ("ggml_backend_sched_reserve", COMPUTE)
    assert found.note == (
        "ggml_backend_sched_reserve and ggml_backend_sched_graph_compute_async were inlined by link-time optimization: "
        "calls are not seen"
    )
    unknown = instance({ALLOC: 16})
    assert (unknown.release, unknown.version) == (NEWEST, "")
    assert unknown.note.startswith(
        f"the version of this ggml cannot be told; its graphs are planned as by {NEWEST.name}"
    )


def test_a_ggml_without_a_scheduler_has_nothing_inlined() -> None:
    assert instance({"ggml_gallocr_alloc_graph": 16}, "0.26.0").inlined == ()
    assert instance({HEART: 16, ALLOC: 32}).inlined == ()


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
