"""The arena: offsets of its objects, what it refuses, views of views."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ggml.context import Context, IndexSpace
from ggmltool.ggml.dtypes import F16, F32, TYPES
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, GgmlError, GgmlFailed, NotComputable
from ggmltool.ggml.graph import FULL, HashSet
from ggmltool.scenario.errors import ScenarioError
from ggmltool.state.errors import InspectError, StepRefused


def test_an_arena_with_room_for_two_tensors_refuses_the_third() -> None:
    ctx = Context(mem_size=2 * 368)
    ctx.new_tensor(F32, (1,))
    ctx.new_tensor(F32, (1,))
    with pytest.raises(GgmlAssert, match=r"GGML_ASSERT\(obj_new\) failed"):
        ctx.new_tensor(F32, (1,))
    assert len(ctx.tensors) == 2


def test_a_view_may_end_with_its_root_and_not_behind_it() -> None:
    ctx = Context()
    root = ctx.new_tensor(F32, (8,))
    ctx.new_tensor(F32, (4,), root, 16)
    with pytest.raises(GgmlAssert) as error:
        ctx.new_tensor(F32, (4,), root, 20)
    assert (
        error.value.condition == "view_src == NULL || data_size == 0 || data_size + view_offs <= ggml_nbytes(view_src)"
    )
    assert error.value.function == "ggml_new_tensor_impl"


def test_missing_dimensions_are_one_and_there_are_four_at_most() -> None:
    assert Context().new_tensor(F16, (3, 2)).ne == (3, 2, 1, 1)
    for ne in ((), (1, 1, 1, 1, 1)):
        with pytest.raises(GgmlAssert, match="n_dims >= 1 && n_dims <= GGML_MAX_DIMS"):
            Context().new_tensor(F32, ne)


def test_dup_tensor_is_contiguous_and_nameless() -> None:
    ctx = Context()
    a = ctx.new_tensor(TYPES["q4_0"], (64, 3), name="a")
    a.set_layout(a.ne, (18, 72, 216, 216))
    b = ctx.dup_tensor(a)
    assert (b.type, b.ne, b.nb, b.name) == (a.type, a.ne, (18, 36, 108, 108), "")


def test_view_tensor_keeps_the_strides_and_is_called_a_view() -> None:
    ctx = Context()
    a = ctx.new_tensor(F32, (4, 3), name="a")
    b = ctx.view_tensor(a)
    assert (b.ne, b.nb, b.view_src, b.view_offs, b.name) == (a.ne, a.nb, a, 0, "a (view)")


@given(st.lists(st.integers(0, 3), max_size=40))
def test_indices_in_use_are_never_handed_out_again(moves: list[int]) -> None:
    space = IndexSpace()
    used: list[int] = []
    for move in moves:
        if move == 0 and used:
            back, used = used[:2], used[2:]
            space.give_back(back)
        else:
            new = space.take()
            assert new not in used
            used.append(new)
    assert space.top <= len(moves)


def test_indices_given_back_come_again_in_the_same_order() -> None:
    space = IndexSpace()
    taken = [space.take() for _ in range(4)]
    space.give_back(taken[1:3])
    assert [space.take(), space.take(), space.take()] == [1, 2, 4]


def test_an_assertion_prints_as_ggmls_does() -> None:
    error = GgmlAssert("ggml_f", "a == b", "they differ")
    assert error.message == "GGML_ASSERT(a == b) failed"
    assert error.as_dict() == {
        "kind": "abort",
        "function": "ggml_f",
        "condition": "a == b",
        "message": "GGML_ASSERT(a == b) failed",
        "explanation": "they differ",
    }


@pytest.mark.parametrize(
    ("error", "kind"),
    [(GgmlAssert, "abort"), (GgmlAbort, "abort"), (GgmlFailed, "failed"), (NotComputable, "failed")],
)
def test_all_are_errors_of_ggml_of_a_kind(error: type[GgmlError], kind: str) -> None:
    made = error("ggml_f", "x")
    assert isinstance(made, GgmlError)
    assert made.kind == kind
    assert made.where == ""


def test_no_error_steers_a_terminal() -> None:
    """X5: names from outside reach the texts of errors, and are shown as escapes there."""
    hostile = "a\u202eb\x1b[2J\0"
    for error in (
        InspectError(hostile),
        StepRefused({"message": hostile, "explanation": f"{hostile}\n{hostile}"}, hostile),
        ScenarioError(hostile, hostile, expected=hostile),
        GgmlFailed(hostile, hostile, explanation=f"{hostile}\n{hostile}"),
    ):
        assert all(line.isprintable() for line in str(error).split("\n")), type(error)


addresses = st.integers(1, 1 << 40).map(lambda n: n * 16)


def test_a_full_set_aborts_as_ggml_does() -> None:
    keys = HashSet(2)
    keys.find_or_insert(16)
    keys.find_or_insert(32)
    assert keys.find(48) == FULL
    assert keys.probes(48) == 2
    with pytest.raises(GgmlAbort, match="fatal error"):
        keys.find_or_insert(48)


@given(st.lists(addresses, max_size=60))
def test_everything_put_in_is_found_and_nothing_else(values: list[int]) -> None:
    keys = HashSet(67)
    slots = {value: keys.find_or_insert(value) for value in values}
    assert all(keys.find(value) == slot and value in keys for value, slot in slots.items())
    assert len(keys) == len(set(values)) == len(set(slots.values()))
    keys.reset()
    assert not len(keys)
    assert not any(value in keys for value in values)
