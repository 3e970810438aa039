"""JSON documents: one head for all of them, and what several have in common. Each is a struct with a schema."""

from __future__ import annotations

import json
import math
from functools import cache
from inspect import get_annotations
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar, cast, dataclass_transform

from msgspec import NODEFAULT, UNSET, Meta, Struct, UnsetType, defstruct, field, to_builtins
from msgspec.structs import fields, replace

from ggmltool.show.text import printable

if TYPE_CHECKING:
    from ggmltool.estimate.records import Estimate
    from ggmltool.ggml.plan import Plan, PlanError


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Row(Struct, frozen=True):
    """A part of a document. So are all that extend it: frozen."""


class Document(Row, kw_only=True):
    """What a command prints with --json: `ggmltool` is the version of the format, `kind` says what it is."""

    main_table: ClassVar[str | None] = None
    """The table that --csv writes if no other is asked for: the name of one of its parts, "" for the document itself as
    one row, None for its first list."""
    view: ClassVar[str] = ""
    """What shows an answer that it is the record of: a function of this name in the module beside it that is called as
    the format, `text`; or, as `tally:shown`, in the module that it names."""
    in_ggmls_words: ClassVar[bool] = False
    """Whether its text is what ggml itself prints, byte for byte."""
    tells_refusal: ClassVar[tuple[str, ...]] = ()
    """The formats that say themselves, in ggml's words, why ggml refused."""
    beside: ClassVar[tuple[str, ...]] = ()
    """Fields that are for its views alone: what is printed with --json has them not."""
    ggmltool: Literal[1] = 1
    kind: str

    def document(self) -> Document:
        """What is printed with --json: itself, or where it has more for its views the part of it that has a `kind`."""
        document = printed(document_in(type(self)))
        return self if document is type(self) else part(self, document)


D = TypeVar("D", bound=Document)


def document_in(record: type[Document]) -> type[Document]:
    """The document that a record is or extends: the class that declares the `kind`."""
    return next(cls for cls in record.__mro__ if "kind" in get_annotations(cls))


@cache
def printed(document: type[Document]) -> type[Document]:
    """A document without what its views have beside it: itself, or a struct of the same name with the other fields."""
    if not document.beside:
        return document
    own, known = get_annotations(document), document.__struct_fields__
    names = dict(zip(known, document.__struct_encode_fields__, strict=True))
    defaults = dict(zip(reversed(known), reversed(document.__struct_defaults__), strict=False))
    shown = [
        (name, own[name], field(default=defaults.get(name, NODEFAULT), name=encoded))
        for name, encoded in names.items()
        if name in own and name not in document.beside
    ]
    about = {"__doc__": document.__doc__, "main_table": document.main_table}
    made = defstruct(
        document.__name__, shown, bases=document.__bases__, module=document.__module__, namespace=about, kw_only=True
    )
    return cast("type[Document]", made)


def part(record: Document, document: type[D], **more: Any) -> D:
    """Of a record that has more for its views the document that it extends; with `more`, one that extends it."""
    return document(**{name: getattr(record, name) for name in document.__struct_fields__ if name not in more}, **more)


class ReleaseDocument(Document, kw_only=True):
    """A document that holds for one release of ggml, `ggml`."""

    ggml: str


def document_of(row: type[Row]) -> type[ReleaseDocument]:
    """A row as a document of its own: the same fields behind a head."""
    own = [(f.name, f.type) if f.default is NODEFAULT else (f.name, f.type, f.default) for f in fields(row)]
    return defstruct(f"One{row.__name__}", own, bases=(ReleaseDocument,), kw_only=True)  # type: ignore[return-value]


class Error(Row):
    """What ggml printed when it refused to go on: the function, the condition of an assertion, the message; and what it
    means here."""

    kind: str | None
    function: str | None
    condition: str | None
    message: str | None
    explanation: str | None


class StepDocument(ReleaseDocument, kw_only=True):
    """A document on the state after `step` of `graph`. `after` is the step's number where one was named; `error` is
    there where ggml refused the step, and `ok` is false then."""

    graph: str | None
    step: str
    ok: bool
    error: Error | UnsetType = UNSET
    after: int | UnsetType = UNSET

    def after_step(self, number: int) -> Self:
        """The same for a step that was named by its number."""
        return replace(self, after=number)


def error_of(error: PlanError | None) -> Error | UnsetType:
    """A plan's error, UNSET if there is none."""
    return UNSET if error is None else Error(**dict(error))


def head(plan: Plan) -> dict[str, Any]:
    """The fields of a StepDocument that a plan says."""
    return {
        "ggml": plan.ggml, "graph": plan.graph, "step": plan.step, "ok": plan.ok, "error": error_of(plan.error),
    }  # fmt: skip


def between(nbytes: int, slack: int = 0) -> dict[str, Any]:
    """The fields of a number of bytes: `nbytes`, and `nbytes_max` where it is known to `slack` bytes only."""
    return {"nbytes": nbytes} | ({"nbytes_max": nbytes + slack} if slack else {})


class EstimateRow(Row):
    """An estimate: at least about `low`, likely `mid`, at most about `high`."""

    low: float
    mid: float
    high: float

    @classmethod
    def of(cls, estimate: Estimate) -> EstimateRow:
        """With the digits that it is worth."""
        return cls(*(float(f"{value:.4g}") for value in estimate))


Number = Annotated[float, Meta(extra_json_schema={"type": ["number", "string"]})]
"""A number; JSON has no NaN and no infinities, which are the texts NaN, Infinity and -Infinity."""


_LAST = ("after", "error")
"""Keys of the head that stand at the end, where one looks for them."""


def json_text(document: Document) -> str:
    """The document as JSON. Half characters of cut names, and what would turn text, are written as escapes."""
    fields = to_builtins(document)
    fields |= {key: fields.pop(key) for key in _LAST if key in fields}
    lines = [f"{dumped(key)}: {_value(value)}" for key, value in fields.items()]
    return "{" + ",\n ".join(lines) + "}\n"


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (dict, list, tuple)):
        return "[\n  " + ",\n  ".join(map(dumped, value)) + "]"
    if isinstance(value, dict) and any(isinstance(v, (dict, list, tuple)) for v in value.values()):
        return "{\n  " + ",\n  ".join(f"{dumped(k)}: {dumped(v)}" for k, v in value.items()) + "}"
    return dumped(value)


def dumped(value: Any) -> str:
    """A value as JSON on one line."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        value = spelled(value)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if text == printable(text) else json.dumps(value, allow_nan=False).replace("\x7f", "\\u007f")


def spelled(value: Any) -> Any:
    """A value with texts for numbers that are not finite: NaN, Infinity and -Infinity."""
    match value:
        case dict():
            return {key: spelled(inner) for key, inner in value.items()}
        case list() | tuple():
            return [spelled(inner) for inner in value]
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
