"""Whatever a caller of the API passes: an answer, or a ggmltool.Error. Answers survive a journey to another process."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ggmltool
from ggmltool.inspect.history.history import History

LOG = Path(__file__).parent / "sources" / "logs" / "2025-03.log"
ODD: list[Any] = [
    None, True, False, 0, 1, 2, 3, -1, 99, 2**31, -(2**63), 2**70, 1.5, float("nan"), float("inf"), "", " ", "\0",
    "a" * 100_000, "\ud800", "\x1b[2J", "nobody", "main", "reserve", "alloc", "compute", "gate", "node", "op",
    "op,backend", "yes", "0..3", "9..1", "1:2", "all", "auto", "3,1", "CUDA0:2GiB", ".*=CPU", "(=CPU", "1GiB",
    "f16", "2024-01", "../nothing", "/", "/dev/null", "moe", "transformer", b"x", (), [], {}, [1], ["a"], ("a",),
    ("a", "b"), (None, None), (1, 2), {"a": 1}, {1: 2}, set(), object(), Path("nothing"), Path("/"), len, print,
    str, 1j,
]  # fmt: skip
SLOW = {"capture", "fit", "verify", "compare", "sweep"}
"""What computes, searches or starts a library: a few examples are enough."""
MODULE = [name for name in ggmltool.__all__ if inspect.isfunction(getattr(ggmltool, name))]
METHODS = [name for name, _ in inspect.getmembers(ggmltool.Scenario, inspect.isfunction) if not name.startswith("_")]
HISTORY = [name for name, _ in inspect.getmembers(History, inspect.isfunction) if not name.startswith("_")]


@cache
def moe() -> Any:
    return ggmltool.load("moe")


@cache
def captured() -> Any:
    return ggmltool.load("gemma-3-270m-ngl9")


@cache
def history() -> Any:
    return ggmltool.load("matmul").record(compute=True)


@st.composite
def calls(draw: st.DrawFn, function: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
    """Odd arguments for some of the parameters of a function."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    odd = st.one_of(st.sampled_from(ODD), st.lists(st.sampled_from(ODD), max_size=2))
    for p in list(inspect.signature(function).parameters.values()):
        if p.name == "self":
            continue
        if p.kind is p.VAR_KEYWORD:
            names = ("graph", "step", "after", "parallel", "op_offload", "device", "margin", "main_gpu", "n_depth", "x")
            kwargs |= draw(st.dictionaries(st.sampled_from(names), odd, max_size=2))
        elif p.kind is p.VAR_POSITIONAL:
            args += draw(st.lists(odd, max_size=2))
        elif p.default is p.empty or draw(st.booleans()):
            value = draw(odd)
            if p.kind is p.KEYWORD_ONLY or (len(args) < len(kwargs)):
                kwargs[p.name] = value
            else:
                args.append(value)
    return args, kwargs


def attempt(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> None:
    try:
        function(*args, **kwargs)
    except ggmltool.Error as error:
        str(error)


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def examples(name: str) -> settings:
    few = 8 if name in SLOW else 60
    return settings(max_examples=few, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@pytest.mark.parametrize("name", MODULE)
def test_functions_of_the_package(name: str) -> None:
    function = getattr(ggmltool, name)

    @examples(name)
    @given(calls(function))
    def check(call: tuple[list[Any], dict[str, Any]]) -> None:
        attempt(function, *call)

    check()


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("scenario", [moe, captured], ids=["moe", "captured"])
def test_methods_of_a_scenario(name: str, scenario: Callable[[], Any]) -> None:
    if scenario is captured and name not in ("place", "placed", "sweep", "splits", "diff", "supports", "plan"):
        pytest.skip("as of any scenario")
    method = getattr(scenario(), name)

    @examples(name)
    @given(calls(method))
    def check(call: tuple[list[Any], dict[str, Any]]) -> None:
        attempt(method, *call)

    check()


@pytest.mark.parametrize("name", HISTORY)
def test_methods_of_a_history(name: str) -> None:
    method = getattr(history(), name)

    @examples(name)
    @given(calls(method))
    def check(call: tuple[list[Any], dict[str, Any]]) -> None:
        attempt(method, *call)

    check()


@given(width=st.sampled_from(ODD))
@examples("")
def test_the_width_of_a_result(width: Any) -> None:
    attempt(moe().splits().text, [width], {})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: moe().explain(()), "explain: what must be str or int or tuple"),
        (lambda: moe().plan(after=float("nan")), "plan: after must be int or None, not nan"),
        (lambda: moe().record("\0"), "record: path must be str or Path or None"),
        (lambda: moe().diff("a" * 100_000), "File name too long"),
        (lambda: moe().splits(grap="x"), "splits: there is no option 'grap'; did you mean \"graph\""),
        (lambda: moe().tensor(), "tensor: missing a required argument: 'name'"),
        (lambda: moe().record("nowhere/x.ggtrace"), 'nowhere/x.ggtrace": No such file or directory'),
        (lambda: history().cells(10**9), "there is no point 1000000000"),
    ],
)
def test_a_wrong_argument_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ggmltool.InspectError) as caught:
        call()
    assert message in str(caught.value)


ANSWERS: dict[str, Callable[[], Any]] = {
    "plan": lambda: moe().plan(),
    "a plan that ggml refuses": lambda: ggmltool.load("missing-op").plan(),
    "splits": lambda: moe().splits(),
    "counts": lambda: moe().splits(by="op"),
    "bytes": lambda: moe().splits(bytes=True),
    "passes": lambda: moe().splits(after_pass=2),
    "after": lambda: ggmltool.load("outgrown").buffers(after=2),
    "buffers": lambda: moe().buffers(),
    "chunks": lambda: moe().buffers(chunks=True),
    "copies": lambda: moe().buffers(copies=True),
    "map": lambda: moe().memory_map(),
    "allocs": lambda: moe().allocs(),
    "trace of allocs": lambda: moe().allocs(trace=True),
    "free blocks": lambda: moe().allocs(free_blocks=moe().plan().nodes[1].id),
    "hash": lambda: moe().hash(),
    "hash of the scheduler": lambda: moe().hash(sched=True),
    "limits": lambda: moe().limits(all=True),
    "context": lambda: moe().context(),
    "tensor": lambda: moe().tensor(moe().plan().nodes[1].id),
    "explain": lambda: moe().explain(moe().plan().nodes[1].id),
    "explain split": lambda: moe().explain(0),
    "explain realloc": lambda: ggmltool.load("outgrown").explain(("small", "large")),
    "lifetime": lambda: moe().lifetime(moe().plan().nodes[1].id),
    "trace": lambda: moe().trace(zeros=True),
    "backends": lambda: moe().backends(),
    "supports": lambda: moe().supports(),
    "graph": lambda: moe().graph(sched=True),
    "diff": lambda: moe().diff(parallel=True),
    "report": lambda: moe().report(),
    "compare": lambda: moe().compare(zeros=True),
    "place": lambda: captured().place(9, device="CUDA0:2GiB"),
    "sweep": lambda: captured().sweep("0..18:9", device="CUDA0:2GiB"),
    "ops": lambda: ggmltool.ops("rope"),
    "types": lambda: ggmltool.types("q4_K"),
    "known devices": lambda: ggmltool.backends(),
    "samples": lambda: ggmltool.samples(),
    "error": lambda: ggmltool.explain_error("tensor buffer not set"),
    "log": lambda: ggmltool.import_log(LOG),
    "graph of a log": lambda: ggmltool.import_log(LOG, graph=1),
    "scenario": lambda: moe(),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_can_be_pickled(name: str) -> None:
    answer = ANSWERS[name]()
    again = pickle.loads(pickle.dumps(answer))
    assert repr(again) == repr(answer)
    if isinstance(answer, ggmltool.Result):
        assert (str(again), again.as_dict(), again.ok) == (str(answer), answer.as_dict(), answer.ok)
    elif isinstance(answer, ggmltool.Plan):
        assert again == answer


@pytest.mark.parametrize("compute", [False, True])
def test_a_history_can_be_pickled_before_and_after_it_was_asked(compute: bool) -> None:
    recorded = ggmltool.load("matmul").record(compute=compute)
    for _ in range(2):
        again = pickle.loads(pickle.dumps(recorded))
        last = len(recorded.points) - 1
        assert again.cells(last) == recorded.cells(last)
        assert again.stack(last) == recorded.stack(last)
        assert again.since(frozenset(("sched",)), last) == recorded.since(frozenset(("sched",)), last)
        if compute:
            assert again.bytes_at(last, 0, 4) == recorded.bytes_at(last, 0, 4)


@pytest.mark.parametrize("field", ggmltool.CaptureOptions.__dataclass_fields__)
@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:20])
def test_the_settings_of_a_capture(field: str, value: Any) -> None:
    attempt(ggmltool.CaptureOptions, [], {field: value})
    attempt(ggmltool.capture, ["nothing.gguf"], {field: value})
