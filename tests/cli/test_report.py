"""`ggmltool report`: the page as a file, its document, two plans side by side, and names that are data."""

from __future__ import annotations

import gzip
import json
import re
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

import ggmltool
from ggmltool.show.html import embed, page
from ggmltool.state.errors import InspectError
from ggmltool.version import __version__
from tests.cli.conftest import SAMPLES, Call
from tests.golden import check_golden

GOLDEN = Path(__file__).parent / "golden"
HOSTILE = (
    "</script><img src=x onerror=alert(1)>", "<!--", "<script>", "]]>", "\u2028\u2029", "\u202eabc",
    "a" * 61 + "\u20ac", "{{document}}", "{{policy}}", '"\\', "&lt;", "\ue000tensor\ue000",
)  # fmt: skip


class Elements(HTMLParser):
    """The elements of a page, and what a browser would load or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.content: dict[str, str] = {}
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._in = dict(attrs).get("id") or tag

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        self.content[self._in] = self.content.get(self._in, "") + data


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *((f"inplace-{release}", f"--ggml {release} inplace") for release in ("0.26", "0.20.2", "2025-03", "2024-01")),
        ("moe", "moe"),
        ("missing-op", "missing-op"),
        ("preallocated", "preallocated"),
        ("outgrown-2", "--after 2 outgrown"),
        ("priority-compared", "--compare-ggml 0.20.2 priority-any"),
    ],
)
def test_the_document_is_as_accepted(call: Call, name: str, words: str) -> None:
    out = call("report", "--json", *words.split()).out
    assert f'"{__version__}"' in out
    told = re.sub('"packed": "[^"]*"', '"packed": ""', out.replace(f'"{__version__}"', '"0"'))
    check_golden(GOLDEN / f"report_json_{name}.txt", told)


def test_a_page_is_one_file_that_asks_for_nothing(call: Call) -> None:
    result = call("report", "-o", "report.html", "transformer")
    assert (result.status, result.out, result.err) == (0, "", "Wrote report.html\n")
    text = Path("report.html").read_text("utf-8")
    elements = Elements(text)
    assert json.loads(elements.content["document"]) == json.loads(call("report", "--json", "transformer").out)
    for _, attrs in elements.found:
        assert not {"src", "action", "style"} & set(attrs)
        assert not [name for name in attrs if name.startswith("on")]
        assert (attrs.get("href") or "#").startswith("#")
    assert [tag for tag, _ in elements.found if tag in ("script", "style")] == ["style", "script", "script"]
    policy = next(a["content"] or "" for tag, a in elements.found if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


def test_the_policy_names_the_script_and_the_style_as_they_are_in_the_page(call: Call) -> None:
    import base64

    text = call("report", "moe").out
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    script = text.rpartition("<script>")[2].partition("</script>")[0]
    style = text.partition("<style>")[2].partition("</style>")[0]
    for kind, content in (("script", script), ("style", style)):
        digest = base64.b64encode(sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy[1]


def test_where_ggml_refuses_its_words_come_along(call: Call) -> None:
    result = call("report", "-o", "report.html", "preallocated")
    assert result.status == 1
    assert "in a buffer (GPU0) that cannot run the operation" in result.err
    document = json.loads(Elements(Path("report.html").read_text("utf-8")).content["document"])
    assert document["ok"] is False
    assert "pre-allocated tensor" in document["error"]["message"]
    assert "keep it in memory" in document["error"]["explanation"]
    assert (document["nodes"], document["splits"]) == (1, [])


def compared(call: Call, *words: str) -> dict[str, Any]:
    result = call("report", "-q", "--json", *words)
    assert (result.status, result.err) == (0, "")
    document: dict[str, Any] = json.loads(result.out)
    assert document["kind"] == "report_comparison"
    return document


def test_two_options_stand_side_by_side(call: Call) -> None:
    document = compared(call, "--compare-no-pipeline", "pipeline")
    assert document["titles"] == ["pipeline parallel", "pipeline parallel, --no-pipeline"]
    assert (document["same"], document["a"]["ok"], document["b"]["ok"]) == (False, True, True)
    totals = {row["what"]: (row["a"], row["b"]) for row in document["totals"]}
    assert totals["compute buffer of GPU0"][0] > totals["compute buffer of GPU0"][1]
    assert compared(call, "--no-pipeline", "--compare-no-pipeline", "pipeline")["same"]


def test_the_first_divergence_is_the_one_of_diff(call: Call) -> None:
    for words in (("--ggml", "2025-03,0.26", "versions-since-2025"), ("--no-op-offload", "offload")):
        found = json.loads(call("diff", "--json", *words).out)["divergences"]
        mine = ["--compare-no-op-offload", words[1]] if len(words) == 2 else []
        document = compared(call, *(mine or ["--ggml", "2025-03", "--compare-ggml", "0.26", words[2]]))
        told = [
            (d["kind"], *(None if d[s] == -1 else document[s]["tensors"][d[s]][0] for s in "ab"))
            for d in document["divergences"]
        ]
        assert told == [(d["kind"], *(None if d[s] is None else d[s]["id"] for s in "ab")) for d in found]
        assert told


def test_another_graph_and_another_scenario_stand_beside(call: Call) -> None:
    document = compared(call, "--compare", f"{SAMPLES / 'outgrown.yaml'}:large", SAMPLES / "outgrown.yaml")
    assert (document["a"]["graph"], document["b"]["graph"]) == ("small", "large")
    document = compared(call, "--compare", "moe", "transformer")
    assert document["b"]["asked"] == "ggmltool report moe"
    assert {"gone", "added", "moved"} <= {row["kind"] for row in document["groups"]}
    assert sum(len(row["pairs"]) for row in document["groups"] if row["kind"] == "gone") == (
        document["a"]["nodes"] - len(document["pairs"])
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_data(call: Call, tmp_path: Path, name: str) -> None:
    """A tensor, a backend and a scenario of any name: the page has the same elements, and the names are in the data."""
    scenario = {
        "ggmltool": 1,
        "name": f"n{name}",
        "backends": [{"name": f"G{name}", "profile": "CUDA"}, "CPU"],
        "contexts": {"c": {"buft": "CPU", "tensors": {f"x{name}": "f32[64]"}}},
        "graphs": {"main": {"nodes": {f"y{name}": {"op": "sqr", "src": [f"x{name}"]}}}},
    }
    report = ggmltool.load(scenario).report()
    text = report.html
    harmless = ggmltool.load(yaml.safe_load(json.dumps(scenario).replace(json.dumps(name)[1:-1], "z"))).report().html
    assert [tag for tag, _ in Elements(text).found] == [tag for tag, _ in Elements(harmless).found]
    data = text.partition('id="document">')[2].partition("</script>")[0]
    assert data.isascii()
    assert not set(data) & set("<>&\x7f")
    document = json.loads(data)
    assert document["tensors"][0][0] == f"y{name}"
    assert document["backends"][0]["name"] == f"G{name}"
    why = document["texts"][document["tensors"][0][17]]
    assert "".join(why[::2])


def test_an_embedded_document_is_read_as_it_was() -> None:
    document = ggmltool.load("moe").report().document
    assert embed(document).isascii()
    assert "</" not in embed(document)
    assert page(document, document.title).count("<script") == 2


def test_the_scenario_can_be_saved_and_planned_again(tmp_path: Path) -> None:
    import base64

    for name in ("gemma-3-270m-ngl9", "moe"):
        scenario = ggmltool.load(name)
        source = scenario.report().as_dict()["source"]
        (tmp_path / source["name"]).write_bytes(base64.b64decode(source["packed"]))
        assert ggmltool.load(tmp_path / source["name"]).model == scenario.model
        assert len(source["text"]) <= source["nbytes"]


def test_a_large_model_is_a_small_page() -> None:
    document = ggmltool.load("gemma-3-270m-ngl9").report()
    assert len(document.html) < 1000 * document.document.nodes  # type: ignore[union-attr]


RATED = "RTX 3090"


def test_the_extension_selects_it_and_json_stays_what_it_was(call: Call) -> None:
    wanted = call("trace", "--perfetto", "moe").out
    assert call("trace", "-o", "x.perfetto.json", "moe").err.endswith("Wrote x.perfetto.json\n")
    assert Path("x.perfetto.json").read_text("utf-8") == wanted
    call("trace", "-o", "x.perfetto.json.gz", "moe")
    assert gzip.decompress(Path("x.perfetto.json.gz").read_bytes()).decode() == wanted
    call("trace", "--perfetto", "-o", "any.json", "moe")
    assert Path("any.json").read_text("utf-8") == wanted
    call("trace", "-o", "events.json", "moe")
    assert json.loads(Path("events.json").read_text("utf-8"))["kind"] == "trace"


def test_it_says_what_its_durations_are(call: Call) -> None:
    assert "Durations: program order: each node and each copy takes 1 µs" in call("trace", "--perfetto", "moe").err
    measured = call("trace", "--measured", "--perfetto", "moe")
    assert "Durations: measured: ggmltool's engine on this machine" in measured.err
    assert json.loads(measured.out)["otherData"]["durations"] == "measured"
    assert call("place", "-ngl", "9", "--device", RATED, "-o", "placed.json.gz", "gemma-3-270m").status == 0
    estimated = call("trace", "--perfetto", "placed.json.gz")
    assert "Durations: estimated, the likely case: CUDA0 is RTX 3090; CPU not named" in estimated.err
    about = json.loads(estimated.out)["otherData"]
    assert about["durations"] == "estimated"
    assert about["graphs_no_step_computes"] == []
    deeper = call("trace", "--perfetto", "-d", "1024", "placed.json.gz")
    assert json.loads(deeper.out)["traceEvents"] != json.loads(estimated.out)["traceEvents"]


def test_a_graph_that_no_step_computes_is_drawn_as_if_one_did(call: Call) -> None:
    scenario = {
        "ggmltool": 1,
        "contexts": {"c": {"buft": "CPU", "tensors": {"x": {"type": "f32", "ne": [4]}}}},
        "graphs": {"main": {"nodes": {"y": "sqr(x)"}}},
        "steps": [{"reserve": "main"}, {"alloc": "main"}],
    }
    document = json.loads(call("trace", "--perfetto", "-", stdin=json.dumps(scenario).encode()).out)
    assert document["otherData"]["graphs_no_step_computes"] == ["main"]
    assert [event["name"] for event in document["traceEvents"] if event.get("cat") == "node"] == ["y"]


def test_what_ggml_refuses_is_drawn_as_far_as_it_comes(call: Call) -> None:
    result = call("trace", "--perfetto", "preallocated")
    assert result.status == 1
    assert "cannot run the operation (SET_ROWS)" in result.err
    document = json.loads(result.out)
    assert "SET_ROWS" in document["otherData"]["error"]["message"]
    assert "reserve" in {event["name"].partition(" ")[0] for event in document["traceEvents"]}


def test_a_record_stands_in_for_its_scenario(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "moe.ggtrace"
    done = call("record", "moe", "-o", str(path))
    assert done.status == 0
    assert done.err == f"Wrote {path}\n"
    with path.open("rb") as stream:
        assert call("plan", "-", stdin=stream.read()).out == call("plan", str(path)).out


def test_it_keeps_the_release_and_what_was_refused(call: Call, tmp_path: Path) -> None:
    old = tmp_path / "old.ggtrace"
    assert call("record", "--ggml", "0.20.2", "versions-2026", "-o", str(old)).status == 0
    assert ggmltool.load(old).model.release.name == "0.20.2"
    refused = tmp_path / "refused.ggtrace"
    done = call("record", "preallocated", "-o", str(refused))
    assert done.status == 1
    assert "pre-allocated tensor" in done.err
    assert ggmltool.open_record(refused).error is not None


def test_a_terminal_and_other_names_are_refused(call: Call, tmp_path: Path) -> None:
    assert call("record", "moe", "-o", str(tmp_path / "x.json")).status == 2
    damaged = tmp_path / "x.ggtrace"
    damaged.write_bytes(b"\x93GGTRACE\x02")
    done = call("plan", str(damaged))
    assert done.status == 2
    assert "this is a record of version 2" in done.err
    assert "Traceback" not in done.err


def test_in_python(tmp_path: Path) -> None:
    history = ggmltool.load("inplace").record(tmp_path / "x.ggtrace", compute=True)
    again = ggmltool.open_record(tmp_path / "x.ggtrace")
    assert list(again.points) == list(history.points)
    end = len(history.points) - 1
    assert history.values(end, "used").tolist() == again.values(end, "used").tolist()
    with pytest.raises(InspectError, match="record it with compute"):
        ggmltool.load("inplace").record().values(3, "x")
    with pytest.raises(ggmltool.ScenarioError, match="this is no record"):
        ggmltool.open_record(_scenario(tmp_path))


def _scenario(folder: Path) -> Path:
    path = folder / "graph.yaml"
    path.write_text("ggmltool: 1\n", "utf-8")
    return path
