"""What a real device supports, read from the CSV of `test-backend-ops support --output csv` (llama.cpp's docs/ops)."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

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
                given = _OPERANDS.get(op, _GLU if key >= FIRST_GLU_KEY else _PLAIN)
                operands = (stated.of(params) for stated in given if stated.when(params))
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


def _shape(params: Params, terms: Iterable[str]) -> Dims | None:
    """The extents that products stand for, `bs.1` being the second number of a parameter; None if one is missing."""
    out = []
    for term in terms:
        n = 1
        for factor in term.split("*"):
            name, _, at = factor.partition(".")
            numbers = _numbers(params, name)
            if numbers is None or (not at and len(numbers) > 1):
                return None
            n *= numbers[int(at or 0)] if int(at or 0) < len(numbers) else 1
        out.append(n)
    return _dims(out)


class _Stated(NamedTuple):
    """What says the type of an operand, and its shape: names of which the first counts, or extents (see `_shape`); and
    when a case has the operand."""

    operand: int
    types: str | DType
    shape: str | tuple[str, ...] = ""
    when: Callable[[Params], bool] = lambda p: True

    def of(self, p: Params) -> CaseOperand:
        return CaseOperand(
            self.operand,
            _type(p, *self.types.split()) if isinstance(self.types, str) else self.types,
            _ne(p, *self.shape.split()) if isinstance(self.shape, str) else _shape(p, self.shape),
        )


_PLAIN = (
    _Stated(0, "type type_a type_src type_input", "ne_a ne ne_input ne_lhs"),
    _Stated(1, "type_b", "ne_b ne_rhs"),
    _Stated(RESULT, "type_dst"),
)
"""The operands of most ops."""

_GLU = (_Stated(0, "type", "ne_a"), _Stated(1, "type", "ne_a", when=lambda p: "split" in p))
_BINARY = (_Stated(0, "type", tuple(f"ne.{i}*nr.{i}" for i in range(4))), _Stated(1, "type", "ne"))
_CONVOLUTION = (
    _Stated(0, "type_kernel", "ne_kernel"),
    _Stated(1, "type_input", "ne_input"),
    _Stated(RESULT, "dst_type"),
)
_OPERANDS: dict[str, tuple[_Stated, ...]] = {
    **dict.fromkeys(("ADD", "SUB", "MUL", "DIV"), _BINARY),
    **dict.fromkeys(("IM2COL", "IM2COL_3D", "CONV_2D", "CONV_2D_DW"), _CONVOLUTION),
    **dict.fromkeys(("CONV_TRANSPOSE_1D", "CONV_TRANSPOSE_2D"), _CONVOLUTION),
    "MUL_MAT": (
        _Stated(0, "type_a", ("k", "m", "bs.0", "bs.1")),
        _Stated(1, "type_b", ("k", "n", "bs.0*nr.0", "bs.1*nr.1")),
    ),
    "MUL_MAT_ID": (
        _Stated(0, "type_a", ("k", "m", "n_mats")),
        _Stated(1, "type_b", ("k", "n_used", "n"), when=lambda p: p.get("b") != "1"),
        _Stated(1, "type_b", ("k", "b", "n"), when=lambda p: p.get("b") == "1"),
    ),
    "SET_ROWS": (
        _Stated(0, F32, ("ne.0", "r", "ne.2*nr23.0", "ne.3*nr23.1")),
        _Stated(1, "type_idx"),
        _Stated(RESULT, "type"),
    ),
    "GET_ROWS": (_Stated(0, "type", ("n", "m", "be1", "be2")),),
    "SET": (_Stated(0, "type_dst", "ne"), _Stated(1, "type_src")),
    "SOFT_MAX": (_Stated(0, "type", "ne"), _Stated(1, "m_prec", when=lambda p: p.get("mask") == "1")),
    "FLASH_ATTN_EXT": (
        _Stated(0, F32, ("hsk", "nb", "nh*nr23.0", "nr23.1")),
        _Stated(1, "type_K type_KV", ("hsk", "kv", "nh", "nr23.1")),
        _Stated(2, "type_V type_KV", ("hsv", "kv", "nh", "nr23.1")),
    ),
}
"""How the parameters of a case say the types and shapes of its operands, if it is not as with most ops."""
