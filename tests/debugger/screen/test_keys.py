"""Each key, and the mouse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

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
from tests.debugger.screen.screens import SMALL, WIDE, app_of, drive, press, seen, settled, text_of

T = TypeVar("T")
ALLOCATED = "g '94 enter"
"""To where the allocator turns to x2 in inplace."""


def at(app: DebuggerApp) -> int:
    return app.now.at


def selected(app: DebuggerApp) -> str | None:
    return app.selected


def told(app: DebuggerApp) -> str:
    return app.told


@pytest.mark.parametrize(
    ("look", "session"),
    [
        (
            at,
            {
                "right": 1, "right left": 1, "left left": 0, "end": 222, "end right": 222, "end home": 0,
                "g 'later enter": 21, "g '94 enter": 94, "g '+6 enter": 100, "g '-10 enter": 90, "g 'end enter": 222,
                "g 'start enter": 0, "g 'split~0 enter": 85, "g '94 enter g 'later enter": 100,
            },
        ),
        (
            told,
            {
                "slash escape": "", "g '5000 enter": "There is no event 5000; the history has 0 to 222.",
                "g 'latr enter": 'did you mean "later"?', "g 'split~7 enter": "There is no split 7.",
                "slash 'nothing enter": "Nothing is called nothing.", "escape end n": "There is no next node.",
                "home c": "The end: no breakpoint behind. b sets", "end r": "The beginning: no breakpoint before.",
            },
        ),
        (selected, {"n": "w", "g '93 enter": "ok", "right right": "x2", ALLOCATED + " 3 down down enter": "x"}),
        (
            selected,
            {
                ALLOCATED + " down": "twice", ALLOCATED + " down down up": "twice", ALLOCATED + " pagedown": "viewed",
                "pageup": "x2", "2 down": "x", "down": "ok",
            },
        ),
        (at, {ALLOCATED + " 4 down": 95, ALLOCATED + " up": 93}),
        (lambda app: app.look.dark, {"t": False, "t t t": True}),
    ],
    ids=["events", "what is told", "selected", "in lists", "in events", "ground"],
)  # fmt: skip
def test_keys_lead_to(look: Callable[[DebuggerApp], Any], session: dict[str, Any]) -> None:
    """Each of a session's keys behind those before it."""
    for keys, found, wanted in zip(session, seen(look, *session), session.values(), strict=True):
        assert wanted in found if look is told and wanted else found == wanted, keys


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


def test_n_goes_from_node_to_node_and_p_back() -> None:
    node, before = seen(lambda app: (app.now.at, app.selected, type(app.now.point.event)), ALLOCATED + " n", "p p")
    assert node == (97, "twice", AllocationStarted)
    assert before[0] == 92


def test_capital_n_goes_from_split_to_split_and_p_back() -> None:
    there, back = seen(lambda app: app.now.point.event, "N N", "P", sample="moe")
    assert isinstance(there, SplitStarted)
    assert there.split == 1
    assert back != there


def test_s_goes_to_the_next_step() -> None:
    there, back = seen(lambda app: app.now, "s s", "S")
    assert app_of("inplace").scene.step_title(there.point.step) == "alloc main"
    assert there.point.event is None
    assert back.at == 2


def test_with_compute_a_node_is_where_its_split_is_computed() -> None:
    (end, _), (_, event) = seen(
        lambda app: (app.told, app.now.point.event), "end N", "end P", sample="four-passes", compute=True
    )
    assert end == "There is no next split."
    assert isinstance(event, Computed)


def test_slash_finds_tensors_ops_and_events() -> None:
    words = ("ok", "repeat", "reused", "2.sup")
    found = seen(lambda app: (app.now.at, app.hits), *(f"escape home slash '{word} enter" for word in words))
    assert all(at == hits[0] for at, hits in found)
    points = app_of("inplace").scene.history.points
    ok, repeat, reused, _ = ([points[at].event for at in hits] for _, hits in found)
    assert all("ok" in map(str, event) for event in ok)  # type: ignore[arg-type]
    assert "wider" in _tensors(repeat)
    assert {"ok", "later", "x6"} <= _tensors(reused)
    assert all(isinstance(event, Reused | NotReused) for event in reused)


def _tensors(of: list[Any]) -> set[str]:
    return {event.tensor for event in of if "tensor" in event._fields}


def test_slash_finds_functions_and_n_and_p_go_from_hit_to_hit() -> None:
    first, second, back, gone = seen(
        lambda app: (app.now.at, app.told, app.hits), "slash 'gallocr enter", "n", "p", "escape"
    )
    assert [first[0], second[0]] == first[2][:2]
    assert second[1].startswith("gallocr: 2 of ")
    assert back[0] == first[0]
    assert gone[2] == []


def test_b_toggles_a_breakpoint_and_c_and_r_go_there() -> None:
    made, there, ahead, back, gone = seen(
        lambda app: (app.now.at, app.told, app.stops), "g 'later enter b", "home c", "c", "r", "b"
    )
    assert made[1].startswith("Breakpoint 1 at later: ")
    assert made[2] == {"later"}
    assert there[0] == back[0] == 21
    assert ahead[0] > 21
    assert ahead[1] == "Breakpoint 1, later"
    assert gone[2] == frozenset()


def test_b_in_events_and_calls_is_at_the_function() -> None:
    found = seen(lambda app: app.stops, "g '87 enter 4 b", "b g '94 enter 5 down down b")
    assert found == [{"ggml_gallocr_reserve_n"}] * 2


def test_tab_changes_panes_and_numbers_choose_one() -> None:
    assert seen(lambda app: app.tab, "", *["tab"] * 5, "shift+tab") == [0, 1, 2, 3, 4, 0, 4]
    assert seen(lambda app: type(app.focused), "3") == [StoryPane]
    assert seen(lambda app: type(app.focused), "tab", size=WIDE) == [MapPane]


def test_m_turns_the_map_over_to_program_order_and_back() -> None:
    over, back = seen(text_of, ALLOCATED + " m", "m")
    assert "memory over program order" in over
    assert "memory now" in back


def test_the_map_zooms_and_moves() -> None:
    whole, zoomed, moved, back, out, again, all_of_it = seen(
        text_of, ALLOCATED + " 2", "plus plus", "right_square_bracket", "left_square_bracket", "minus minus",
        "plus plus", "0",
    )  # fmt: skip
    assert "zoom 4×" in zoomed
    assert zoomed == back == again != whole
    assert moved != zoomed
    assert out == all_of_it == whole


def test_z_shows_one_pane_alone() -> None:
    every, alone, again = seen(text_of, ALLOCATED, "z", "z", size=WIDE)
    assert "╭─ details" not in alone
    assert "╭─ graph" in alone
    assert again == every


def test_question_mark_opens_the_help_and_escape_closes_it() -> None:
    (opened, shown), (closed, _) = seen(
        lambda app: (isinstance(app.screen, HelpScreen), text_of(app)), "question_mark", "escape"
    )
    assert opened
    assert not closed
    assert "the next one" in shown


def test_q_quits() -> None:
    app = app_of("inplace")

    async def do(pilot: Pilot[None]) -> None:
        await pilot.press("q")
        await pilot.pause()
        assert not app.is_running or app._exit

    drive(app, do)


def test_a_colon_takes_a_command_of_the_debugger_and_shows_its_answer() -> None:
    value, gone, stack, undefined = seen(
        text_of, ALLOCATED + " colon 'p~galloc->n_nodes enter", "escape", "colon 'bt enter",
        "escape colon 'nonsense enter",
    )  # fmt: skip
    assert "p galloc->n_nodes" in value
    assert "$1 = " in value
    assert "$1 = " not in gone
    assert "#0  ggml_gallocr_alloc_graph_impl" in stack
    assert 'Undefined command: "nonsense".' in undefined


def test_a_command_goes_through_the_same_history_with_the_same_breakpoints() -> None:
    there, listed, back, on = seen(
        lambda app: (app.now.at, app.stops, app.told, text_of(app)),
        "colon 'break~later enter home c",
        "colon 'info~breakpoints enter",
        ALLOCATED + " colon 'reverse-step enter",
        "g 'later enter colon 'continue enter",
    )
    assert there[:3] == (21, frozenset({"later"}), "Breakpoint 1, later")
    assert "breakpoint" in listed[3]
    assert back[0] == 93
    assert on[0] > 21


def test_a_command_can_leave() -> None:
    app = app_of("inplace")
    drive(app, lambda pilot: press(pilot, "colon 'quit enter"))
    assert app._exit


def test_the_prompt_has_the_screen_where_there_is_a_terminal() -> None:
    told = app_of("inplace").execute
    assert told is not None
    assert told("tui", 80) == "Cannot enable the TUI when output is not a terminal\n"


def test_up_brings_back_what_was_typed() -> None:
    typed = seen(lambda app: app.query_one(Input).value, "slash 'later enter slash 'x6 enter slash up up", "down")
    assert typed == ["later", "x6"]


def clicked(look: Callable[[DebuggerApp], T], *clicks: tuple[str, int, int], size: tuple[int, int] = WIDE) -> list[T]:
    """What `look` sees behind each click, each where the allocator turns to x2; in the events, of one by its number."""
    app = app_of("inplace")
    found: list[T] = []

    async def do(pilot: Pilot[None]) -> None:
        for where, x, y in clicks:
            await press(pilot, ALLOCATED)
            first = round(app.query_one("#events", Pane).scroll_offset.y) - 1 if where == "#events" else 0
            await pilot.click(where, offset=(x, y - first))
            await settled(pilot)
            found.append(look(app))

    drive(app, do, size)
    return found


def test_a_click_selects_a_tensor_an_event_and_a_range() -> None:
    places = [("#graph", 10, 2), ("#map", 4, 3), ("#story", 4, 3)]
    assert clicked(selected, *places) == ["x1", "x", "x"]
    assert clicked(at, ("#events", 20, 97)) == [97]


def test_a_click_on_the_scrubber_goes_there() -> None:
    middle, end, start = clicked(at, ("Scrubber", 100, 1), ("Scrubber", 199, 1), ("Scrubber", 0, 0))
    assert abs(middle - 111) <= 1
    assert (end, start) == (222, 0)


def test_a_click_on_a_tab_brings_it_to_the_front() -> None:
    assert clicked(lambda app: app.tab, ("Tabs", 12, 0), size=SMALL) == [1]


def test_hovering_over_a_range_names_it_and_the_wheel_scrolls() -> None:
    app = app_of("inplace")

    async def do(pilot: Pilot[None]) -> None:
        await press(pilot, ALLOCATED)
        await pilot.hover("#map", offset=(4, 3))
        await settled(pilot)
        named = app.query_one("#map", MapPane).border_subtitle
        assert str(named) == "x: 256 B at 0, from the start to node 9 wider"
        pane = app.query_one("#events", Pane)
        pane.focus()
        before = pane.scroll_offset.y
        pane.action_scroll_down()
        await settled(pilot)
        assert pane.scroll_offset.y > before

    drive(app, do, WIDE)


def test_every_range_of_the_map_can_be_selected_one_after_the_other() -> None:
    def look(app: DebuggerApp) -> tuple[str | None, list[str]]:
        return app.selected, [s.tensor for chunk in app.now.chunks for s in chunk.spans if isinstance(s, TensorSpan)]

    (_, there), *_ = seen(look, "g '118 enter")
    assert [name for name, _ in seen(look, "g '118 enter 2 0 down", *["down"] * (len(there) - 1))] == there
