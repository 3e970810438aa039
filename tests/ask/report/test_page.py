"""The page of a report as its reader meets it, in Chromium: by mouse, by keys, in the dark, on a phone, on paper."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

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


READ: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("page.yaml").read_text("utf-8"))
PLACES = {"block": IN_BLOCK, "node": OF_NODE}


def do(shown: Shown, step: dict[str, Any]) -> None:
    """What a step does on the page."""
    page = shown.page
    for what, argument in step.items():
        match what:
            case "press":
                press(shown, *argument.split())
            case "click" | "focus":
                getattr(page, what)(argument)
            case "fill":
                page.fill(*argument)
            case "select":
                page.select_option(*argument)
            case "type":
                page.keyboard.type(argument)
            case "hover":
                ((place, name),) = argument.items()
                page.mouse.move(*shown.js(PLACES[place], name))
            case "tap":
                page.mouse.down()
                page.mouse.up()
            case "go":
                (page.go_back if argument == "back" else page.go_forward)()
            case "until":
                shown.until(argument)


def check(shown: Shown, step: dict[str, Any]) -> None:
    """What the page has then."""
    for expression, value in step.get("js", {}).items():
        assert shown.js(expression) == value, expression
    for element, text in step.get("says", {}).items():
        assert shown.text(element).strip() == text
    for element, parts in step.get("has", {}).items():
        assert not [part for part in parts if part not in shown.text(element)], shown.text(element)
    for element, parts in step.get("lacks", {}).items():
        assert not [part for part in parts if part in shown.text(element)]
    for element, patterns in step.get("matches", {}).items():
        assert not [pattern for pattern in patterns if not re.search(pattern, shown.text(element))], shown.text(element)
    for element, attributes in step.get("is", {}).items():
        assert {name: shown.page.get_attribute(element, name) for name in attributes} == attributes
    assert all(map(shown.page.is_visible, step.get("visible", ())))
    assert not any(map(shown.page.is_visible, step.get("hidden", ())))


@pytest.mark.parametrize("reading", READ, ids=lambda reading: reading["test"])
def test_the_page_shows_what_its_reader_asks_for(show: Show, reading: dict[str, Any]) -> None:
    shown = show(reading["page"], reading.get("at", ""))
    for step in reading["steps"]:
        do(shown, step)
        check(shown, step)


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
