"""The page of a report as its reader meets it, in Chromium: by mouse, by keys, in the dark, on a phone, on paper."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ggmltool
from ggmltool.ask.buffers.map import BEND_AT
from tests.cli.conftest import SAMPLES
from tests.needs import needs_chromium

if TYPE_CHECKING:
    from tests.ask.report.conftest import Show, Shown

pytestmark = needs_chromium

GEMMA = "gemma-3-270m-ngl9.json.gz"

IN_BLOCK = """(id) => {
  const map = keys.maps[store.side];
  const block = map.model.tensors[map.model.tensorById(id)].blocks.map((b) => map.model.blocks[b])[0];
  const made = map.lanes.find(({ lane }) => lane.blocks.includes(block));
  made.canvas.scrollIntoView({ block: "center", behavior: "instant" });
  const [x, y, w, h] = map.boxOf({ made, x0: map.span.from, x1: map.span.to }, block);
  const at = made.canvas.getBoundingClientRect();
  return [at.left + x + w / 2, at.top + y + h / 2];
}"""
"""The middle of a tensor's block on the screen."""

OF_NODE = """(id) => {
  const { x, y, w, h } = graph.layout.places[store.model.tensorById(id)];
  graph.canvas.scrollIntoView({ block: "center", behavior: "instant" });
  const at = graph.canvas.getBoundingClientRect();
  return [at.left + graph.x + (x + w / 2) * graph.scale, at.top + graph.y + (y + h / 2) * graph.scale];
}"""
"""The middle of a node's box in the graph on the screen."""


def press(shown: Shown, *names: str) -> None:
    for name in names:
        shown.page.keyboard.press(name)


def chosen(shown: Shown) -> str:
    return shown.text("#story-title")


def test_the_answer_comes_first(show: Show) -> None:
    shown = show(GEMMA)
    answer = shown.text("#answer")
    assert "727 nodes in 152 splits on CUDA0 (666) and CPU (61)" in answer
    assert "71.1 MiB are copied between backends, in 179 tensors" in answer
    assert "513 MiB of CUDA0" in answer
    assert "130 copied tensors are weights" in shown.text("#odd-list")


def test_the_slider_steps_through_the_events(show: Show) -> None:
    shown = show("inplace.yaml")
    page = shown.page
    last = shown.js("store.event")
    assert last == shown.js("store.model.lastEvent")
    page.focus("#slider")
    press(shown, "Home")
    assert shown.js("store.event") == 0
    press(shown, "ArrowRight", "ArrowRight")
    assert shown.js("store.event") == 2
    assert shown.text("#event-said") == "w goes to CPU (1.dst): its memory is in CPU"
    assert (
        page.get_attribute("#slider", "aria-valuetext") == "event 3 of 131: w goes to CPU (1.dst): its memory is in CPU"
    )
    assert shown.text("#event-live").startswith("Event 3: w goes to CPU")
    press(shown, "End")
    assert shown.js("store.event") == last


def test_the_memory_at_an_event_is_shown_with_its_free_blocks(show: Show) -> None:
    shown = show("inplace.yaml", "#e=99")
    assert shown.text("#event-said") == "twice gives back 256 B at 544 of CPU, chunk 0"
    shown.page.click("#live summary")
    rows = [row.split("\t") for row in shown.text("#live-table tbody").splitlines()]
    assert [row[:3] for row in rows if len(row) > 2] == [
        ["0", "256 B", "x"],
        ["256", "32 B", "ok"],
        ["288", "256 B", "later"],
        ["544", "1.62 KiB", "free"],
    ]


def test_arrows_step_from_anywhere_and_with_shift_to_the_next_node(show: Show) -> None:
    shown = show("inplace.yaml", "#e=90")
    press(shown, "ArrowLeft")
    assert shown.js("store.event") == 89
    press(shown, "Shift+ArrowRight")
    assert shown.text("#event-said") == "the allocator turns to x2"
    press(shown, "Shift+ArrowLeft")
    assert shown.text("#event-said") == "the allocator turns to ok"


def test_steps_can_stop_at_the_events_of_the_chosen_tensor_alone(show: Show) -> None:
    shown = show("inplace.yaml", "#t=x5&e=0")
    shown.page.select_option("#which", "chosen")
    shown.page.click("#on")
    assert "x5" in shown.text("#event-said")
    shown.page.click("#last")
    shown.page.click("#back")
    assert shown.text("#event-said").startswith("x5 gives back 256 B")


def test_play_runs_through_all_events_and_can_be_stopped(show: Show) -> None:
    shown = show("inplace.yaml", "#e=0")
    press(shown, "Space")
    shown.until("store.event > 3")
    assert shown.page.get_attribute("#play", "aria-label") == "Pause"
    press(shown, "Space")
    stopped = shown.js("store.event")
    assert shown.js("store.event") == stopped
    assert shown.page.get_attribute("#play", "aria-label") == "Play"


def test_a_block_tells_who_has_it_and_a_click_chooses_the_tensor_everywhere(show: Show) -> None:
    shown = show("inplace.yaml")
    x, y = shown.js(IN_BLOCK, "later")
    shown.page.mouse.move(x, y)
    said = shown.text("#tooltip")
    assert "later" in said
    assert "SUB f32[64]" in said
    assert "256 B at offset 288" in said
    assert "computed in place of x2" in said
    shown.page.mouse.click(x, y)
    assert chosen(shown) == "later"
    assert shown.page.inner_text("#tensors-table tr.chosen .tensor") == "later"
    assert shown.js("location.hash") == "#t=later"


def test_the_story_says_who_had_the_memory_and_who_takes_it_next(show: Show) -> None:
    shown = show("inplace.yaml", "#t=x6")
    story = shown.text("#story-body")
    assert "CPU by rule 2.sup: it goes with its neighbor weight, expanding down." in story
    assert "256 B at offset 0 of CPU, from x6 to used." in story
    assert re.search(r"computed in place of\s+x\b", story)
    assert re.search(r"Views of it\s+half", story)
    shown.page.click("#story-body >> text=when it got them")
    assert shown.text("#event-said").startswith("x6 is computed in the memory of x")


def test_the_story_says_why_a_node_is_on_the_cpu(show: Show) -> None:
    story = show("four-passes.yaml", "#t=out").text("#story-body")
    assert "CPU by rule 1.wgt0: its weight down is in CPU." in story
    assert "cannot read down: CPU is not one of the buffer types it can use (CUDA0)" in story
    assert re.search(r"What would change its split\s+usage: any for the context host → 1 split", story)


def test_the_address_keeps_the_choice_and_back_goes_back(show: Show) -> None:
    shown = show("inplace.yaml", "#t=x2&e=40")
    assert chosen(shown) == "x2"
    assert shown.js("store.event") == 40
    shown.page.click("#story-body [data-tensor] >> text=later")
    assert chosen(shown) == "later"
    assert shown.js("location.hash") == "#t=later&e=40"
    shown.page.go_back()
    assert chosen(shown) == "x2"
    shown.page.go_forward()
    assert chosen(shown) == "later"


def test_an_address_of_nonsense_chooses_nothing(show: Show) -> None:
    shown = show("inplace.yaml", "#t=%E0%A4&e=minus&side=b&x")
    assert chosen(shown) == "No tensor chosen"
    assert shown.js("store.event") == shown.js("store.model.lastEvent")


def test_search_finds_tensors_ops_and_backends_and_marks_them(show: Show) -> None:
    shown = show("four-passes.yaml")
    press(shown, "/")
    shown.page.keyboard.type("mul_mat cuda0")
    assert shown.text("#found-count") == "2 hits"
    assert [line.split(" ")[0] for line in shown.text("#found").splitlines()] == ["k", "ffn"]
    assert shown.js("[...store.hits].map((t) => store.model.tensors[t].shown)") == ["k", "ffn"]
    press(shown, "ArrowDown", "ArrowDown", "Enter")
    assert chosen(shown) == "ffn"
    assert not shown.page.is_visible("#found")
    press(shown, "Escape")
    assert shown.page.input_value("#search") == ""


def test_a_click_in_the_graph_chooses_a_node_and_opens_a_layer(show: Show) -> None:
    shown = show(GEMMA)
    before = shown.js("graph.layout.height")
    x, y = shown.js("""() => {
      const item = graph.layout.items.find((of) => of.what === "folded");
      graph.canvas.scrollIntoView({ block: "center", behavior: "instant" });
      const at = graph.canvas.getBoundingClientRect();
      return [at.left + graph.x + 60, at.top + graph.y + (item.y + 10) * graph.scale];
    }""")
    shown.page.mouse.move(x, y)
    assert "40 nodes · splits 1 to 16 · 19 copies, 8.81 MiB" in shown.text("#tooltip")
    shown.page.mouse.click(x, y)
    assert shown.js("graph.layout.height") > before
    x, y = shown.js(OF_NODE, "attn_norm-0")
    shown.page.mouse.click(x, y)
    assert chosen(shown) == "attn_norm-0"
    press(shown, "ArrowDown")
    assert chosen(shown) == "Qcur-0"


def test_a_tensor_that_is_chosen_elsewhere_opens_its_layer(show: Show) -> None:
    shown = show(GEMMA, "#t=Kcur-7")
    place = shown.js("graph.layout.places[store.tensor]")
    assert place["what"] == "node"
    top = shown.js("graph.y") + place["y"] * shown.js("graph.scale")
    assert 0 <= top <= shown.js("graph.tall")


def test_the_graph_at_an_event_has_the_backends_that_were_given_until_then(show: Show) -> None:
    shown = show("four-passes.yaml", "#e=0")
    assert shown.js("store.model.backendAt(store.model.tensorById('sum'), 0)") == -1
    assert shown.js("store.model.isCut(1, 0)") is False
    assert shown.js("store.model.isCut(1, store.model.lastEvent)") is True


@pytest.mark.parametrize(("key", "zooms"), [("w", True), ("+", True), ("s", False)])
def test_keys_zoom_the_map_and_0_shows_all(show: Show, key: str, zooms: bool) -> None:
    shown = show(GEMMA)
    shown.page.focus("canvas.lane")
    whole = shown.js("keys.maps[0].span.to - keys.maps[0].span.from")
    press(shown, key, key)
    assert (shown.js("keys.maps[0].span.to - keys.maps[0].span.from") < whole) is zooms
    press(shown, "0")
    assert shown.js("keys.maps[0].span.to - keys.maps[0].span.from") == whole


def test_the_scale_changes_where_one_tensor_dwarfs_the_rest_and_a_button_shows_it_linear(show: Show) -> None:
    shown = show(GEMMA)
    (row,) = [row for row in ggmltool.load(SAMPLES / GEMMA).report().as_dict()["buffers"] if any(row["bends"])]
    bend, size = row["bends"][0], row["chunks"][0]
    assert 0 < bend * 4 < size
    height = "(offset) => {const m = keys.maps[0], one = m.lanes[0]; return m.y(one, offset) / one.canvas.tall}"
    back = "(offset) => {const m = keys.maps[0], one = m.lanes[0]; return m.offsetAt(one, m.y(one, offset))}"
    offsets = [0, bend // 2, bend, (bend + size) // 2, size]
    drawn = [1, 1 - BEND_AT * (bend // 2) / bend, 1 - BEND_AT, (1 - BEND_AT) / 2, 0]
    assert [shown.js(height, offset) for offset in offsets] == pytest.approx(drawn, abs=1e-6)
    assert [shown.js(back, offset) for offset in offsets] == pytest.approx(offsets)
    assert "its scale changes at" in shown.page.get_attribute("canvas.lane", "aria-label")
    shown.page.click("button.scale")
    assert [shown.js(height, offset) for offset in offsets] == pytest.approx([1 - offset / size for offset in offsets])
    shown.page.click("button.scale")
    assert shown.js(height, bend) == pytest.approx(1 - BEND_AT)


def test_the_wheel_turns_the_page_until_the_map_has_the_focus(show: Show) -> None:
    shown = show("inplace.yaml")
    x, y = shown.js(IN_BLOCK, "wider")
    shown.page.mouse.move(x, y)
    shown.page.mouse.wheel(0, -240)
    assert shown.js("keys.maps[0].span.isWhole") is True
    x, y = shown.js(IN_BLOCK, "wider")
    shown.page.mouse.click(x, y)
    shown.page.mouse.wheel(0, -240)
    shown.until("!keys.maps[0].span.isWhole")
    x0 = shown.js("keys.maps[0].span.from")
    shown.page.mouse.down()
    shown.page.mouse.move(x + 60, y, steps=4)
    shown.page.mouse.up()
    assert shown.js("keys.maps[0].span.from") < x0
    assert chosen(shown) == "wider"


def test_two_fingers_zoom_the_map(show: Show) -> None:
    shown = show("four-passes.yaml", has_touch=True)
    x, y = shown.js(IN_BLOCK, "norm")
    fingers = shown.context.new_cdp_session(shown.page)

    def touch(kind: str, *apart: int) -> None:
        points = [{"x": x + by, "y": y, "id": i} for i, by in enumerate(apart)]
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", -20, 20)
    for by in (30, 40, 50, 60):
        touch("touchMove", -by, by)
    touch("touchEnd")
    shown.until("keys.maps[0].span.to - keys.maps[0].span.from < keys.maps[0].span.size / 2")
    assert chosen(shown) == "No tensor chosen"


def test_up_and_down_in_the_map_choose_what_lives_now(show: Show) -> None:
    shown = show("inplace.yaml", "#e=99")
    shown.page.focus("canvas.lane")
    press(shown, "ArrowUp")
    assert chosen(shown) == "x"
    press(shown, "ArrowUp", "ArrowUp")
    assert chosen(shown) == "later"
    press(shown, "ArrowDown")
    assert chosen(shown) == "ok"


def test_tables_are_sorted_and_filtered(show: Show) -> None:
    shown = show(GEMMA)
    page = shown.page
    page.click("#copies-table thead >> text=bytes")
    assert page.get_attribute("#copies-table th[aria-sort]", "aria-sort") == "descending"
    assert "cache_k_l0 (view) (permuted)" not in page.inner_text("#copies-table tbody tr:nth-child(1)")
    assert "2 MiB" in page.inner_text("#copies-table tbody tr:nth-child(1)")
    page.fill("#copies-table input", "attn_k.weight")
    assert shown.text("#copies-table [role=status]") == "10 of 179"


def test_a_long_table_holds_the_rows_that_are_seen(show: Show) -> None:
    shown = show(GEMMA)
    assert shown.js("document.querySelectorAll('#tensors-table tbody tr').length") < 80
    shown.js("document.querySelector('#tensors-table .table-scroll').scrollTop = 28 * 700")
    shown.page.wait_for_selector("#tensors-table >> text=result_norm")
    index = shown.js("document.querySelector('#tensors-table tbody tr:nth-child(2)').getAttribute('aria-rowindex')")
    assert int(index) > 600


def test_the_scenario_can_be_saved_and_planned_again(show: Show, tmp_path: Path) -> None:
    shown = show("inplace.yaml")
    shown.page.click("#scenario-box summary")
    with shown.page.expect_download() as saved:
        shown.page.click("#save")
    path = tmp_path / saved.value.suggested_filename
    saved.value.save_as(path)
    assert len(ggmltool.load(path).plan().nodes) == 14


def test_links_go_to_sections_and_leave_the_address(show: Show) -> None:
    shown = show("inplace.yaml", "#t=x2")
    shown.page.click("nav >> text=Limits")
    assert shown.js("document.activeElement.id") == "limits-head"
    assert shown.js("location.hash") == "#t=x2"


def test_the_question_mark_opens_the_help(show: Show) -> None:
    shown = show("inplace.yaml")
    press(shown, "?")
    assert shown.page.is_visible("#help")
    press(shown, "ArrowLeft")
    assert shown.js("store.event") == shown.js("store.model.lastEvent")
    press(shown, "Escape")
    assert not shown.page.is_visible("#help")


def test_dark_is_the_choice_of_the_system_and_then_of_the_reader(show: Show) -> None:
    shown = show("inplace.yaml", color_scheme="dark")
    assert shown.js("document.documentElement.dataset.theme") == "dark"
    dark = shown.js("getComputedStyle(document.body).backgroundColor")
    shown.page.click("#theme")
    assert shown.js("document.documentElement.dataset.theme") == "light"
    assert shown.js("getComputedStyle(document.body).backgroundColor") != dark


@pytest.mark.parametrize("width", [360, 768, 1920])
def test_nothing_is_wider_than_the_screen(show: Show, width: int) -> None:
    shown = show("four-passes.yaml", "#t=out", has_touch=True)
    shown.page.set_viewport_size({"width": width, "height": 800})
    assert shown.js("document.documentElement.scrollWidth") <= width
    assert shown.js("document.querySelector('canvas.lane').clientWidth") > 0.4 * min(width, 1000)


HOSTILE = "</script><img src=x onerror=alert(1)>"
HOSTILE_SCENARIO = f"""
ggmltool: 1
name: '{HOSTILE}'
backends: [CPU]
contexts:
  weights: {{buft: CPU, usage: weights, tensors: {{w: {{type: f32, ne: [64], name: '{HOSTILE}'}}}}}}
  inputs: {{tensors: {{x: {{type: f32, ne: [64], flags: [input]}}}}}}
graphs:
  '{HOSTILE}':
    nodes:
      '{HOSTILE}': {{op: mul, src: [x, w]}}
      y: {{op: sqr, src: ['{HOSTILE}'], name: '<!--<script>'}}
"""

REFUSED = """
ggmltool: 1
backends: [CPU]
scheduler: {graph_size: 1}
contexts: {inputs: {tensors: {x: {type: f32, ne: [64]}}}}
graphs: {main: {nodes: {a: sqr(x), b: sqr(a)}}}
"""


def test_a_name_is_text_everywhere(show: Show) -> None:
    shown = show(HOSTILE_SCENARIO, "#t=" + "%3C%2Fscript%3E%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    assert chosen(shown) == HOSTILE
    assert shown.text("#title") == HOSTILE
    assert HOSTILE in shown.page.title()
    x, y = shown.js(IN_BLOCK, HOSTILE)
    shown.page.mouse.move(x, y)
    assert HOSTILE in shown.text("#tooltip")
    x, y = shown.js(OF_NODE, HOSTILE)
    shown.page.mouse.move(x, y)
    assert HOSTILE in shown.text("#tooltip")
    shown.page.fill("#search", "img")
    assert HOSTILE in shown.text("#found")
    assert HOSTILE in shown.text("#tensors-table")
    press(shown, "Escape", "Escape")
    press(shown, "Shift+ArrowLeft")
    shown.page.click("#live summary")
    shown.page.click("#scenario-box summary")
    assert HOSTILE in shown.text("#live-table")
    assert "onerror" in shown.text("#scenario-text")
    for _ in range(30):
        press(shown, "ArrowLeft")
    assert shown.js("document.querySelectorAll('img, body script:not(:nth-last-child(-n + 2))').length") == 0
    assert (
        shown.js(
            "[...document.querySelectorAll('*')].some((of) => of.getAttributeNames().some((at) => at.startsWith('on')))"
        )
        is False
    )


def test_what_would_turn_text_around_is_spelled_out(show: Show) -> None:
    assert show("inplace.yaml").js(r"clean('a\u202eb\u0007\u200b')") == r"a\u202eb\u0007\u200b"


def test_what_ggml_refuses_comes_first(show: Show) -> None:
    shown = show(REFUSED)
    assert shown.text("#failed").startswith("ggml refuses this graph.\nGGML_ASSERT((int)sched->hash_set.size")
    assert "Nothing was allocated." in shown.text("#maps")
    press(shown, "ArrowLeft", "ArrowRight", "Shift+ArrowRight", "Space")


def test_two_plans_stand_side_by_side(show: Show) -> None:
    shown = show("priority.yaml", compare="priority-any.yaml")
    assert shown.page.locator(".map-side").count() == 2
    left, right = (shown.page.locator(".map-side").nth(i).bounding_box() for i in (0, 1))
    assert left is not None
    assert right is not None
    assert left["y"] == right["y"]
    assert shown.text("#differences-body").startswith("The two plans differ in")
    assert shown.js("keys.maps.every((map) => map.mark >= 0)") is True
    assert shown.js("keys.maps[0].span === keys.maps[1].span") is True
    shown.page.set_viewport_size({"width": 400, "height": 800})
    left, right = (shown.page.locator(".map-side").nth(i).bounding_box() for i in (0, 1))
    assert left is not None
    assert right is not None
    assert left["y"] + left["height"] <= right["y"]
    shown.page.set_viewport_size({"width": 1280, "height": 900})


def test_the_page_is_about_the_plan_that_is_chosen(show: Show) -> None:
    shown = show("priority.yaml", compare="priority-any.yaml")
    a = shown.text("#answer")
    shown.page.click("#side-choice button >> nth=1")
    assert shown.text("#answer") != a
    assert shown.js("location.hash") == "#side=b"
    shown.page.go_back()
    assert shown.text("#answer") == a


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("source", "compare"), [("four-passes.yaml", None), ("priority.yaml", "priority-any.yaml")])
def test_axe_finds_nothing_serious(show: Show, scheme: str, source: str, compare: str | None) -> None:
    from axe_playwright_python.sync_playwright import Axe

    fragment = "#t=out&e=60" if compare is None else ""
    shown = show(source, fragment, compare=compare, color_scheme=scheme)
    shown.js("document.querySelectorAll('details').forEach((of) => { of.open = true; })")
    found: dict[str, Any] = Axe().run(shown.page).response
    assert found["passes"]
    bad = [
        (rule["id"], rule["nodes"][0]["html"])
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
    ]
    assert bad == []


def test_headings_are_in_order_and_landmarks_are_there(show: Show) -> None:
    shown = show("four-passes.yaml", "#t=out")
    levels = shown.js(
        "[...document.querySelectorAll('main :is(h1, h2, h3)')].flatMap((of) => of.offsetParent ? +of.tagName[1] : [])"
    )
    assert all(now - before <= 1 for before, now in zip([1, *levels], levels, strict=False))
    assert all(shown.page.locator(tag).count() == 1 for tag in ("header", "nav", "main", "aside", "h1"))


def test_paper_has_all_of_it_and_no_controls(show: Show, tmp_path: Path) -> None:
    shown = show("four-passes.yaml", "#t=out", color_scheme="dark")
    path = tmp_path / "report.pdf"
    shown.page.pdf(path=path, outline=True, tagged=True)
    titles = re.findall(rb"/Title \(([^)]*)\)", path.read_bytes())
    assert {
        b"Summary",
        b"Memory over program order",
        b"Graph",
        b"Splits",
        b"Copies",
        b"Tensors",
        b"Limits",
        b"out",
    } <= set(titles)
    assert shown.js("document.documentElement.dataset.theme") == "dark"
    shown.page.emulate_media(media="print")
    assert shown.js("document.documentElement.dataset.theme") == "light"
    for control in ("nav", ".player", ".tools", ".buttons >> nth=0"):
        assert not shown.page.is_visible(control)
    assert shown.js("document.querySelectorAll('#tensors-table tbody tr').length") == shown.js(
        "tables.find((of) => of.about === 'Tensors').rows.length"
    )
    shown.page.emulate_media(media="screen")


def test_each_step_is_quick_where_there_are_many_nodes(show: Show) -> None:
    shown = show(GEMMA)
    shown.page.focus("#slider")
    press(shown, "Home", *["ArrowRight"] * 20)
    shown.page.focus("canvas.lane")
    press(shown, *["w"] * 5, *["d"] * 5, "0")
    slowest = shown.js("""() => {
      const most = {};
      for (const { name, duration } of performance.getEntriesByType("measure")) {
        most[name] = Math.max(most[name] || 0, duration);
      }
      return most;
    }""")
    assert {"select", "map", "graph", "event"} <= set(slowest)
    assert all(duration < 500 for duration in slowest.values()), slowest
