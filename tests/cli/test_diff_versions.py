"""`diff --ggml A,B`: one scenario planned by two versions of ggml, and the rule behind each difference."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ggmltool.ggml.releases.table import RELEASES
from ggmltool.inspect.diff.changes import changes, changes_between
from tests.cli.conftest import SAMPLES, Call

OTHERS = [
    "allocator",
    "chunks",
    "inplace",
    "offload",
    "pipeline",
    "priority",
    "transformer",
    "two-orders",
    "views",
]
GRAPHS = [
    f"{path.stem}:{graph}"
    for path in sorted(SAMPLES.glob("versions-*.yaml"))
    for graph in yaml.safe_load(path.read_text("utf-8"))["graphs"]
]
GOLDEN_PLANS = sorted((Path(__file__).parents[3] / "shared" / "golden").glob("20*/*.json.gz"))
PAIRS = [",".join(pair) for pair in itertools.permutations(RELEASES, 2)]


def document(call: Call, *args: object) -> dict[str, Any] | None:
    """The difference as JSON; None where the older ggml knows an op or a type of the sample not."""
    result = call("diff", "--json", "--ggml", *args)
    if result.status == 2:
        assert " has no " in result.err
        return None
    out: dict[str, Any] = json.loads(result.out)
    assert result.status == (not out["same"])
    return out


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("sample", [*OTHERS, *GRAPHS])
def test_every_difference_has_its_rule_and_no_rule_is_named_for_nothing(call: Call, sample: str, pair: str) -> None:
    found = document(call, pair, sample)
    if found is None:
        return
    if not found["a"]["ok"] and not found["b"]["ok"]:
        return
    assert bool(found["rules"]) == (not found["same"])
    assert not found["rules"] or found["rules"][0]["rule"] is not None
    older, newer = sorted(RELEASES[name].date for name in pair.split(","))
    known = {change.key for change in changes_between(older, newer)}
    assert {rule["rule"] for rule in found["rules"]} <= {*known, None}
    assert all(rule["changed"] for rule in found["rules"])


@pytest.mark.parametrize("sample", GRAPHS)
def test_the_rules_are_the_same_the_other_way_round(call: Call, sample: str) -> None:
    there, back = document(call, "2025-03,0.20.2", sample), document(call, "0.20.2,2025-03", sample)
    assert there is not None
    assert back is not None
    assert there["rules"] == back["rules"]


@pytest.mark.parametrize("path", GOLDEN_PLANS[::3], ids=lambda path: path.name)
def test_every_difference_of_a_golden_plan_has_its_rule(call: Call, tmp_path: Path, path: Path) -> None:
    version = path.parent.name
    golden = json.loads(gzip.decompress(path.read_bytes()))
    (tmp_path / "golden.json").write_text(json.dumps(golden["scenario"] | {"ggml": version}))
    for graph in golden["scenario"]["graphs"]:
        found = document(call, f"{version},0.20.2", f"{tmp_path / 'golden.json'}:{graph}")
        assert found is not None
        if found["a"]["ok"] or found["b"]["ok"]:
            named = [rule["rule"] for rule in found["rules"]]
            assert named != [None]
            assert bool(named) == (not found["same"])


def test_both_sides_of_one_version_differ_in_nothing(call: Call) -> None:
    for name in RELEASES:
        found = document(call, f"{name},{name}", "pipeline")
        assert found is not None
        assert found["same"]
        assert "rules" not in found


def test_files_of_two_versions_are_compared_by_rule_too(call: Call, tmp_path: Path) -> None:
    text = (SAMPLES / "versions-splits.yaml").read_text("utf-8")
    (tmp_path / "old.yaml").write_text(text.replace("ggmltool: 1", "ggmltool: 1\nggml: 2025-03"))
    (tmp_path / "new.yaml").write_text(text)
    found = json.loads(
        call("diff", "--json", tmp_path / "old.yaml:split_inputs", tmp_path / "new.yaml:split_inputs").out
    )
    assert [rule["rule"] for rule in found["rules"]] == ["split-inputs-30"]


def test_changes_are_in_the_order_of_their_days() -> None:
    assert [c.since for c in changes()] == sorted(c.since for c in changes())
    assert len({c.key for c in changes()}) == len(changes())
    assert {c.area for c in changes()} == {"assignment", "splits", "copies", "memory"}
