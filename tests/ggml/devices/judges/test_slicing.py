"""Functions are cut out of C++ with what they need, and nothing else."""

from __future__ import annotations

import pytest

from tests.ggml.devices.judges.slicing import Definition, definitions, needed, own_text

SOURCE = """
typedef struct { int a; } first_t;
typedef void (* callback_t)(int);
enum kind { KIND_A = 1, KIND_B, };
struct pair { int x; kind k() { return KIND_A; } };
static const int table[2] = { 1, 2 };
using names = std::vector<int>;
template <int D, typename T = int> static T twice(T x) { return D * x; }
template void kernel<float, 32>(float);
extern template void kernel<float, 64>(float);
static_assert(sizeof(int) == 4, "an int; of 4 bytes");
extern "C" {
bool shown(int x);
}
namespace inner {
int deep(int x) { if (x) { return "}"[0]; } return twice<2>(x); }
}
__attribute__((visibility("default"))) bool root(const pair * p, callback_t f) { return p->x && shown(table[1]); }
void launch() { kernel<<<1, 2>>>(x); }
"""


def named(name: str) -> list[Definition]:
    return [d for d in definitions(SOURCE) if name in d.names]


@pytest.mark.parametrize(
    "name",
    [
        "first_t", "callback_t", "kind", "KIND_A", "KIND_B", "pair", "table", "names", "twice", "shown", "deep",
        "root", "launch",
    ],
)  # fmt: skip
def test_what_is_defined_has_its_name(name: str) -> None:
    assert len(named(name)) == 1


def test_instances_of_templates_and_assertions_name_nothing() -> None:
    assert not named("float")
    assert sum(not d.names for d in definitions(SOURCE)) == 3


def test_a_functions_body_is_whole_and_ends_it() -> None:
    (deep,) = named("deep")
    assert deep.text.endswith("return twice<2>(x); }")
    assert str(deep) == f"namespace inner {{ {deep.text} }}"


def test_a_root_comes_with_what_it_needs_in_the_order_of_the_source() -> None:
    pieces = needed(definitions(SOURCE), ["root"], [])
    assert [next(iter(d.names - {"KIND_B"})) for d in pieces if "KIND_A" not in d.names] == [
        "callback_t", "pair", "table", "shown", "root",
    ]  # fmt: skip


def test_what_is_given_is_not_taken() -> None:
    pieces = needed(definitions(SOURCE), ["root"], ["pair", "callback_t"])
    assert {name for d in pieces for name in d.names} == {"table", "shown", "root"}


def test_a_root_that_is_not_defined_is_told() -> None:
    with pytest.raises(LookupError, match="does not define other, more"):
        needed(definitions(SOURCE), ["root", "other", "more"], [])


def test_only_what_the_sources_own_files_have_is_left_of_a_preprocessed_text() -> None:
    text = '# 1 "/usr/include/x.h" 1 3\nint system;\n# 2 "/ggml/a.cu" 2\n#pragma unroll\nint own;\n'
    assert own_text(text, lambda path: path.parent.name == "ggml") == "int own;"
