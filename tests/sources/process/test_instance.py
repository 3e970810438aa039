"""A ggml that was linked into a program: its functions are found beside its static variables, some are inlined."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from ggmltool.attach.files.elf import opened
from ggmltool.attach.files.instance import HEART, STOPS, SYMBOLS, Instance, instances_of
from ggmltool.attach.gdb.link import GdbLink
from ggmltool.ggml.releases.table import NEWEST
from ggmltool.state.memory.errors import NoBytes
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
