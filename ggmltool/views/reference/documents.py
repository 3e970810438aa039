"""The JSON of what is known without a graph: devices, ops, types, tables, samples, pages of the manual, schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import NODEFAULT, UNSET, UnsetType, defstruct
from msgspec.structs import asdict, fields

from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.show.document import Document, Number, ReleaseDocument, Row
from ggmltool.views.reference.value_table import Entry, TableInfo, value_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ggmltool.estimate.records import Rates
    from ggmltool.inspect.devices import BackendInfo, BuftInfo, EngineInfo, ProfileInfo, RegisteredInfo
    from ggmltool.inspect.interfaces import Duty
    from ggmltool.inspect.op_info import FormInfo, OpInfo
    from ggmltool.inspect.rates import RatesInfo
    from ggmltool.inspect.samples import SampleInfo
    from ggmltool.inspect.types import TypeInfo


def document_of(row: type[Row], kind: str) -> type[ReleaseDocument]:
    """A row as a document of its own: the same fields behind a head."""
    own = [(f.name, f.type) if f.default is NODEFAULT else (f.name, f.type, f.default) for f in fields(row)]
    named = [("kind", Literal[kind], kind), *own]
    return defstruct(f"{row.__name__}s", named, bases=(ReleaseDocument,), kw_only=True)  # type: ignore[return-value]


class ProfileRow(Row):
    """A kind of devices: what they are called, whose code they follow, and what is left out."""

    name: str
    type: str
    names: str
    ggml: str
    description: str
    leaves_out: str


class ProfilesDocument(ReleaseDocument, kw_only=True):
    """`backends --json` without a scenario: the kinds of devices that are known."""

    kind: Literal["profiles"] = "profiles"
    profiles: list[ProfileRow]

    @classmethod
    def of(cls, profiles: Sequence[ProfileInfo], ggml: str) -> ProfilesDocument:
        """The kinds that a release has."""
        return cls(ggml=ggml, profiles=[ProfileRow(*p) for p in profiles])


class LinkRow(Row):
    """A way between a device and the host: bytes per second from pinned and from pageable memory, seconds to begin."""

    pinned: float
    pageable: float
    latency: float


class NumbersRow(Row):
    """`bandwidth` of the memory in bytes per second; the types have operations per second. Without a way to the device
    its memory is the host's. `sources`: where the numbers are from, that of `launch` (seconds of each node) and of
    the share that is `free` among them."""

    bandwidth: float
    f32: float
    f16: float
    bf16: float
    int8: float
    to_device: LinkRow | None
    from_device: LinkRow | None
    sources: dict[str, str]

    @classmethod
    def of(cls, rates: Rates) -> NumbersRow:
        """A device's numbers."""
        there, back = (None if way is None else LinkRow(*way) for way in (rates.to_device, rates.from_device))
        return cls(
            bandwidth=rates.memory,
            f32=rates.f32,
            f16=rates.f16,
            bf16=rates.bf16,
            int8=rates.int8,
            to_device=there,
            from_device=back,
            sources=dict(rates.sources),
        )


class DeviceRatesRow(Row):
    """A device, by its name and its backends. `memory` and `free` are bytes, null where nothing is said of them; so are
    `rates`."""

    name: str
    backends: list[str]
    memory: int | None
    free: int | None
    rates: NumbersRow | None

    @classmethod
    def of(cls, info: RatesInfo) -> DeviceRatesRow:
        """A device's row."""
        return cls(
            name=info.name,
            backends=list(info.backends),
            memory=info.memory,
            free=info.free,
            rates=None if info.rates is None else NumbersRow.of(info.rates),
        )


class RatesDocument(Document, kw_only=True):
    """`backends --rates --json` and `backends --measure --json`: how fast devices are at best."""

    kind: Literal["rates"] = "rates"
    devices: list[DeviceRatesRow]

    @classmethod
    def of(cls, infos: Sequence[RatesInfo]) -> RatesDocument:
        """The devices, in their order."""
        return cls(devices=[DeviceRatesRow.of(info) for info in infos])


class GpuRow(Row):
    """A GPU of this machine: its number, its name, and its memory in bytes."""

    number: int
    name: str
    free: int
    total: int


class EngineRow(Row):
    """Who computes for a backend: null where nobody can, for the reason `refusal`."""

    name: str | None
    gpu: GpuRow | None
    refusal: str | None

    @classmethod
    def of(cls, e: EngineInfo) -> EngineRow:
        """Who computes."""
        gpu = None if e.gpu is None else GpuRow(e.gpu, e.gpu_name, e.free, e.total)
        return cls(None if e.refusal else e.name, gpu, e.refusal or None)


class DutyRow(Row):
    """A function that a backend may implement: whether it needs to, what it does, and what ggml does without it."""

    need: str
    does: str
    if_null: str


class BackendRow(Row, kw_only=True):
    """A backend: its device, what it can do, the buffer types that it can use; `interface` are its function tables with
    null for NULL, `to_implement` what a device of one's own has to implement."""

    name: str
    profile: str
    description: str
    type: str
    memory: int | None
    engine: EngineRow
    caps: dict[str, bool]
    buft: str
    supports_bufts: list[str]
    offload_min_batch: int | None
    features: list[str]
    graph_optimize: bool | None
    max_tensor_size: int | None
    leaves_out: str
    interface: dict[str, dict[str, str | None]] | None
    to_implement: dict[str, dict[str, DutyRow]] | UnsetType = UNSET

    @classmethod
    def of(cls, b: BackendInfo, duties: Mapping[str, Sequence[Duty]] | None) -> BackendRow:
        """A backend; `duties` are what one of one's own implements, where that is asked for."""
        tables, to_implement = None, UNSET
        if b.tables is not None:
            tables = {t.kind: {f.field: f.function for f in t.functions} for t in b.tables}
        return cls(
            name=b.name,
            profile=b.profile.name,
            description=b.profile.description,
            type=b.type,
            memory=b.memory,
            engine=EngineRow.of(b.engine),
            caps=b.caps,
            buft=b.buft,
            supports_bufts=list(b.bufts),
            offload_min_batch=b.offload_min_batch,
            features=list(b.features),
            graph_optimize=b.graph_optimize,
            max_tensor_size=b.max_tensor_size,
            leaves_out=b.profile.leaves_out,
            interface=tables,
            to_implement=_duties(duties) if tables is None and duties else to_implement,
        )


def _duties(duties: Mapping[str, Sequence[Duty]]) -> dict[str, dict[str, DutyRow]]:
    return {kind: {d.field: DutyRow(d.need, d.does, d.if_null) for d in table} for kind, table in duties.items()}


class BuftRow(Row):
    """A buffer type: its device, alignment and largest buffer in bytes, the rule of its sizes, what a tensor in it can
    be used for (null: all), and the backends that use it."""

    name: str
    device: str
    alignment: int
    max_size: int
    is_host: bool
    alloc_size: str
    ops: list[str] | None
    used_by: list[str]

    @classmethod
    def of(cls, b: BuftInfo) -> BuftRow:
        """A buffer type."""
        ops = None if b.ops is None else list(b.ops)
        return cls(b.name, b.device, b.alignment, b.max_size, b.is_host, b.alloc_size, ops, list(b.used_by))


class RegisteredRow(Row):
    """An entry of the registry of January 2024."""

    number: int
    name: str
    init: str
    buft: str
    alignment: int
    slack: int


class BackendsDocument(ReleaseDocument, kw_only=True):
    """`backends --json`: the backends of a scenario or of devices, and their buffer types."""

    kind: Literal["backends"] = "backends"
    backends: list[BackendRow]
    buffer_types: list[BuftRow]
    registry: list[RegisteredRow] | UnsetType = UNSET

    @classmethod
    def of(
        cls,
        backends: Sequence[BackendInfo],
        bufts: Sequence[BuftInfo],
        ggml: str,
        registered: Sequence[RegisteredInfo] = (),
        duties: Mapping[str, Sequence[Duty]] | None = None,
    ) -> BackendsDocument:
        """Backends by priority, and the entries of the registry of a release that has one."""
        return cls(
            ggml=ggml,
            backends=[BackendRow.of(b, duties) for b in backends],
            buffer_types=[BuftRow.of(b) for b in bufts],
            registry=[RegisteredRow(*r) for r in registered] or UNSET,
        )


class ParamRow(Row):
    """A parameter: its kind, its default as a scenario writes it ("" where it is left out, null where it is required),
    its words with ggml's numbers, and what it means."""

    name: str
    kind: str
    default: str | None
    choices: dict[str, int]
    meaning: str


class FormRow(Row):
    """A way to write an op: further names, sources of which the first `required` have to be there, the node's slots,
    parameters; what it `asks` of shapes and types, what it `gives`, and how it is `spelled`."""

    name: str
    also: list[str]
    sources: list[str]
    required: int
    slots: list[str]
    inplace: bool
    params: list[ParamRow]
    text: str
    asks: list[str]
    gives: str
    spelled: str

    @classmethod
    def of(cls, f: FormInfo) -> FormRow:
        """A form."""
        params = [ParamRow(*p) for p in f.params]
        return cls(
            f.name, list(f.also), list(f.sources), f.required, list(f.slots), f.inplace, params, f.text, list(f.asks),
            f.gives, f.spelled(),
        )  # fmt: skip


class Range(Row):
    """The fewest and the most."""

    min: int
    max: int


class OpRow(Row, kw_only=True):
    """An op, or a function of UNARY or GLU (`function_of`): its sources and forms, what it can and who supports it;
    `cases` are the calls that the tests compare with ggml's own, `example` is a scenario, `result` what that gives."""

    number: int
    name: str
    function_of: str
    symbol: str
    sources: Range
    forms: list[FormRow]
    is_view_op: bool
    can_inplace: bool
    computes: bool
    cases: int
    supports: dict[str, str]
    result_of: str
    example: str
    note: str
    result: str | UnsetType = UNSET

    @classmethod
    def of(cls, info: OpInfo) -> OpRow:
        """An op; `result` only where the example has been planned."""
        rest = {name: value for name, value in info._asdict().items() if name not in ("sources", "forms", "result")}
        forms = [FormRow.of(form) for form in info.forms]
        return cls(**rest, sources=Range(*info.sources), forms=forms, result=info.result or UNSET)


class OpsDocument(ReleaseDocument, kw_only=True):
    """`ops --json`: all ops of ggml, then the functions of UNARY and of GLU."""

    kind: Literal["ops"] = "ops"
    ops: list[OpRow]

    @classmethod
    def of(cls, infos: Sequence[OpInfo]) -> OpsDocument:
        """All ops."""
        return cls(ggml=DEFAULT.name, ops=[OpRow.of(info) for info in infos])


class OpDocument(document_of(OpRow, "op")):  # type: ignore[misc]
    """`ops NAME --json`: an op in full."""

    main_table = ""

    @classmethod
    def of(cls, info: OpInfo) -> OpDocument:
        """An op."""
        return cls(ggml=DEFAULT.name, **asdict(OpRow.of(info)))


class TypeRow(Row, kw_only=True):
    """A type: elements and bytes of a block, what ggml can convert and multiply it with, what ggmltool can convert."""

    number: int
    name: str
    block_size: int
    type_size: int
    quantized: bool
    to_float: bool
    from_float_ref: bool
    from_float: bool
    vec_dot: str
    reads: bool
    writes: bool
    bits_per_element: float

    @classmethod
    def of(cls, info: TypeInfo) -> TypeRow:
        """A type."""
        return cls(**info._asdict(), bits_per_element=info.bits)


class TypesDocument(ReleaseDocument, kw_only=True):
    """`types --json`: all types of ggml, by number."""

    kind: Literal["types"] = "types"
    types: list[TypeRow]

    @classmethod
    def of(cls, infos: Sequence[TypeInfo]) -> TypesDocument:
        """All types."""
        return cls(ggml=DEFAULT.name, types=[TypeRow.of(info) for info in infos])


class TypeDocument(document_of(TypeRow, "type")):  # type: ignore[misc]
    """`types NAME --json`: a type in full."""

    @classmethod
    def of(cls, info: TypeInfo) -> TypeDocument:
        """A type."""
        return cls(ggml=DEFAULT.name, **asdict(TypeRow.of(info)))


class EntryRow(Row):
    """An entry of a table: its index, the number `x` that has those bits (null where an index is none), the value and
    its bits."""

    index: int
    x: Number | None
    value: Number
    bits: int


class TableDocument(ReleaseDocument, kw_only=True):
    """`types --table NAME --json`: a table of values that ggml looks up, with exact bits."""

    kind: Literal["table"] = "table"
    name: str
    symbol: str
    index_bits: int
    type: str
    text: str
    note: str
    entries: list[EntryRow]

    @classmethod
    def of(cls, table: TableInfo, entries: Sequence[Entry]) -> TableDocument:
        """Some entries of a table."""
        rows = [
            EntryRow(
                e.argument,
                value_of(e.argument, "f16") if table.index_bits == 16 else None,
                value_of(e.bits, table.type),
                e.bits,
            )
            for e in entries
        ]
        return cls(ggml=DEFAULT.name, **table._asdict(), entries=rows)


class SampleRow(Row):
    """A sample: its name, its file, and what it shows."""

    name: str
    file: str
    shows: str


class SamplesDocument(Document, kw_only=True):
    """`sample --json`: the scenarios that ship with ggmltool."""

    kind: Literal["samples"] = "samples"
    samples: list[SampleRow]

    @classmethod
    def of(cls, infos: Sequence[SampleInfo]) -> SamplesDocument:
        """All samples."""
        return cls(samples=[SampleRow(*info) for info in infos])


class TopicRow(Row):
    """A page of the manual."""

    topic: str
    title: str


class TopicsDocument(Document, kw_only=True):
    """`help --json`: the pages of the manual."""

    kind: Literal["topics"] = "topics"
    topics: list[TopicRow]

    @classmethod
    def of(cls, titles: Mapping[str, str]) -> TopicsDocument:
        """The title of each page."""
        return cls(topics=[TopicRow(topic, title) for topic, title in titles.items()])


class PageDocument(Document, kw_only=True):
    """`help TOPIC --json`: a page of the manual, as Markdown."""

    kind: Literal["page"] = "page"
    topic: str
    text: str


class SchemaInfo(Row):
    """A name that `ggmltool schema` takes, and what the schema is of."""

    name: str
    about: str


class SchemasDocument(Document, kw_only=True):
    """`schema --json`: the schemas that there are."""

    kind: Literal["schemas"] = "schemas"
    schemas: list[SchemaInfo]

    @classmethod
    def of(cls, schemas: Mapping[str, str]) -> SchemasDocument:
        """What each schema is of, by its name."""
        return cls(schemas=[SchemaInfo(name, about) for name, about in schemas.items()])
