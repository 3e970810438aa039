"""Each key, and the mouse."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input

from ggmltool.debugger.screen.app import DebuggerApp
from ggmltool.debugger.screen.bottom import HelpScreen
from ggmltool.debugger.screen.lists import StoryPane
from ggmltool.debugger.screen.map_pane import MapPane
from ggmltool.debugger.screen.pane import Pane
from ggmltool.debugger.screen.timeline import TensorSpan
from ggmltool.ggml.events import AllocationStarted, Computed, NotReused, Reused, SplitStarted
from tests.debugger.screen.screens import SMALL, WIDE, app_of, drive, press, settled, text_of

T = TypeVar("T")
ALLOCATED = "g '94 enter"
"""To where the allocator turns to x2 in inplace."""


def after(keys: str, sample: str = "inplace", size: tuple[int, int] = SMALL, compute: bool = False) -> DebuggerApp:
    """The app as it was when the last key was pressed."""
    app = app_of(sample, compute)
    drive(app, lambda pilot: press(pilot, keys), size)
    return app


@pytest.mark.parametrize(
    ("keys", "at"),
    [
        ("right", 1),
        ("right right left", 1),
        ("left", 0),
        ("end", 222),
        ("end right", 222),
        ("end home", 0),
        ("g '94 enter", 94),
        ("g '94 enter g '+6 enter", 100),
        ("g '94 enter g '-4 enter", 90),
        ("g 'end enter", 222),
        ("g 'end enter g 'start enter", 0),
        ("g 'split 0 enter", 85),
        ("g 'split space '0 enter", 85),
        ("g 'later enter", 21),
        ("g '94 enter g 'later enter", 100),
    ],
)
def test_keys_go_through_the_events(keys: str, at: int) -> None:
    if keys == "g 'split 0 enter":
        keys = "g 's 'p 'l 'i 't space '0 enter"
    assert after(keys).now.at == at


def test_keys_that_come_in_one_burst_are_typed_into_the_prompt() -> None:
    """A paste, or a terminal that sends `/kq` at once: q is no key then."""

    typed = []

    async def burst(pilot: Pilot[None]) -> None:
        for key, character in (("n", "n"), ("slash", "/"), ("k", "k"), ("q", "q"), ("slash", "/"), ("g", "g")):
            pilot.app.post_message(events.Key(key, character))
        await settled(pilot)
        typed.append(pilot.app.query_one(Input).value)

    drive(app_of("inplace"), burst)
    assert typed == ["kq/g"]


def test_a_place_that_is_not_there_is_said_so_with_the_nearest_name() -> None:
    assert "There is no event 5000; the history has 0 to 222." in after("g '5000 enter").told
    assert 'did you mean "later"?' in after("g 'latr enter").told
    assert "There is no split 7." in after("g 'split space '7 enter").told


def test_n_goes_from_node_to_node_and_p_back() -> None:
    app = after(ALLOCATED + " n")
    assert isinstance(app.now.point.event, AllocationStarted)
    assert (app.now.at, app.selected) == (97, "twice")
    assert after(ALLOCATED + " n p p").now.at == 92
    assert after("n").selected == "w"
    assert after("end n").told == "There is no next node."


def test_capital_n_goes_from_split_to_split_and_p_back() -> None:
    app = after("N N", "moe")
    event = app.now.point.event
    assert isinstance(event, SplitStarted)
    assert event.split == 1
    assert after("N N P", "moe").now.point.event != event


def test_s_goes_to_the_next_step() -> None:
    app = after("s s")
    assert app.scene.step_title(app.now.point.step) == "alloc main"
    assert app.now.point.event is None
    assert after("s s S").now.at == 2


def test_with_compute_a_node_is_where_its_split_is_computed() -> None:
    app = after("end N", "four-passes", compute=True)
    assert app.told == "There is no next split."
    app = after("end P", "four-passes", compute=True)
    assert isinstance(app.now.point.event, Computed)


def test_the_selected_tensor_follows_the_events() -> None:
    assert after("g '93 enter").selected == "ok"
    assert after("g '93 enter right right").selected == "x2"


@pytest.mark.parametrize(
    ("word", "kinds"), [("ok", {"ok"}), ("repeat", {"wider"}), ("reused", {"ok", "later", "x6"}), ("2.sup", None)]
)
def test_slash_finds_tensors_ops_and_events(word: str, kinds: set[str] | None) -> None:
    app = after(f"slash '{word} enter")
    assert app.hits
    assert app.now.at == app.hits[0]
    if kinds is not None and word != "ok":
        about = {app.scene.history.points[at].event.tensor for at in app.hits if "tensor" in _fields(app, at)}
        assert kinds <= about
    if word == "ok":
        assert all("ok" in map(str, app.scene.history.points[at].event) for at in app.hits)
    if word == "reused":
        assert all(isinstance(app.scene.history.points[at].event, Reused | NotReused) for at in app.hits)


def _fields(app: DebuggerApp, at: int) -> tuple[str, ...]:
    return app.scene.history.points[at].event._fields


def test_slash_finds_functions_and_n_and_p_go_from_hit_to_hit() -> None:
    app = after("slash 'gallocr enter")
    first, second, *_ = app.hits
    assert app.now.at == first
    app = after("slash 'gallocr enter n")
    assert app.now.at == second
    assert app.told.startswith("gallocr: 2 of ")
    assert after("slash 'gallocr enter n p").now.at == first
    assert after("slash 'gallocr enter escape").hits == []


def test_what_is_not_found_is_said_so() -> None:
    assert after("slash 'nothing enter").told == "Nothing is called nothing."
    assert after("slash escape").told == ""


def test_b_toggles_a_breakpoint_and_c_and_r_go_there() -> None:
    app = after("g 'later enter b")
    assert app.told.startswith("Breakpoint 1 at later: ")
    assert app.stops == {"later"}
    assert after("g 'later enter b home c").now.at == 21
    ahead = after("g 'later enter b home c c")
    assert ahead.told == "Breakpoint 1, later"
    assert ahead.now.at > 21
    assert after("g 'later enter b home c c r").now.at == 21
    assert after("g 'later enter b b").stops == frozenset()
    assert after("c").told.startswith("The end: no breakpoint behind. b sets")
    assert after("end r").told.startswith("The beginning: no breakpoint before.")


def test_b_in_events_and_calls_is_at_the_function() -> None:
    assert after("g '87 enter 4 b").stops == {"ggml_gallocr_reserve_n"}
    assert after("g '94 enter 5 down down b").stops == {"ggml_gallocr_reserve_n"}


def test_up_and_down_move_in_the_pane_that_has_the_focus() -> None:
    assert after(ALLOCATED + " down").selected == "twice"
    assert after(ALLOCATED + " down down up").selected == "twice"
    assert after(ALLOCATED + " 4 down").now.at == 95
    assert after(ALLOCATED + " 4 up").now.at == 93
    assert after(ALLOCATED + " 2 down").selected == "x"
    assert after(ALLOCATED + " 2 down down").selected == "ok"
    assert after(ALLOCATED + " pagedown").selected == "viewed"
    assert after(ALLOCATED + " pagedown pageup").selected == "x2"


def test_tab_changes_panes_and_numbers_choose_one() -> None:
    assert [after("tab " * n).tab for n in range(6)] == [0, 1, 2, 3, 4, 0]
    assert after("shift+tab").tab == 4
    assert isinstance(_seen("3", lambda app: app.focused), StoryPane)
    assert isinstance(_seen("tab", lambda app: app.focused, WIDE), MapPane)


def test_enter_in_details_goes_to_the_tensor_that_the_line_names() -> None:
    assert after(ALLOCATED + " 3 down down enter").selected == "x"


def test_m_turns_the_map_over_to_program_order_and_back() -> None:
    assert "memory over program order" in _shown(ALLOCATED + " m")
    assert "memory now" in _shown(ALLOCATED + " m m")


def test_the_map_zooms_and_moves() -> None:
    whole = _shown(ALLOCATED + " 2")
    zoomed = _shown(ALLOCATED + " 2 plus plus")
    assert "zoom 4×" in zoomed
    assert zoomed != whole
    assert _shown(ALLOCATED + " 2 plus plus left_square_bracket right_square_bracket") == zoomed
    assert _shown(ALLOCATED + " 2 plus plus right_square_bracket") != zoomed
    assert _shown(ALLOCATED + " 2 plus plus minus minus") == whole
    assert _shown(ALLOCATED + " 2 plus plus 0") == whole


def _shown(keys: str, size: tuple[int, int] = SMALL) -> str:
    return _seen(keys, text_of, size)


def _seen(keys: str, look: Callable[[DebuggerApp], T], size: tuple[int, int] = SMALL) -> T:
    """What `look` sees of the app after keys."""
    app = app_of("inplace")
    found: list[T] = []

    async def do(pilot: Pilot[None]) -> None:
        await press(pilot, keys)
        found.append(look(app))

    drive(app, do, size)
    return found[0]


def test_z_shows_one_pane_alone() -> None:
    alone = _shown(ALLOCATED + " z", WIDE)
    assert "╭─ details" not in alone
    assert "╭─ graph" in alone
    assert _shown(ALLOCATED + " z z", WIDE) == _shown(ALLOCATED, WIDE)


def test_t_changes_the_ground() -> None:
    assert not after("t").look.dark
    assert after("t t").look.dark


def test_question_mark_opens_the_help_and_escape_closes_it() -> None:
    assert isinstance(_seen("question_mark", lambda app: app.screen), HelpScreen)
    assert not isinstance(_seen("question_mark escape", lambda app: app.screen), HelpScreen)
    assert "the next one" in _shown("question_mark")


def test_q_quits() -> None:
    app = app_of("inplace")

    async def do(pilot: Pilot[None]) -> None:
        await pilot.press("q")
        await pilot.pause()
        assert not app.is_running or app._exit

    drive(app, do)


def test_a_colon_takes_a_command_of_the_debugger_and_shows_its_answer() -> None:
    shown = _shown(ALLOCATED + " colon 'p~galloc->n_nodes enter")
    assert "p galloc->n_nodes" in shown
    assert "$1 = " in shown
    assert "$1 = " not in _shown(ALLOCATED + " colon 'p~galloc->n_nodes enter escape")
    assert "#0  ggml_gallocr_alloc_graph_impl" in _shown(ALLOCATED + " colon 'bt enter")
    assert 'Undefined command: "nonsense".' in _shown("colon 'nonsense enter")


def test_a_command_goes_through_the_same_history_with_the_same_breakpoints() -> None:
    app = after("colon 'break~later enter home c")
    assert (app.now.at, app.stops) == (21, {"later"})
    assert after(ALLOCATED + " colon 'reverse-step enter").now.at == 93
    assert after("g 'later enter b colon 'continue enter").now.at > 21
    assert "Breakpoint 1, later" in after("g 'later enter b home c").told
    assert "breakpoint" in _shown("g 'later enter b colon 'info~breakpoints enter")


def test_a_command_can_leave() -> None:
    app = app_of("inplace")
    drive(app, lambda pilot: press(pilot, "colon 'quit enter"))
    assert app._exit


def test_the_prompt_has_the_screen_where_there_is_a_terminal() -> None:
    told = app_of("inplace").execute
    assert told is not None
    assert told("tui", 80) == "Cannot enable the TUI when output is not a terminal\n"


def test_up_brings_back_what_was_typed() -> None:
    app = app_of("inplace")

    async def do(pilot: Pilot[None]) -> None:
        await press(pilot, "slash 'later enter slash 'x6 enter slash up up")
        assert app.query_one(Input).value == "later"
        await press(pilot, "down")
        assert app.query_one(Input).value == "x6"

    drive(app, do)


Where = Callable[[DebuggerApp], tuple[Pane, int, int]]


def mouse(do: Callable[[DebuggerApp, Pilot[None]], Awaitable[None]], size: tuple[int, int] = WIDE) -> DebuggerApp:
    app = app_of("inplace")

    async def run(pilot: Pilot[None]) -> None:
        await press(pilot, ALLOCATED)
        await do(app, pilot)
        await settled(pilot)

    drive(app, run, size)
    return app


def test_a_click_selects_a_tensor_an_event_and_a_range() -> None:
    async def graph(app: DebuggerApp, pilot: Pilot[None]) -> None:
        await pilot.click("#graph", offset=(10, 2))

    async def events(app: DebuggerApp, pilot: Pilot[None]) -> None:
        pane = app.query_one("#events", Pane)
        await pilot.click("#events", offset=(20, 97 - round(pane.scroll_offset.y) + 1))

    async def ranges(app: DebuggerApp, pilot: Pilot[None]) -> None:
        await pilot.click("#map", offset=(4, 3))

    async def story(app: DebuggerApp, pilot: Pilot[None]) -> None:
        await pilot.click("#story", offset=(4, 3))

    assert mouse(graph).selected == "x1"
    assert mouse(events).now.at == 97
    assert mouse(ranges).selected == "x"
    assert mouse(story).selected == "x"


def test_hovering_over_a_range_names_it() -> None:
    found: list[str] = []

    async def hover(app: DebuggerApp, pilot: Pilot[None]) -> None:
        await pilot.hover("#map", offset=(4, 3))
        await settled(pilot)
        found.append(str(app.query_one("#map", MapPane).border_subtitle))

    mouse(hover)
    assert found == ["x: 256 B at 0, from the start to node 9 wider"]


def test_the_wheel_scrolls() -> None:
    app = app_of("inplace")

    async def do(pilot: Pilot[None]) -> None:
        pane = app.query_one("#events", Pane)
        pane.focus()
        before = pane.scroll_offset.y
        pane.action_scroll_down()
        await settled(pilot)
        assert pane.scroll_offset.y > before

    drive(app, do, WIDE)


def test_a_click_on_the_scrubber_goes_there() -> None:
    async def middle(app: DebuggerApp, pilot: Pilot[None]) -> None:
        await pilot.click("Scrubber", offset=(100, 1))

    async def end(app: DebuggerApp, pilot: Pilot[None]) -> None:
        await pilot.click("Scrubber", offset=(199, 1))

    async def start(app: DebuggerApp, pilot: Pilot[None]) -> None:
        await pilot.click("Scrubber", offset=(0, 0))

    assert abs(mouse(middle).now.at - 111) <= 1
    assert mouse(end).now.at == 222
    assert mouse(start).now.at == 0


def test_a_click_on_a_tab_brings_it_to_the_front() -> None:
    async def memory(app: DebuggerApp, pilot: Pilot[None]) -> None:
        await pilot.click("Tabs", offset=(12, 0))

    assert mouse(memory, SMALL).tab == 1


def test_every_range_of_the_map_can_be_selected_one_after_the_other() -> None:
    app = app_of("inplace")

    async def do(pilot: Pilot[None]) -> None:
        await press(pilot, "g '118 enter 2 0")
        there = [s.tensor for chunk in app.now.chunks for s in chunk.spans if isinstance(s, TensorSpan)]
        await press(pilot, "down")
        seen = [app.selected]
        for _ in there[1:]:
            await press(pilot, "down")
            seen.append(app.selected)
        assert seen == there

    drive(app, do)
