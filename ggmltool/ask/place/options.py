"""What a placement is asked for: llama.cpp's options as values, the devices, and the options as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from ggmltool.ggml.printable import printable
from ggmltool.show.text import count
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.scenario.spec import BackendSpec, ScenarioSpec
    from ggmltool.sources.llama.place.options import Override, PlaceOptions

DEFAULT_MARGIN = (1 << 30,)
"""The default of llama.cpp's --fit-target."""

AUTO_SPLIT = "auto"
"""-ts that is searched."""


class Common(NamedTuple):
    """The options that hold for every placement.

    `margin` is what has to stay free, a number for each GPU or one. Of estimated speeds, `n_depth` are the tokens that
    the caches hold before, `n_prompt` those of a prompt.
    """

    margin: tuple[int, ...] = DEFAULT_MARGIN
    device: tuple[str, ...] = ()
    split_mode: Literal["layer", "row", "tensor", "none"] = "layer"
    main_gpu: int = 0
    cpu_moe: bool = False
    n_cpu_ffn: int = 0
    lazy_mode: Literal["auto", "on", "off"] = "auto"
    no_kv_offload: bool = False
    no_op_offload: bool = False
    no_repack: bool = False
    parallel: bool | None = None
    n_depth: int = 0
    n_prompt: int = 2048


def read_margins(text: str) -> tuple[int, ...]:
    """--margin: sizes by commas; 0 needs no unit. Raises InspectError."""
    from ggmltool.scenario.errors import Mistake
    from ggmltool.scenario.values import as_size

    out = []
    for part in map(str.strip, text.split(",")):
        if part.isdecimal() and part.strip("0"):
            raise InspectError(f"{part} has no unit: {part}MiB, or 0 for no margin")
        try:
            out.append(as_size(part, "a margin"))
        except Mistake as mistake:
            raise InspectError(f"{part!r} is not a size, e.g. 1GiB or 512MiB") from mistake
    return tuple(out)


def read_layers(text: str) -> int:
    """-ngl: a number, or `all`. Raises InspectError."""
    if text == "all":
        return -1
    if text == "auto":
        raise InspectError("auto is what `ggmltool place` has; here it is a number of layers, or all")
    if not text.isdecimal() or len(text) > 6:
        raise InspectError(f"{text!r} is not a number of layers, nor all")
    return int(text)


def read_split(text: str) -> tuple[float, ...]:
    """-ts: shares, by commas (llama.cpp also takes slashes). Raises InspectError."""
    try:
        shares = tuple(float(part) for part in text.replace("/", ",").split(","))
    except ValueError:
        raise InspectError(f"{text!r} is not a list of numbers, e.g. 3,1") from None
    if not all(0 <= share < float("inf") for share in shares) or not any(shares):
        raise InspectError(f"{text!r}: shares must not be negative, nor all 0")
    return shares


def overrides(texts: Sequence[str], n_cpu_moe: int, common: Common) -> tuple[Override, ...]:
    """What -ot, --cpu-moe, --n-cpu-moe and --n-cpu-ffn override, in this order. Raises InspectError."""
    from ggmltool.sources.llama.errors import PlaceError
    from ggmltool.sources.llama.place import options as rules

    try:
        out = [override for text in texts for override in rules.parse_overrides(text)]
    except PlaceError as error:
        raise InspectError(f"-ot: {error}") from None
    experts = [*([rules.cpu_moe()] if common.cpu_moe else []), *rules.n_cpu_moe(n_cpu_moe)]
    return (*out, *experts, *rules.n_cpu_ffn(common.n_cpu_ffn))


def options_of(
    model: ScenarioSpec,
    common: Common,
    n_gpu_layers: int,
    tensor_split: tuple[float, ...],
    overridden: tuple[Override, ...],
) -> PlaceOptions:
    """The options of one placement."""
    from ggmltool.sources.llama.place.options import PlaceOptions

    return PlaceOptions(
        n_gpu_layers=n_gpu_layers,
        split_mode=common.split_mode,
        main_gpu=common.main_gpu,
        tensor_split=tensor_split,
        overrides=overridden,
        offload_kqv=not common.no_kv_offload and model.meta.get("offload_kqv") is not False,
        op_offload=not common.no_op_offload,
        parallel=common.parallel,
        extra_bufts=not common.no_repack,
        lazy_mode=common.lazy_mode,
    )


def devices_of(
    model: ScenarioSpec, common: Common, n_split: int, note: Callable[[str], None] = lambda text: None
) -> list[BackendSpec]:
    """The devices to place on: those named, else the scenario's, else as many GPUs as -ts has shares.

    `note` is told of a device that is not known. Raises InspectError.
    """
    from ggmltool.scenario.devices.texts import NO_DEVICE

    if not common.device and any(_type(model, b) in ("gpu", "igpu") for b in model.backends):
        return list(model.backends)
    if [name.strip() for name in common.device] == [NO_DEVICE] and _cpu(model):
        return _cpu(model)
    made = named_devices(common.device or [f"CUDA{i}" for i in range(max(n_split, 1))])
    for unknown in (b.name for b in made if b.profile == "custom" and b.supports is None):
        note(f"{printable(unknown)} is not a known device (see `ggmltool backends`): it is assumed to support every op")
    n_gpus = sum(_type(model, b) in ("gpu", "igpu") for b in made)
    if n_split > n_gpus:
        raise InspectError(f"-ts has {n_split} shares for {count(n_gpus, 'GPU')}; name every GPU with --device")
    return made if any(_type(model, b) == "cpu" for b in made) else [*made, *_cpu(model)]


def named_devices(texts: Sequence[str]) -> list[BackendSpec]:
    """The devices that --device names. Raises InspectError."""
    from ggmltool.scenario.devices.texts import read_devices
    from ggmltool.scenario.errors import Mistake

    try:
        return read_devices(texts)
    except Mistake as mistake:
        raise InspectError(
            f"--device: {mistake.message}" + (f"; {mistake.expected}" if mistake.expected else "")
        ) from None


def _cpu(model: ScenarioSpec) -> list[BackendSpec]:
    return [b for b in model.backends if _type(model, b) == "cpu"][-1:]


def _type(model: ScenarioSpec, spec: BackendSpec) -> str:
    from ggmltool.ggml.releases.parts import profiles_of

    return spec.type or profiles_of(model.release)[spec.family].type


def asked(common: Common, **given: str) -> str:
    """The options as one would write them again: `given` by name, then what differs from its default."""
    words = [f"{name} {value}" for name, value in given.items() if value]
    words += [f"-sm none -mg {common.main_gpu}"] if common.split_mode == "none" else []
    words += [f"-sm {common.split_mode}"] if common.split_mode in ("row", "tensor") else []
    flags = (("--cpu-moe", common.cpu_moe), ("-nkvo", common.no_kv_offload), ("--no-op-offload", common.no_op_offload))
    words += [name for name, on in (*flags, ("--no-repack", common.no_repack)) if on]
    words += [f"--n-cpu-ffn {common.n_cpu_ffn}"] if common.n_cpu_ffn else []
    words += [f"--lazy-mode {common.lazy_mode}"] if common.lazy_mode != "auto" else []
    if common.margin != DEFAULT_MARGIN:
        # Each in the largest unit that leaves it whole.
        units = (("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0))
        margins = (
            next(f"{n >> k}{unit}" for unit, k in units if not n % (1 << k)) if n else "0" for n in common.margin
        )
        words.append(f"--margin {','.join(margins)}")
    if common.parallel is not None:
        words.append("--pipeline" if common.parallel else "--no-pipeline")
    return " ".join(words)


def spelled(words: Mapping[str, str]) -> str:
    """Options as they are written; one without a value is a flag."""
    return " ".join(f"{name} {value}" if value else name for name, value in words.items())


class PlaceRequest(NamedTuple):
    """What one placement is asked for beside `Common`, as it is written: -ngl, -ts, -ot and --n-cpu-moe."""

    n_gpu_layers: str = "all"
    tensor_split: str = ""
    override_tensor: tuple[str, ...] = ()
    n_cpu_moe: int = 0

    @property
    def searched(self) -> bool:
        """Whether the best -ts is to be found."""
        return self.tensor_split == AUTO_SPLIT

    def options(self, model: ScenarioSpec, common: Common) -> PlaceOptions:
        """The options as values. Raises InspectError for one that cannot be read."""
        shares = shares_of(self.tensor_split)
        overridden = overrides(self.override_tensor, self.n_cpu_moe, common)
        return options_of(model, common, read_layers(self.n_gpu_layers), shares, overridden)

    def words(self, common: Common, found: Sequence[int] = ()) -> str:
        """The options as one would write them again; `found` is the -ts that was searched."""
        return asked(
            common,
            **{"-ngl": self.n_gpu_layers, "-ts": ",".join(map(str, found)) or self.tensor_split},
            **{"-ot": ",".join(self.override_tensor), "--n-cpu-moe": str(self.n_cpu_moe or "")},
        )


def shares_of(split: str) -> tuple[float, ...]:
    """-ts as numbers, () if it is left out or searched. Raises InspectError."""
    return () if split in ("", AUTO_SPLIT) else read_split(split)
