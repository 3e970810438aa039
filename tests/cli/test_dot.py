"""Pictures: Graphviz accepts what we write, those of the README are drawn as now, and absence is explained."""

from __future__ import annotations

import html
import os
import re
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

import ggmltool
from ggmltool.inspect.fold import fold_plan
from ggmltool.scenario.tensor_info import tensor_infos
from tests.cli.conftest import SAMPLES, Call
from tests.golden import UPDATE, check_golden
from tests.needs import draws_png, needs_chromium, needs_dot

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MAGIC = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}


@needs_dot
@pytest.mark.parametrize("style", ["ggml", "ggmltool"])
@pytest.mark.parametrize("format", MAGIC)
def test_a_picture_is_drawn(call: Call, format: str, style: str) -> None:
    result = call("dot", SAMPLES / "transformer.yaml", "--style", style, "-o", f"graph.{format}")
    assert (result.status, result.err) == (0, f"Wrote graph.{format}\n")
    assert Path(f"graph.{format}").read_bytes().startswith(MAGIC[format])


def test_text_is_written_by_the_name_of_the_file(call: Call) -> None:
    assert call("dot", SAMPLES / "matmul.yaml", "-o", "graph.dot").status == 0
    assert Path("graph.dot").read_text().startswith("digraph G {\n  newrank = true;\n")


@pytest.mark.parametrize("style", ["ggml", "ggmltool"])
def test_the_part_around_a_node_has_only_its_neighbors(call: Call, style: str) -> None:
    def drawn(radius: int) -> str:
        args = ("--style", style, "--around", "attn_norm-0", "--radius", radius)
        result = call("dot", SAMPLES / "gemma-3-270m-ngl9.json.gz", *args)
        assert (result.status, result.err) == (0, "")
        return result.out

    sizes = [drawn(radius).count("label=") for radius in (0, 1, 2, 400)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[1] < sizes[2] < sizes[3]
    assert drawn(400).count("attn_norm") > 17
    assert not [line for line in drawn(0).splitlines() if "->" in line and "style=invis" not in line]


@needs_dot
def test_a_split_of_a_real_model_is_drawn_alone(call: Call) -> None:
    sample = SAMPLES / "gemma-3-270m-ngl9.json.gz"
    text = call("dot", sample, "--style", "ggmltool", "--split", 4).out
    assert "cluster_4 " in text
    assert text.count("subgraph") < 5
    assert call("dot", sample, "--style", "ggmltool", "--split", 4, "-o", "s.png").status == 0


FOLDED = ("--style", "ggmltool", "--fold")
MODELS = ("gemma-3-270m-ngl9.json.gz", "gemma-3-270m.json.gz", "transformer.yaml", "moe.yaml", "pipeline.yaml")


def clusters_of(text: str) -> dict[str, list[str]]:
    """The titles of the clusters around each node of a drawing, outermost first."""
    around: list[str] = []
    out = {}
    for line in map(str.strip, text.splitlines()[1:]):
        if line.startswith("subgraph"):
            around.append("")
        elif re.match(r"t\d+ \[label=", line):
            around[-1] = line.split('"')[1]
        elif line == "}" and around:
            around.pop()
        elif node := re.match(r"(n\d+) \[", line):
            out[node[1]] = list(around)
    return out


@pytest.mark.parametrize("sample", MODELS)
def test_a_folded_model_has_a_cluster_for_every_split_and_an_edge_for_every_copy(call: Call, sample: str) -> None:
    scenario = ggmltool.load(SAMPLES / sample)
    plan = scenario.plan()
    folded = fold_plan(plan, tensor_infos(scenario.model, scenario.graph_name(None)))
    result = call("dot", *FOLDED, SAMPLES / sample)
    assert (result.status, result.err) == (0, "")

    clusters = clusters_of(result.out)
    assert set(clusters) == {key for key in folded.members if key[0] == "n"}
    place = {node.id: node for node in plan.nodes}
    drawn_splits = set()
    for key, labels in clusters.items():
        for id in folded.members[key]:
            split = plan.splits[place[id].split]
            assert any(label.startswith("split") and label.endswith(f" · {split.backend}") for label in labels)
            drawn_splits.add(split.id)
    assert drawn_splits == {split.id for split in plan.splits}

    copied = sum(len(split.inputs) for split in plan.splits)
    assert sum(len(ids) for key, ids in folded.members.items() if key[0] == "c") == copied
    assert result.out.count("-> ") >= len(folded.edges)
    assert len(re.findall(r"-> .*style=dashed", result.out)) == len(set(folded.copies.values()))


def test_a_whole_model_folds_by_its_placement(call: Call) -> None:
    out = call("dot", *FOLDED, SAMPLES / "gemma-3-270m-ngl9.json.gz").out
    assert re.findall(r"× (\d+) · layers ([\d–]+) · (\d+) nodes", out) == [("10", "0–9", "400"), ("7", "10–16", "280")]
    assert "split #151 · CUDA0" in out


@needs_dot
def test_a_folded_model_is_a_picture_of_a_readable_size(call: Call) -> None:
    assert call("dot", *FOLDED, SAMPLES / "gemma-3-270m-ngl9.json.gz", "-o", "m.svg").err == "Wrote m.svg\n"
    size = re.search(r'width="(\d+)pt" height="(\d+)pt"', Path("m.svg").read_text("utf-8"))
    assert size is not None
    assert int(size[1]) < 4000
    assert int(size[2]) < 8000


@pytest.mark.parametrize("style", ["ggml", "ggmltool"])
def test_a_huge_picture_names_the_ways_to_a_smaller_one(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, style: str
) -> None:
    # Graphviz takes ten seconds to lay it out, which says nothing here.
    fake = tmp_path / "bin" / "dot"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\ncat >/dev/null\necho '<svg/>'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent), prepend=os.pathsep)
    sample = SAMPLES / "gemma-3-270m-ngl9.json.gz"
    result = call("dot", "--style", style, sample, "-o", "m.svg")
    assert result.status == 0
    assert "727 nodes" in result.err
    assert "--fold" in result.err
    assert call("-q", "dot", "--style", style, sample, "-o", "q.svg").err == ""
    assert call("dot", "--style", style, sample).err == ""


def screens(svg: str) -> tuple[float, float]:
    """The size of a picture in pixels."""
    size = re.search(r'<svg[^>]* width="(\d+)pt" height="(\d+)pt"', svg)
    assert size is not None
    return int(size[1]) * 4 / 3, int(size[2]) * 4 / 3


@needs_dot
@pytest.mark.parametrize("sample", ["transformer.yaml", "gemma-3-270m-ngl9.json.gz", "gemma-3-270m.json.gz"])
def test_an_overview_fits_a_screen_and_nothing_crosses_a_title(call: Call, sample: str) -> None:
    assert call("dot", "--overview", SAMPLES / sample, "-o", "o.svg").status == 0
    svg = Path("o.svg").read_text("utf-8")
    wide, high = screens(svg)
    assert wide <= 1920
    assert high <= 1080
    assert min(map(float, re.findall(r'font-size="([\d.]+)"', svg))) >= 10
    check_titles(svg)


@needs_dot
@pytest.mark.parametrize("sample", ["transformer.yaml", "gemma-3-270m-ngl9.json.gz", "pipeline.yaml"])
@pytest.mark.parametrize("options", [FOLDED, ("--style", "ggmltool")])
def test_no_edge_crosses_the_title_of_a_cluster(call: Call, sample: str, options: tuple[str, ...]) -> None:
    if "--fold" not in options and "gemma" in sample:
        return  # its edges are straight lines, whatever is in their way
    assert call("dot", *options, SAMPLES / sample, "-o", "o.svg").status == 0
    check_titles(Path("o.svg").read_text("utf-8"))


def check_titles(svg: str) -> None:
    """No point of an edge lies in a title: the nodes `h…` and `t…`."""
    root = ElementTree.fromstring(svg)
    groups = {group: group.get("class") for group in root.iter("{http://www.w3.org/2000/svg}g")}
    titles, lines = [], []
    for group, kind in groups.items():
        name = group.findtext("{http://www.w3.org/2000/svg}title") or ""
        if kind == "node" and re.fullmatch(r"[ht]\d+", name):
            (text,) = group.iter("{http://www.w3.org/2000/svg}text")
            x, y, size = (float(text.get(key, "0")) for key in ("x", "y", "font-size"))
            half = 0.2 * size * len(text.text or "")
            titles.append((x - half, x + half, y - 0.7 * size, y))
        elif kind == "edge":
            path = next(group.iter("{http://www.w3.org/2000/svg}path"))
            numbers = [float(n) for n in re.findall(r"-?[\d.]+", path.get("d", ""))]
            lines.append(list(zip(numbers[::2], numbers[1::2], strict=True)))
    assert titles
    for points in lines:
        for i in range(0, len(points) - 3, 3):
            for x, y in (bezier(points[i : i + 4], t / 20) for t in range(21)):
                assert not [box for box in titles if box[0] < x < box[1] and box[2] < y < box[3]]


def bezier(points: list[tuple[float, float]], t: float) -> tuple[float, float]:
    while len(points) > 1:
        points = [(a[0] + (b[0] - a[0]) * t, a[1] + (b[1] - a[1]) * t) for a, b in pairwise(points)]
    return points[0]


@needs_dot
def test_a_picture_is_dark_where_that_is_wanted_and_has_a_name(call: Call) -> None:
    call("dot", "--overview", SAMPLES / "transformer.yaml", "-o", "o.svg")
    svg = Path("o.svg").read_text("utf-8")
    dark = re.search(r"prefers-color-scheme:dark\)\{(.*)\}</style>", svg)
    assert dark is not None
    drawn = set(re.findall(r'(?:fill|stroke)="(#\w+|white|black)"', svg))
    assert not [color for color in drawn if f'="{color}"]' not in dark[1]]
    root = ElementTree.fromstring(svg)
    assert (root.get("role"), root.get("aria-labelledby")) == ("img", "ggmltool-title")
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "transformer block"


def test_the_wasm_build_draws_where_there_is_no_graphviz(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of its name stands for it here: called as it is, with the file of the text."""
    program = Path("bin/wasm-graphviz-cli")
    program.parent.mkdir()
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="9pt" height="9pt"><title>%s</title></svg>'
    program.write_text(
        f"#!{sys.executable}\nimport sys\nassert sys.argv[1:3] == ['-T', 'svg']\n"
        f"print({svg!r} % open(sys.argv[3]).read().split()[0])\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent.resolve()))
    assert call("dot", "--overview", "moe", "-o", "o.svg").err == "Wrote o.svg\n"
    assert "<title>digraph</title>" in Path("o.svg").read_text("utf-8")
    assert call("dot", "--overview", "moe", "-o", "o.html").status == 0
    if draws_png():
        assert call("dot", "--overview", "moe", "-o", "o.png").err == "Wrote o.png\n"
        assert Path("o.png").read_bytes()[16:24] == bytes([0, 0, 0, 24] * 2)
    refused = call("dot", "--overview", "moe", "-o", "o.pdf")
    assert (refused.status, "draws no PDF" in refused.err) == (2, True)
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no layout')\n")
    broken = call("dot", "--overview", "moe", "-o", "p.svg")
    assert (broken.status, "no layout" in broken.err) == (2, True)


PICTURES = SAMPLES / "pictures"
DRAWN = {
    "transformer.svg": ("dot", "--style", "ggmltool", "--fold", SAMPLES / "transformer.yaml"),
    "gemma-3-270m-ngl9.svg": ("dot", "--style", "ggmltool", "--fold", SAMPLES / "gemma-3-270m-ngl9.json.gz"),
    "overview.svg": ("dot", "--overview", SAMPLES / "gemma-3-270m-ngl9.json.gz"),
}
"""Laid out by Graphviz, which places things as its version and its fonts do: their words are compared."""

MAPS = {
    "memory.svg": ("buffers", SAMPLES / "transformer.yaml"),
    "memory-gemma-3-270m-ngl9.svg": ("buffers", SAMPLES / "gemma-3-270m-ngl9.json.gz"),
}
"""Drawn by ggmltool alone: compared byte for byte."""

PAGE = "report.png"
"""The page of a report in a browser."""


def texts(svg: str) -> Counter[str]:
    """The words that a picture shows, and the names of its nodes and edges."""
    found = re.findall(r"<(?:text|title)\b[^>]*>([^<]*)</", svg)
    return Counter(html.unescape(text).replace("\xa0", " ").strip() for text in found)


@needs_dot
@pytest.mark.parametrize("picture", DRAWN)
def test_a_drawing_shows_what_is_drawn_now(call: Call, picture: str) -> None:
    assert call(*DRAWN[picture], "-o", picture).status == 0
    drawn = Path(picture).read_text("utf-8")
    if os.environ.get(UPDATE):
        PICTURES.mkdir(exist_ok=True)
        (PICTURES / picture).write_text(drawn, "utf-8")
    assert texts((PICTURES / picture).read_text("utf-8")) == texts(drawn)


@pytest.mark.parametrize("picture", MAPS)
def test_a_map_is_what_is_drawn_now(call: Call, picture: str) -> None:
    assert call(*MAPS[picture], "-o", picture).status == 0
    check_golden(PICTURES / picture, Path(picture).read_text("utf-8"))


@pytest.mark.parametrize("picture", [*DRAWN, *MAPS])
def test_a_picture_is_small_and_needs_nothing_else(picture: str) -> None:
    svg = (PICTURES / picture).read_text("utf-8")
    assert len(svg) < 300_000
    assert "\\x" not in svg
    assert not re.search(r"<script|<image|@import|@font-face|url\((?!#)", svg)
    assert set(re.findall(r"https?://[^/\"\s]+", svg)) == {"http://www.w3.org"}


def test_every_picture_is_one_of_these_and_shown() -> None:
    assert {path.name for path in PICTURES.iterdir()} == {*DRAWN, *MAPS, PAGE}
    pages = [SAMPLES.parent / "README.md", *(SAMPLES.parent / "ggmltool" / "docs").glob("*.md")]
    shown = "".join(path.read_text("utf-8") for path in pages)
    assert not [name for name in (*DRAWN, *MAPS, PAGE) if f"sample_graphs/pictures/{name}" not in shown]


@needs_chromium
def test_the_picture_of_the_page_is_of_the_page(call: Call, tmp_path: Path, browser: Browser) -> None:
    """The browser's fonts are its own, so it is not compared pixel by pixel: what it shows must be on the page."""
    call("report", "-o", "report.html", SAMPLES / "transformer.yaml")
    with browser.new_page(viewport={"width": 1180, "height": 800}) as page:
        page.goto((tmp_path / "report.html").as_uri())
        page.wait_for_selector("[data-ready=true]")
        page.get_by_role("button", name="kq", exact=True).first.click()
        page.locator("#memory").evaluate("section => section.scrollIntoView({behavior: 'instant'})")
        page.get_by_role("button", name="when it got them").click()
        assert "it goes with its neighbor" in page.inner_text("body")
        picture = page.screenshot()
    if os.environ.get(UPDATE):
        (PICTURES / PAGE).write_bytes(picture)
    kept = (PICTURES / PAGE).read_bytes()
    assert kept[16:24] == picture[16:24]  # its width and height
    assert len(kept) < 300_000
