"""Walking forward and back, and what stops it on the way."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import astuple

import ggmltool
from ggmltool.debugger.breakpoints import StopKind, of_backend, of_byte, of_split, of_tensors
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.walk import StopReason, Walker
from ggmltool.ggml.events import Allocated, Assigned, Freed, Left, Reused
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.samples import scenario_path
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.state.story.history import History, record_history
from tests.debugger.sessions import prompt_of
from tests.debugger.test_laws import SEEDS, random_history

SAMPLES = ("matmul", "pipeline", "moe", "buffer-not-set", "allocator")


def history_of(sample: str, compute: bool = True) -> History:
    return record_history(LoadedScenario(load_spec(scenario_path(sample))), compute)


@pytest.fixture(scope="module", params=SAMPLES)
def history(request: pytest.FixtureRequest) -> History:
    return history_of(request.param)


def test_nothing_goes_on_before_run(history: History) -> None:
    walker = Walker(history)
    for way in (walker.step, walker.next, walker.finish, walker.until, walker.continue_):
        with pytest.raises(match="The program is not being run"):
            way()


def test_without_breakpoints_a_run_comes_to_its_end_and_back_to_its_beginning(history: History) -> None:
    walker = Walker(history)
    reason = StopReason.EXITED if history.error is None else StopReason.ABORTED
    assert walker.run()[:2] == (reason, len(history.points) - 1)
    with pytest.raises(CommandError):
        walker.step()
    assert walker.continue_(reverse=True)[:2] == (StopReason.START, 0)
    assert walker.step(reverse=True)[:2] == (StopReason.START, 0)


def test_every_step_is_undone_by_a_step_back(history: History) -> None:
    walker = Walker(history)
    walker.start()
    steps = len(history.points) - 2
    assert walker.step(steps)[:2] == (StopReason.STEPPED, steps)
    assert walker.step(steps, reverse=True)[:2] == (StopReason.STEPPED, 0)


def test_next_passes_over_the_calls_it_makes_and_back_over_the_same(history: History) -> None:
    walker = Walker(history)
    for at in range(len(history.points) - 1):
        walker.goto(at)
        call = walker.calls.innermost[at]
        to = walker.next().at
        between = (walker.calls.at(point) for point in range(at + 1, to))
        assert all(call in calls and calls[0] != call for calls in between)
        if walker.calls.innermost[to] == call:
            assert walker.next(reverse=True).at == at


def test_finish_ends_where_the_call_is_done_and_begins_where_it_was_made(history: History) -> None:
    walker = Walker(history)
    for at in range(len(history.points) - 1):
        for frame, number in enumerate(walker.calls.at(at)[:-1]):
            walker.goto(at)
            call = walker.calls[number]
            to = walker.finish(frame).at
            told = call.last < walker.last and history.points[call.last + 1].event == Left(call.function)
            told = told and walker.calls.innermost[call.last + 1] == call.caller
            assert to == (walker.last if call.last == walker.last else call.last + told)
            if to < walker.last:
                assert walker.calls.at(to)[walker.hidden] == call.caller
            walker.goto(at)
            assert walker.finish(frame, reverse=True).at == call.first - 1
    walker.start()
    with pytest.raises(match="outermost frame"):
        walker.finish()


def test_a_function_stops_at_each_of_its_calls_both_ways(history: History) -> None:
    walker = Walker(history)
    for function in walker.calls.functions[1:]:
        starts = walker.calls.starts(function)
        one = walker.breakpoints.add(function, starts)
        met = [walker.run().at]
        while met[-1] != walker.last and (stop := walker.continue_()).reason is StopReason.BREAKPOINT:
            met.append(stop.at)
        assert met == starts
        assert one.hits == len(starts)
        back = [at for at in met if at == walker.last]
        while (stop := walker.continue_(reverse=True)).reason is StopReason.BREAKPOINT:
            back.append(stop.at)
        assert back == starts[::-1]
        walker.breakpoints.clear()


def test_until_leaves_a_pass() -> None:
    history = history_of("moe", compute=False)
    walker = Walker(history)
    walker.breakpoints.add("ggml_backend_sched_split_graph", walker.calls.starts("ggml_backend_sched_split_graph"))
    walker.run()
    walker.step()
    seen = []
    for _ in range(4):
        event = history.points[walker.until().at].event
        seen.append(getattr(event, "rule", type(event).__name__))
    assert seen == [2, 4, "SplitStarted", "Left"]


def test_ignored_disabled_and_temporary_breakpoints() -> None:
    walker = Walker(history_of("pipeline"))
    tensors = of_tensors(walker.history.points)
    first, second, third, *_ = tensors["h"]
    one = walker.breakpoints.add("h", tensors["h"])
    one.ignore = 1
    assert walker.run().at == second
    one.enabled = False
    assert walker.run().reason is StopReason.EXITED
    once = walker.breakpoints.add("h", tensors["h"], temporary=True)
    stop = walker.run()
    assert (stop.at, stop.hits[0].breakpoint, len(walker.breakpoints)) == (first, once, 1)
    one.enabled = True
    walker.goto(second)
    assert walker.step(100).at == third


def test_conditions_are_asked_only_at_their_places() -> None:
    asked = []

    class Odd:
        def truth(self, text: str, at: int, frame: int, phase: int = 0) -> bool:
            asked.append(at)
            return bool(at % 2)

        def shown(self, text: str, at: int, frame: int, phase: int = 0) -> str:
            return str(at // 10)

        def may_change(self, text: str, at: int) -> bool:
            return at % 10 == 0

    walker = Walker(history_of("pipeline"), reader=Odd())
    h = of_tensors(walker.history.points)["h"]
    walker.breakpoints.add("h", h, condition="odd")
    walker.run()
    while walker.continue_().reason is StopReason.BREAKPOINT:
        pass
    assert asked == h
    walker.breakpoints.clear()
    walker.breakpoints.add("tens", kind=StopKind.WATCHPOINT)
    walker.start()
    stop = walker.continue_()
    assert (stop.at, stop.hits[0].old, stop.hits[0].new) == (10, "0", "1")
    assert walker.continue_().at == 20
    stop = walker.continue_(reverse=True)
    assert (stop.at, stop.hits[0].old, stop.hits[0].new) == (19, "2", "1")


def test_a_place_in_memory_is_met_when_it_is_given_taken_over_and_freed() -> None:
    history = history_of("pipeline", compute=False)
    points = history.points
    kinds = [type(points[at].event).__name__ for at in of_byte(points, "GPU0", 8192 + 2047, 0)]
    assert kinds[:3] == ["Allocated", "Reused", "Freed"]
    assert not list(of_byte(points, "GPU0", 8192 + 2048, 0))


def test_a_split_and_a_change_of_backend() -> None:
    points = history_of("pipeline").points
    assert {type(points[at].event).__name__ for at in of_split(points, 1)} == {"SplitStarted", "Computed"}
    told = [points[at].event for at in of_backend(points, "act")]
    assert [event.backend for event in told] == ["GPU0"] * len(told)  # type: ignore[union-attr]
    changes = [points[at].event for at in of_backend(points, None)]
    assert {type(event).__name__ for event in changes} == {"SplitStarted"}


def test_a_condition_that_cannot_be_read_stops_and_says_so() -> None:
    walker = Walker(history_of("matmul"))
    walker.breakpoints.add("main", [0, 5], condition="foo")
    walker.start()
    stop = walker.continue_()
    assert (stop.at, stop.hits[0].error) == (5, 'No symbol "foo" in current context.')


def test_the_user_can_interrupt() -> None:
    walker = Walker(history_of("matmul"), interrupted=lambda: True)
    walker.breakpoints.add("main", [7])
    assert walker.run()[:2] == (StopReason.INTERRUPTED, 7)


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
            if stop.reason is not StopReason.BREAKPOINT:
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
            assert entry.get(("id", index)) == before.get(("id", index))
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
