"""Walking forward and back, and what stops it on the way."""

import pytest

from ggmltool.debugger import places
from ggmltool.debugger.breakpoints import Kind
from ggmltool.debugger.walk import Reason, Walker, WalkError
from ggmltool.ggml.events import Left
from ggmltool.inspect.history.history import History, record_history
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.samples import scenario_path
from ggmltool.scenario.scenario import Scenario

SAMPLES = ("matmul", "pipeline", "moe", "buffer-not-set", "allocator")


def history_of(sample: str, compute: bool = True) -> History:
    return record_history(Scenario(load_spec(scenario_path(sample))), compute)


@pytest.fixture(scope="module", params=SAMPLES)
def history(request: pytest.FixtureRequest) -> History:
    return history_of(request.param)


def test_nothing_goes_on_before_run(history: History) -> None:
    walker = Walker(history)
    for way in (walker.step, walker.next, walker.finish, walker.until, walker.continue_):
        with pytest.raises(WalkError, match="The program is not being run"):
            way()


def test_without_breakpoints_a_run_comes_to_its_end_and_back_to_its_beginning(history: History) -> None:
    walker = Walker(history)
    reason = Reason.EXITED if history.error is None else Reason.ABORTED
    assert walker.run()[:2] == (reason, len(history.points) - 1)
    with pytest.raises(WalkError):
        walker.step()
    assert walker.continue_(reverse=True)[:2] == (Reason.START, 0)
    assert walker.step(reverse=True)[:2] == (Reason.START, 0)


def test_every_step_is_undone_by_a_step_back(history: History) -> None:
    walker = Walker(history)
    walker.start()
    steps = len(history.points) - 2
    assert walker.step(steps)[:2] == (Reason.STEPPED, steps)
    assert walker.step(steps, reverse=True)[:2] == (Reason.STEPPED, 0)


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
    with pytest.raises(WalkError, match="outermost frame"):
        walker.finish()


def test_a_function_stops_at_each_of_its_calls_both_ways(history: History) -> None:
    walker = Walker(history)
    for function in walker.calls.functions[1:]:
        starts = walker.calls.starts(function)
        one = walker.breakpoints.add(function, starts)
        met = [walker.run().at]
        while met[-1] != walker.last and (stop := walker.continue_()).reason is Reason.BREAKPOINT:
            met.append(stop.at)
        assert met == starts
        assert one.hits == len(starts)
        back = [at for at in met if at == walker.last]
        while (stop := walker.continue_(reverse=True)).reason is Reason.BREAKPOINT:
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
    tensors = places.of_tensors(walker.history.points)
    first, second, third, *_ = tensors["h"]
    one = walker.breakpoints.add("h", tensors["h"])
    one.ignore = 1
    assert walker.run().at == second
    one.enabled = False
    assert walker.run().reason is Reason.EXITED
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
    h = places.of_tensors(walker.history.points)["h"]
    walker.breakpoints.add("h", h, condition="odd")
    walker.run()
    while walker.continue_().reason is Reason.BREAKPOINT:
        pass
    assert asked == h
    walker.breakpoints.clear()
    walker.breakpoints.add("tens", kind=Kind.WATCHPOINT)
    walker.start()
    stop = walker.continue_()
    assert (stop.at, stop.hits[0].old, stop.hits[0].new) == (10, "0", "1")
    assert walker.continue_().at == 20
    stop = walker.continue_(reverse=True)
    assert (stop.at, stop.hits[0].old, stop.hits[0].new) == (19, "2", "1")


def test_a_place_in_memory_is_met_when_it_is_given_taken_over_and_freed() -> None:
    history = history_of("pipeline", compute=False)
    points = history.points
    kinds = [type(points[at].event).__name__ for at in places.of_byte(points, "GPU0", 8192 + 2047, 0)]
    assert kinds[:3] == ["Allocated", "Reused", "Freed"]
    assert places.of_byte(points, "GPU0", 8192 + 2048, 0) == []


def test_a_split_and_a_change_of_backend() -> None:
    points = history_of("pipeline").points
    assert {type(points[at].event).__name__ for at in places.of_split(points, 1)} == {"SplitStarted", "Computed"}
    told = [points[at].event for at in places.of_backend(points, "act")]
    assert [event.backend for event in told] == ["GPU0"] * len(told)  # type: ignore[union-attr]
    changes = [points[at].event for at in places.of_backend(points, None)]
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
    assert walker.run()[:2] == (Reason.INTERRUPTED, 7)
