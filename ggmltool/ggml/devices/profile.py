"""What a profile is: data about a kind of device, and how an engine's device and buffer types are made of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from ggmltool.ggml.buffer import AllocSize, BufferType
from ggmltool.ggml.device import NO, RULE, YES, BatchSize, Device, DeviceType, GraphOrder, OpRule, batch_size, op_table
from ggmltool.ggml.devices.cases import OwnSupports
from ggmltool.ggml.devices.combinators import ALWAYS, NEVER, Rule
from ggmltool.ggml.devices.conditions import in_turn
from ggmltool.ggml.devices.unsupported import Unsupported
from ggmltool.ggml.devices.written_rules import support_rules
from ggmltool.ggml.op import EMPTY_OPS, SHARED, OpRules
from ggmltool.ggml.version import SIZE_MAX, TENSOR_ALIGNMENT

CAPS = ("async", "host_buffer", "buffer_from_host_ptr", "events", "mmap_support")
"""ggml_backend_dev_caps."""

MATRIX_ROW_PADDING = 512
"""Elements that rows of quantized tensors are padded to on several GPUs."""

Features = frozenset[str]
"""What a piece of hardware can do, by the names that its profile knows."""


class SizeFacts(NamedTuple):
    """What the size of a tensor in a buffer type may depend on: the type's alignment and row padding, the hardware."""

    alignment: int
    row_padding: int
    features: Features


PINNED = "pinned host memory"
"""The family of host memory that a device has pinned: it is for the CPU, the device itself cannot use it."""


@dataclass(frozen=True, slots=True)
class ExtraBuft:
    """A further buffer type of a device.

    `{device}` in `name` stands for the device's name. `alignment` and `max_size` are bytes (None: those of the
    device's own type), `family` is the kind of memory. `rule` decides, given the device's features, about every op
    that has one of its first four sources in this type (None: no such rule). `alloc_more` says what `alloc_size` does,
    `slack` how many bytes larger than asked for its buffers are.
    """

    name: str
    family: str
    alignment: int | None = TENSOR_ALIGNMENT
    max_size: int | None = SIZE_MAX
    host: bool = False
    rule: Callable[[Features], OpRule] | None = None
    alloc_size: AllocSize | None = None
    alloc_more: str = ""
    slack: int = 0


def pinned(
    name: str, max_size: int | None = SIZE_MAX, alignment: int | None = TENSOR_ALIGNMENT, slack: int = 0
) -> ExtraBuft:
    """A device's pinned host memory."""
    return ExtraBuft(name, PINNED, alignment, max_size, host=True, slack=slack)


class Hardware(NamedTuple):
    """What a device's rules ask of the piece of hardware: its features, the largest tensor it takes, in bytes."""

    features: Features
    max_tensor_size: int


@dataclass(frozen=True, slots=True)
class Profile:
    """What a kind of device is, as of one ggml version.

    `rules` are its ops by op key with their conditions; `others` is whether it runs those that are not among them.
    `check` may refuse any op, given the device's own buffer type and its hardware. `buft` names the default buffer type
    where it is another device's, `extra` are the types besides it. `features` are the names of what such hardware may
    have, `has` what it has unless somebody says otherwise. `graph_optimize` is the node order the device makes by
    default. `caps` is what it can do of ggml_backend_dev_caps besides events (`known_caps` are those that its ggml
    has), `alloc_more` says what `alloc_size` adds to the padding of rows, `slack` how much larger than asked for its
    buffers are. `unsupported` is how its backend ends when it is to compute what the device does not support. Sizes are
    bytes.
    """

    name: str
    type: DeviceType = "gpu"
    buft: str | None = None
    alignment: int = 128
    max_size: int = SIZE_MAX
    row_padding: int = 0
    host: bool = False
    any_host: bool = False
    rules: Mapping[int, Rule] = field(default_factory=dict)
    others: bool = True
    check: Callable[[BufferType, Hardware], OpRule | None] | None = None
    alloc_size: Callable[[SizeFacts], AllocSize] | None = None
    offload_min_batch: int | None = None
    batch_size: BatchSize = batch_size
    events: bool = False
    copies_async: bool = False
    sets_async: bool | None = None
    graph_optimize: GraphOrder | None = None
    extra: tuple[ExtraBuft, ...] = ()
    features: tuple[str, ...] = ()
    has: Features = frozenset()
    max_tensor_size: int = SIZE_MAX
    ggml: str = "0.20.2"
    caps: frozenset[str] = frozenset()
    known_caps: frozenset[str] = frozenset(CAPS)
    alloc_more: str = ""
    slack: int = 0
    unsupported: Unsupported | None = None

    def but(self, **said: Any) -> Profile:
        """The same, with what is said of a device of this kind (None: nothing is)."""
        given = {name: value for name, value in said.items() if value is not None}
        return replace(self, **given) if given else self


def make_buft(profile: Profile, name: str, device: str) -> BufferType:
    """The device's own buffer type."""
    memory = SizeFacts(profile.alignment, profile.row_padding, profile.has)
    return BufferType(
        name,
        device,
        profile.alignment,
        profile.max_size,
        profile.row_padding,
        profile.host,
        alloc_size=profile.alloc_size(memory) if profile.alloc_size is not None else None,
        family=profile.name,
        alloc_more=profile.alloc_more,
        slack=profile.slack,
    )


def extra_names(profile: Profile, device: str) -> dict[str, ExtraBuft]:
    """The buffer types that a device called `device` has besides its default one, by name."""
    return {extra.name.format(device=device): extra for extra in profile.extra}


def make_extra_buft(profile: Profile, extra: ExtraBuft, name: str, device: str) -> BufferType:
    """A further buffer type of a device."""
    return BufferType(
        name,
        device,
        profile.alignment if extra.alignment is None else extra.alignment,
        profile.max_size if extra.max_size is None else extra.max_size,
        host=extra.host,
        alloc_size=extra.alloc_size,
        family=extra.family,
        rule=extra.rule(profile.has) if extra.rule is not None else None,
        alloc_more=extra.alloc_more,
        slack=extra.slack,
    )


def alloc_rule(buft: BufferType) -> str:
    """The bytes that a tensor takes in a buffer type, in words."""
    parts = ["ggml_nbytes"]
    if buft.row_padding:
        parts.append(f"quantized rows padded to {buft.row_padding}")
    if buft.alloc_size is not None and buft.alloc_more:
        parts.append(buft.alloc_more)
    return ", ".join(parts)


class Ops(NamedTuple):
    """What a device says of ops: the answer for every op key, the rules that some have, and one for all of them."""

    table: bytearray
    rules: dict[int, OpRule]
    check: OpRule | None


def profile_ops(profile: Profile, buft: BufferType, hardware: Hardware) -> Ops:
    """The profile's."""
    table = op_table((), profile.others)
    for key, rule in profile.rules.items():
        table[key] = YES if rule is ALWAYS else NO if rule is NEVER else RULE
    rules = {key: rule.ask for key, rule in profile.rules.items()}
    return Ops(table, rules, profile.check(buft, hardware) if profile.check is not None else None)


def own_ops(supports: OwnSupports) -> Ops:
    """Those that a scenario lists, or that a real device answered for."""
    if supports.cases is None:
        return Ops(op_table(supports.keys, supports.exclude), {}, None)
    rules = supports.cases.rules()
    return Ops(op_table(rules, False, rules), rules, None)


def with_rules(ops: Ops, supports: OwnSupports) -> Ops:
    """The same with a scenario's rules, which go before."""
    if not supports.rules:
        return ops
    own, always = support_rules(supports.rules)
    table = bytearray(ops.table)
    for key in own:
        table[key] = RULE
    for key in EMPTY_OPS:
        table[key] = YES
    # A rule for every op is none for the ops that compute nothing, which all devices have.
    of_all = always and (lambda op: None if op.op in EMPTY_OPS else always(op))
    checks = [check for check in (ops.check, of_all) if check is not None]
    return Ops(table, ops.rules | own, in_turn(checks) if checks else None)


def make_device(
    profile: Profile,
    name: str,
    buft: BufferType,
    bufts: Collection[BufferType] = (),
    *,
    supports: OwnSupports | None = None,
    memory: int | None = None,
    op_rules: OpRules = SHARED,
) -> Device:
    """The engine's device for a profile. `supports` replaces the profile's ops and rules, or some of them; `bufts` are
    the further buffer types it can use, `op_rules` those of its release's kernels.
    """
    hardware = Hardware(profile.has, profile.max_tensor_size)
    ops = profile_ops(profile, buft, hardware) if supports is None or supports.profile else own_ops(supports)
    if supports is not None:
        ops = with_rules(ops, supports)
    return Device(
        name,
        profile.type,
        buft,
        ops.table,
        ops.rules,
        bufts,
        profile.any_host,
        profile.offload_min_batch,
        profile.batch_size,
        profile.events,
        memory,
        ops.check,
        profile.copies_async,
        profile.sets_async,
        profile.graph_optimize,
        op_rules,
        profile.unsupported,
    )


class ReleaseProfiles(Mapping[str, Profile]):
    """The profiles of a release by name. Each is made, and its device's module imported, when it is asked for."""

    def __init__(self, makers: Mapping[str, Callable[[], Profile]]) -> None:
        self._makers = makers
        self._made: dict[str, Profile] = {}

    def __getitem__(self, name: str) -> Profile:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def changed(self, ggml: str, changes: Mapping[str, Callable[[Profile], Profile]]) -> ReleaseProfiles:
        """Those of the release `ggml`, which are these with changes."""

        def made(name: str) -> Profile:
            change = changes.get(name)
            return replace(self[name] if change is None else change(self[name]), ggml=ggml)

        return ReleaseProfiles({name: partial(made, name) for name in self})
