"""What a real device supports, read from the CSV of `test-backend-ops support --output csv` (llama.cpp's docs/ops)."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from ggmltool.ggml.devices.cases import Case, CaseOperand, SupportCases
from ggmltool.ggml.devices.conditions import RESULT
from ggmltool.ggml.dtypes import F32, TYPES, DType
from ggmltool.ggml.op import FIRST_GLU_KEY, keys_of
from ggmltool.ggml.tensor import Dims
from ggmltool.scenario.data import inside_folder
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted

COLUMNS = ("backend_name", "op_name", "op_params", "supported")
"""The columns that are looked at; a file may have others."""
_MOST_BYTES = 64 << 20
_MOST_PARAMS = 4096
_PARAM = re.compile(r"([A-Za-z_]\w*)(?:=(\[[^\]]*\]|[^,]*))?(?:,|$)")
_YES = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}

Params = Mapping[str, str]


def read_support_csv(file: str, backend: str | None, own_name: str, folder: Path | None) -> SupportCases:
    """The cases of one backend of the file, by default of the only one, or of that of the device's own name.

    Ops that ggml does not have are left out. Raises Mistake.
    """
    path = inside_folder(file, folder)
    if path.stat().st_size > _MOST_BYTES:
        raise Mistake(f"{quoted(file)} has more than {_MOST_BYTES >> 20} MiB", "one backend's cases have about 3")
    rows = list(_rows(path, file))
    names = list(dict.fromkeys(row["backend_name"] for row in rows))
    wanted = backend or (names[0] if len(names) == 1 else own_name)
    if wanted not in names:
        hint = did_you_mean(wanted, names) or f"it has {', '.join(map(quoted, names[:8]))}"
        told = f"{hint}; say which with `backend`" if backend is None else hint
        raise Mistake(f"{quoted(file)} has no backend {quoted(wanted)}", told)
    cases: dict[int, list[Case]] = {}
    for row in rows:
        if row["backend_name"] == wanted:
            key = _key(row["op_name"])
            if key is not None:
                op, params = row["op_name"].upper(), dict(_PARAM.findall(row["op_params"]))
                operands = _OPERANDS.get(op, _glu if key >= FIRST_GLU_KEY else _plain_operands)(params)
                strided = any(params.get(name, "") not in _IDENTITY for name in _STRIDED)
                stated = tuple(o for o in operands if o.type is not None or o.ne is not None)
                case = Case(stated, op in _ANY_LAYOUT or not strided, _YES[row["supported"].lower()])
                cases.setdefault(key, []).append(case)
    if not cases:
        raise Mistake(f"{quoted(file)} has no op of ggml's for {quoted(wanted)}")
    return SupportCases(file, wanted, tuple((key, tuple(of)) for key, of in cases.items()))


def _rows(path: Path, file: str) -> Iterator[dict[str, str]]:
    """The rows, checked."""
    what = "expected the CSV of `test-backend-ops support --output csv`"
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            head = next(reader, [])
            missing = [name for name in COLUMNS if name not in head]
            if missing:
                raise Mistake(f"{quoted(file)}:1: there is no column {quoted(missing[0])}", what)
            at = [head.index(name) for name in COLUMNS]
            for row in reader:
                if not row:
                    continue
                if len(row) != len(head):
                    columns = f"{len(row)} columns, and the first line {len(head)}"
                    raise Mistake(f"{quoted(file)}:{reader.line_num}: this row has {columns}", what)
                out = dict(zip(COLUMNS, (row[i] for i in at), strict=True))
                where, params = f"{quoted(file)}:{reader.line_num}", out["op_params"]
                if out["supported"].lower() not in _YES:
                    raise Mistake(f"{where}: supported is {quoted(out['supported'])}", "expected 1 or 0")
                if len(params) > _MOST_PARAMS:
                    raise Mistake(f"{where}: op_params has {len(params)} characters", f"at most {_MOST_PARAMS}")
                yield out
    except (csv.Error, UnicodeDecodeError) as error:
        raise Mistake(f"{quoted(file)} is not CSV: {str(error)[:100]}", what) from None
    except OSError as error:
        raise Mistake(f"{quoted(file)} cannot be read: {error.strerror}") from None


def _key(name: str) -> int | None:
    """The op key of a name; None for what no op is called (a fused chain of ops, an op of a newer ggml)."""
    try:
        keys = keys_of(name.lower())
    except KeyError:
        return None
    return keys[0] if len(keys) == 1 else None


_ANY_LAYOUT = frozenset(("FLASH_ATTN_EXT",))
"""Ops whose cases differ in layout as a matter of course."""

_STRIDED = ("v", "k_v", "slice", "transpose", "_src_transpose", "trans_b", "use_view_slice", "permute", "per",
            "permute_src", "permute_dst", "noncontig", "non_contiguous")  # fmt: skip
_IDENTITY = ("", "0", "[0,0,0,0]", "[0,1,2,3]")


def _type(params: Params, *names: str) -> DType | None:
    """The first of these parameters that is a type."""
    return next((TYPES[params[name]] for name in names if params.get(name) in TYPES), None)


def _numbers(params: Params, name: str) -> list[int] | None:
    text = params.get(name, "")
    parts = text.strip("[]").split(",")
    return [int(p) for p in parts] if text and all(p.isascii() and p.isdigit() and len(p) < 19 for p in parts) else None


def _ne(params: Params, *names: str) -> Dims | None:
    """The first of these parameters that is a shape."""
    for name in names:
        n = _numbers(params, name)
        if n is not None and "[" in params[name] and len(n) <= 4:
            return _dims(n)
    return None


def _dims(n: Iterable[int]) -> Dims:
    a, b, c, d = (*n, 1, 1, 1)[:4]
    return (a, b, c, d)


def _shape(
    params: Params, make: Callable[[Callable[[str], int], Callable[[str], list[int]]], Iterable[int]]
) -> Dims | None:
    """The shape that `make` puts together from numbers and lists by name; None if one is missing."""

    def number(name: str) -> int:
        (n,) = _numbers(params, name) or []
        return n

    def pair(name: str) -> list[int]:
        n = _numbers(params, name) or []
        return [n[0], n[1]]

    try:
        return _dims(make(number, pair))
    except (ValueError, IndexError):
        return None


def _plain_operands(p: Params) -> Iterator[CaseOperand]:
    """Of most ops: `type` or `type_a` and `ne` or `ne_a` are those of source 0, `type_b` and `ne_b` of source 1."""
    yield CaseOperand(
        0, _type(p, "type", "type_a", "type_src", "type_input"), _ne(p, "ne_a", "ne", "ne_input", "ne_lhs")
    )
    yield CaseOperand(1, _type(p, "type_b"), _ne(p, "ne_b", "ne_rhs"))
    yield CaseOperand(RESULT, _type(p, "type_dst"), None)


def _glu(p: Params) -> Iterator[CaseOperand]:
    yield CaseOperand(0, _type(p, "type"), _ne(p, "ne_a"))
    if "split" in p:
        yield CaseOperand(1, _type(p, "type"), _ne(p, "ne_a"))


def _binary(p: Params) -> Iterator[CaseOperand]:
    small, times = _ne(p, "ne"), _ne(p, "nr")
    repeated = _dims(n * m for n, m in zip(small, times, strict=True)) if small and times else None
    yield CaseOperand(0, _type(p, "type"), repeated)
    yield CaseOperand(1, _type(p, "type"), small)


def _mul_mat(p: Params) -> Iterator[CaseOperand]:
    yield CaseOperand(0, _type(p, "type_a"), _shape(p, lambda n, two: (n("k"), n("m"), *two("bs"))))
    many = _shape(p, lambda n, two: (n("k"), n("n"), two("bs")[0] * two("nr")[0], two("bs")[1] * two("nr")[1]))
    yield CaseOperand(1, _type(p, "type_b"), many)


def _mul_mat_id(p: Params) -> Iterator[CaseOperand]:
    yield CaseOperand(0, _type(p, "type_a"), _shape(p, lambda n, _: (n("k"), n("m"), n("n_mats"))))
    many = _shape(p, lambda n, _: (n("k"), 1 if p.get("b") == "1" else n("n_used"), n("n")))
    yield CaseOperand(1, _type(p, "type_b"), many)


def _set_rows(p: Params) -> Iterator[CaseOperand]:
    ne = _ne(p, "ne")
    rows = _shape(p, lambda n, two: (ne[0], n("r"), ne[2] * two("nr23")[0], ne[3] * two("nr23")[1])) if ne else None
    yield CaseOperand(0, F32, rows)
    yield CaseOperand(1, _type(p, "type_idx"), None)
    yield CaseOperand(RESULT, _type(p, "type"), None)


def _get_rows(p: Params) -> Iterator[CaseOperand]:
    yield CaseOperand(0, _type(p, "type"), _shape(p, lambda n, _: (n("n"), n("m"), n("be1"), n("be2"))))


def _set(p: Params) -> Iterator[CaseOperand]:
    yield CaseOperand(0, _type(p, "type_dst"), _ne(p, "ne"))
    yield CaseOperand(1, _type(p, "type_src"), None)


def _convolution(p: Params) -> Iterator[CaseOperand]:
    yield CaseOperand(0, _type(p, "type_kernel"), _ne(p, "ne_kernel"))
    yield CaseOperand(1, _type(p, "type_input"), _ne(p, "ne_input"))
    yield CaseOperand(RESULT, _type(p, "dst_type"), None)


def _soft_max(p: Params) -> Iterator[CaseOperand]:
    yield CaseOperand(0, _type(p, "type"), _ne(p, "ne"))
    if p.get("mask") == "1":
        yield CaseOperand(1, _type(p, "m_prec"), None)


def _flash_attn(p: Params) -> Iterator[CaseOperand]:
    yield CaseOperand(0, F32, _shape(p, lambda n, two: (n("hsk"), n("nb"), n("nh") * two("nr23")[0], two("nr23")[1])))
    keys = _shape(p, lambda n, two: (n("hsk"), n("kv"), n("nh"), two("nr23")[1]))
    yield CaseOperand(1, _type(p, "type_K", "type_KV"), keys)
    yield CaseOperand(2, _type(p, "type_V", "type_KV"), _shape(p, lambda n, _: (n("hsv"), *(keys or ())[1:])))


_OPERANDS: dict[str, Callable[[Params], Iterator[CaseOperand]]] = {
    **dict.fromkeys(("ADD", "SUB", "MUL", "DIV"), _binary),
    **dict.fromkeys(("IM2COL", "IM2COL_3D", "CONV_2D", "CONV_2D_DW"), _convolution),
    **dict.fromkeys(("CONV_TRANSPOSE_1D", "CONV_TRANSPOSE_2D"), _convolution),
    "MUL_MAT": _mul_mat,
    "MUL_MAT_ID": _mul_mat_id,
    "SET_ROWS": _set_rows,
    "GET_ROWS": _get_rows,
    "SET": _set,
    "SOFT_MAX": _soft_max,
    "FLASH_ATTN_EXT": _flash_attn,
}
"""How the parameters of a case say the types and shapes of its operands, if it is not as with most ops."""
