"""A breakpoint at a function stops at its entry, before what is decided in it; `finish` shows what came of it."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import astuple

import ggmltool
from ggmltool.debugger.walk import Reason, Walker
from ggmltool.ggml.events import Allocated, Assigned, Freed, Reused
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.inspect.history.history import record_history
from tests.debugger.sessions import prompt_of
from tests.debugger.test_laws import SEEDS, random_history

TINY = {"2025-03": "ggml_dyn_tallocr_free_tensor", "0.20.2": "ggml_dyn_tallocr_free_bytes"}


@pytest.mark.parametrize("release", TINY)
def test_the_size_that_is_passed_is_the_tensors_and_is_rounded_up_inside(release: str) -> None:
    prompt = prompt_of(record_history(ggmltool.load("allocator", ggml=release)))
    prompt.said("break ggml_dyn_tallocr_alloc")
    stop = prompt.said("run")
    assert ", size=4, tensor=" in stop
    assert "is entered" in stop
    assert prompt.said("p size") == "$1 = 4\n"
    assert "32" not in prompt.said("info free-blocks")
    prompt.said("up")
    assert prompt.said("p size == ggml_backend_buft_get_alloc_size(buft, node)") == "$2 = 1\n"
    prompt.said("down")
    prompt.said("step")
    assert prompt.said("p size") == "$3 = 32\n"
    prompt.said("delete")
    prompt.said(f"break {TINY[release]}")
    assert "size=4" in prompt.said("continue")


@pytest.mark.parametrize(("release", "value"), [("2025-03", "$1 = 32"), ("0.20.2", "$1 = {chunk = 0, offset = 32}")])
def test_finish_shows_the_address_that_the_allocator_returned(release: str, value: str) -> None:
    prompt = prompt_of(record_history(ggmltool.load("allocator", ggml=release)))
    prompt.said("break ggml_dyn_tallocr_alloc if tensor == b")
    prompt.said("run")
    done = prompt.said("finish")
    assert done.startswith("Run till exit from #0  ggml_dyn_tallocr_alloc (")
    assert "\nggml_gallocr_allocate_node (" in done
    assert done.endswith(f"Value returned is {value}\n")


def test_every_function_that_returns_something_shows_it() -> None:
    prompt = prompt_of(record_history(ggmltool.load("transformer"), compute=True))
    values = {}
    for function in (
        "ggml_backend_sched_backend_id_from_cur",
        "ggml_backend_sched_backend_from_buffer",
        "ggml_backend_supports_buft",
        "ggml_vbuffer_alloc",
        "ggml_backend_sched_reserve",
        "ggml_backend_sched_alloc_graph",
        "ggml_backend_sched_graph_compute",
        "ggml_backend_graph_compute_async",
        "ggml_backend_cpu_graph_compute",
    ):
        prompt.said(f"tbreak {function}")
        assert f" {function} (" in prompt.said("run")
        found = re.search(r"Value returned is \$\d+ = (.*)\n", prompt.said("finish"))
        values[function] = None if found is None else found[1]
    assert values == {
        "ggml_backend_sched_backend_id_from_cur": "1",
        "ggml_backend_sched_backend_from_buffer": "0",
        "ggml_backend_supports_buft": "false",
        "ggml_vbuffer_alloc": "(struct vbuffer *) 0x555270000000",
        "ggml_backend_sched_reserve": "true",
        "ggml_backend_sched_alloc_graph": "true",
        "ggml_backend_sched_graph_compute": "GGML_STATUS_SUCCESS",
        "ggml_backend_graph_compute_async": "GGML_STATUS_SUCCESS",
        "ggml_backend_cpu_graph_compute": "GGML_STATUS_SUCCESS",
    }


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("seed", SEEDS)
def test_at_its_entry_a_function_has_decided_nothing(seed: int, release: str) -> None:
    history = random_history(seed, release)
    walker = Walker(history)
    for function in walker.calls.functions[1:]:
        walker.breakpoints.clear()
        walker.breakpoints.add(function, walker.calls.starts(function), function=function)
        stop = walker.run()
        for _ in range(5):
            if stop.reason is not Reason.BREAKPOINT:
                break
            assert walker.calls[walker.calls.at(stop.at)[walker.hidden]].function == function
            if walker.phase < 0:
                _has_decided_nothing(walker, stop.at)
            stop = walker.continue_()


def _has_decided_nothing(walker: Walker, at: int) -> None:
    history = walker.history
    event = history.points[at].event
    index = history.labels(at).get(getattr(event, "tensor", ""), -1)
    entry, after, before = history.cells(at, walker.phase), history.cells(at), history.cells(at - 1)
    match event:
        case Assigned():
            assert entry["id", index] == before["id", index]
        case Allocated() | Freed() | Reused():
            blocks = {key: value for key, value in before.items() if key[0] in ("free", "max_size")}
            assert blocks == {key: value for key, value in entry.items() if key[0] in ("free", "max_size")}
            if history.release != "2024-01":
                own = walker.hidden == 0 and isinstance(event, Allocated)
                assert entry["hash_node", index].allocated == (own or (isinstance(event, Freed) and not event.extra))
                assert astuple(entry["hash_node", index])[:2] == astuple(after["hash_node", index])[:2]
    walker.step()
    assert (walker.at, walker.phase) == (at, 0)
    assert history.cells(at) == after
    walker.phase = -walker.hidden - 1


def test_a_reset_is_a_call_wherever_it_is_made() -> None:
    prompt = prompt_of(record_history(ggmltool.load("versions-steps", ggml="0.20.2")))
    assert "2 events" in prompt.said("break ggml_backend_sched_reset")
    prompt.said("run")
    assert "#1  ggml_backend_sched_reserve (" in prompt.said("bt")
    assert prompt.said("p sched->is_reset") == "$1 = false\n"
    prompt.said("finish")
    assert prompt.said("p sched->is_reset") == "$2 = true\n"
    prompt.said("continue")
    assert "#1  main () at" in prompt.said("bt")


@pytest.mark.parametrize("release", ["2025-03", "0.20.2", "2024-01"])
def test_a_write_at_the_start_has_pointers(release: str) -> None:
    prompt = prompt_of(record_history(ggmltool.load("priority", ggml=release), compute=True))
    prompt.said("break ggml_backend_cuda_buffer_set_tensor")
    stop = prompt.said("run")
    assert "=0x0" not in stop
    assert " <a>, data=0x510000000000, " in " ".join(stop.split())
    assert prompt.said("p tensor == a && tensor->buffer == buffer") == "$1 = true\n"
    written = prompt.said("x/2fw data").split("\t")[1:]
    assert [float(value) for value in written] == [2, 8]


def test_functions_of_another_ggmls_tables_are_not_known() -> None:
    prompt = prompt_of(record_history(ggmltool.load("priority", ggml="2025-03"), compute=True))
    prompt.said("symbol-file 2024-05")
    prompt.said("break ggml_backend_sched_alloc_graph")
    prompt.said("run")
    assert "supports_op = <not known here>, offload_op = <not known here>" in prompt.said("p *sched->backends[0]")
    assert "supports_backend = <not known here>, is_host = 0x0}" in prompt.said("p sched->bufts[0]->iface")
    assert "is_host = 0x7fff" in prompt.said("p sched->bufts[1]->iface")
    prompt.said("symbol-file 2025-03")
    assert "not known" not in prompt.said("p *sched->backends[0]")
