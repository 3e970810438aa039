"""The profiles: data that says what a known device is, and how an engine device is made of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ggmltool.ggml.buffer import AllocSize, BufferType
from ggmltool.ggml.device import BatchSize, Device, DeviceType, OpRule, batch_size, op_table
from ggmltool.ggml.devices import blas, cpu, cuda, interfaces
from ggmltool.ggml.devices.interfaces import Interface
from ggmltool.ggml.version import SIZE_MAX, TENSOR_ALIGNMENT


@dataclass(frozen=True, slots=True)
class Profile:
    """What a kind of device is, as of one ggml version.

    `only` limits its ops (None: all), `rules` are conditions on some of them, `check` may refuse any op, given the
    device's own buffer type. `buft` names the default buffer type where it is another device's. `leaves_out` says
    what of the real device the profile does not model. `names` is what its backends are called, `caps` what it can do
    of ggml_backend_dev_caps besides events, `interface` its function tables (None: no device of ggml's), `alloc_more`
    says what `alloc_size` adds to the padding of rows. Sizes are bytes.
    """

    name: str
    type: DeviceType = "gpu"
    buft: str | None = None
    alignment: int = 128
    max_size: int = SIZE_MAX
    row_padding: int = 0
    host: bool = False
    any_host: bool = False
    only: frozenset[int] | None = None
    never: frozenset[int] = frozenset()
    rules: Mapping[int, OpRule] = field(default_factory=dict)
    check: Callable[[BufferType], OpRule] | None = None
    alloc_size: Callable[[int], AllocSize] | None = None
    rule_keys: frozenset[int] | None = None
    offload_min_batch: int | None = None
    batch_size: BatchSize = batch_size
    events: bool = False
    copies_async: bool = False
    ggml: str = "0.20.2"
    leaves_out: str = ""
    names: str = ""
    description: str = ""
    caps: frozenset[str] = frozenset()
    interface: Interface | None = None
    alloc_more: str = ""


CAPS = ("async", "host_buffer", "buffer_from_host_ptr", "events", "mmap_support")
"""ggml_backend_dev_caps."""

PROFILES: dict[str, Profile] = {
    "custom": Profile(
        "custom",
        names="any other name",
        description="a device as the scenario describes it; runs every op unless it says otherwise",
    ),
    "CPU": Profile(
        "CPU",
        type="cpu",
        alignment=TENSOR_ALIGNMENT,
        host=True,
        any_host=True,
        rules=cpu.RULES,
        leaves_out="the extra buffer types (repack, AMX, KleidiAI); declare them under buffer_types",
        names="CPU",
        description="the host; runs nearly every op on host memory of any kind",
        caps=frozenset(("buffer_from_host_ptr", "mmap_support")),
        interface=interfaces.CPU,
    ),
    "BLAS": Profile(
        "BLAS",
        type="accel",
        buft="CPU",
        any_host=True,
        only=frozenset(int(op) for op in blas.RULES),
        rules=blas.RULES,
        names="BLAS",
        description="a BLAS library; large matrix products on host memory",
        caps=frozenset(("buffer_from_host_ptr", "mmap_support")),
        interface=interfaces.BLAS,
    ),
    "CUDA": Profile(
        "CUDA",
        row_padding=cuda.ROW_PADDING,
        never=cuda.NEVER,
        rules=cuda.RULES,
        rule_keys=cuda.RULE_KEYS,
        check=cuda.sources_here,
        alloc_size=cuda.alloc_size,
        offload_min_batch=32,
        events=True,
        copies_async=True,
        leaves_out="architectures before Ampere, MUSA and HIP, the node order of GGML_CUDA_GRAPH_OPT",
        names="CUDA0, CUDA1, …",
        description="an NVIDIA GPU, Ampere or newer, with memory of its own",
        caps=frozenset(("async", "host_buffer", "mmap_support")),
        interface=interfaces.CUDA,
        alloc_more="f16 copies of K and V behind FLASH_ATTN_EXT",
    ),
}
"""The known profiles by name."""

_BY_NAME = (
    (re.compile(r"CPU"), "CPU"),
    (re.compile(r"BLAS"), "BLAS"),
    (re.compile(r"CUDA\d*"), "CUDA"),
)


def profile_of_name(name: str) -> str:
    """The profile of a backend called `name`: "CUDA" for "CUDA0", "custom" for an unknown name."""
    for pattern, profile in _BY_NAME:
        if pattern.fullmatch(name):
            return profile
    return "custom"


def make_buft(
    profile: Profile,
    name: str,
    device: str,
    alignment: int | None = None,
    max_size: int | None = None,
    row_padding: int | None = None,
    host: bool | None = None,
) -> BufferType:
    """The device's own buffer type; what is None comes from the profile."""
    padding = profile.row_padding if row_padding is None else row_padding
    return BufferType(
        name,
        device,
        profile.alignment if alignment is None else alignment,
        profile.max_size if max_size is None else max_size,
        padding,
        profile.host if host is None else host,
        None,
        profile.alloc_size(padding) if profile.alloc_size is not None else None,
        profile.name,
    )


def alloc_rule(buft: BufferType) -> str:
    """The bytes that a tensor takes in a buffer type, in words."""
    parts = ["ggml_nbytes"]
    if buft.row_padding:
        parts.append(f"quantized rows padded to {buft.row_padding}")
    if buft.alloc_size is not None and PROFILES[buft.family].alloc_more:
        parts.append(PROFILES[buft.family].alloc_more)
    return ", ".join(parts)


def make_device(
    profile: Profile,
    name: str,
    buft: BufferType,
    bufts: Iterable[BufferType] = (),
    *,
    type: DeviceType | None = None,
    supports: tuple[frozenset[int], bool] | None = None,
    any_host: bool | None = None,
    offload_min_batch: int | None = None,
    never_offloads: bool = False,
    events: bool | None = None,
    memory: int | None = None,
) -> Device:
    """The engine's device for a profile with what is overridden (None: as the profile says).

    `supports` is (op keys, whether they are the ones it lacks) and replaces the profile's ops and rules; `bufts` are
    the further buffer types it can use.
    """
    rules: Mapping[int, OpRule] = profile.rules
    check = profile.check(buft) if profile.check is not None else None
    if supports is not None:
        table = op_table(*supports)
        rules, check = {}, None
    else:
        keys = rules.keys() if profile.rule_keys is None else profile.rule_keys
        only = profile.only
        table = op_table(profile.never, True, keys) if only is None else op_table(only, False, keys)
    if offload_min_batch is None and not never_offloads:
        offload_min_batch = profile.offload_min_batch
    return Device(
        name,
        profile.type if type is None else type,
        buft,
        table,
        dict(rules),
        bufts,
        profile.any_host if any_host is None else any_host,
        offload_min_batch,
        profile.batch_size,
        profile.events if events is None else events,
        memory,
        check,
        profile.copies_async,
    )
