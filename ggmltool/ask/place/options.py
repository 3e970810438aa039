"""What a placement is asked for: llama.cpp's options as values, the devices, and the options as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from ggmltool.ask.question import DEPTH, BadValue, Option, Question, R
from ggmltool.ggml.printable import printable
from ggmltool.show.text import count
from ggmltool.state.errors import InspectError, WrongUse

if TYPE_CHECKING:
    from ggmltool.ggml.releases.release import Release
    from ggmltool.scenario.spec import BackendSpec, ScenarioSpec
    from ggmltool.sources.llama.place.options import Override, PlaceOptions

DEFAULT_MARGIN = (1 << 30,)
"""The default of llama.cpp's --fit-target."""

RULES = "the llama.cpp rules here belong to ggml"
"""Why no other release than the capture's can be asked for."""

AUTO_LAYERS = "auto"
"""-ngl, as it is left to --fit."""

AUTO_SPLIT = "auto"
"""-ts that is searched."""


class Placing(Question[R], frozen=True, kw_only=True):
    """llama.cpp's options that hold for every placement."""

    device: Annotated[
        str | Sequence[str],
        Option(
            "A device as NAME or NAME:MEMORY, where MEMORY is what is free on it: CUDA0:24GiB; or the name it is sold "
            "under: RTX 3090, 2x RTX 3090, Vulkan0=RTX 3090:22GiB (`backends --rates` lists them); here: this machine, "
            "measured; a file with what nvidia-smi or llama-server --list-devices prints. Several are separated by "
            "commas, or the option is repeated; none: no GPU. Default: the scenario's GPUs, else CUDA0.",
            "DEVICE",
            complete="devices",
            repeats=True,
        ),
    ] = ()
    margin: Annotated[
        str | int | Sequence[int],
        Option(
            "Memory that must stay free on each GPU (without a GPU: on the CPU), or a size for each GPU, as "
            "llama.cpp's --fit keeps it: for the driver's context, runtime pools and whatever else no plan has.",
            "SIZE[,…]",
            shows=True,
        ),
    ] = "1GiB"
    split_mode: Annotated[
        Literal["layer", "row", "tensor", "none"],
        Option(
            "Split the layers across GPUs, or every tensor (tensor), or put all on the main GPU (none). row: the rows "
            "of matrices, which today's llama.cpp refuses.",
            names=("-sm",),
        ),
    ] = "layer"
    main_gpu: Annotated[int, Option("The GPU for -sm none.", "N", ("-mg",), least=0, shows=False)] = 0
    cpu_moe: Annotated[bool, Option("Keep the experts of all layers on the CPU.", names=("-cmoe",))] = False
    n_cpu_ffn: Annotated[
        int | None,
        Option(
            "Keep the dense feed-forward weights of the first N layers on the CPU.", "N", ("-ncffn",), least=0,
            most=10_000, shows=False,
        ),
    ] = 0  # fmt: skip
    lazy_mode: Annotated[
        Literal["auto", "on", "off"],
        Option(
            "Read per-layer embeddings from the file as they are needed; they stay on the CPU then. auto: those above "
            "4 GiB.",
            names=("-lzm",),
        ),
    ] = "auto"
    no_kv_offload: Annotated[bool, Option("Keep the KV cache on the CPU.", names=("-nkvo",))] = False
    no_op_offload: Annotated[bool, Option("Do not offload ops whose weights are on the CPU.")] = False
    no_repack: Annotated[bool, Option("Do not use the CPU's extra buffer types (repacking).", names=("-nr",))] = False
    parallel: Annotated[
        bool | None,
        Option(
            "Pipeline copies, or none (default: as llama.cpp decides).",
            names=(" /--no-parallel", "--pipeline/--no-pipeline", "pipeline"),
        ),
    ] = None
    n_depth: Annotated[int, DEPTH] = 0
    n_prompt: Annotated[
        int, Option("Of estimated seconds: the tokens of a prompt.", "N", ("-p",), least=1, most=1 << 30)
    ] = 2048

    of_release = False

    def __post_init__(self) -> None:
        """Raises BadValue for margins that cannot be read."""
        super().__post_init__()
        _ = self.margins

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices as they are named."""
        return several(self.device)

    @property
    def margins(self) -> tuple[int, ...]:
        """What has to stay free, in bytes: a number for each GPU, or one. Raises BadValue."""
        if isinstance(self.margin, str):
            try:
                return read_margins(self.margin)
            except InspectError as error:
                raise BadValue("margin", error.message) from None
        return (self.margin,) if isinstance(self.margin, int) else tuple(self.margin)


def several(value: str | Sequence[str]) -> tuple[str, ...]:
    """One, or some."""
    return (value,) if isinstance(value, str) else tuple(value)


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


def read_fit_target(text: str) -> tuple[int, ...]:
    """--fit-target: MiB for each GPU, or one number for all; GPUs beyond the list keep the default. Raises
    InspectError.
    """
    parts = [part.strip() for part in text.replace("/", ",").split(",")]
    if not all(part.isdecimal() and len(part) < 12 for part in parts):
        raise InspectError(f"{text!r} is not a list of MiB, e.g. 1024 or 1024,512")
    margins = tuple(int(part) << 20 for part in parts)
    return margins if len(margins) == 1 else margins + DEFAULT_MARGIN


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


def overrides(texts: Sequence[str], n_cpu_moe: int, common: Placing[Any]) -> tuple[Override, ...]:
    """What -ot, --cpu-moe, --n-cpu-moe and --n-cpu-ffn override, in this order. Raises InspectError."""
    from ggmltool.sources.llama.errors import PlaceError
    from ggmltool.sources.llama.place import options as rules

    try:
        out = [override for text in texts for override in rules.parse_overrides(text)]
    except PlaceError as error:
        raise InspectError(f"-ot: {error}") from None
    experts = [*([rules.cpu_moe()] if common.cpu_moe else []), *rules.n_cpu_moe(n_cpu_moe)]
    return (*out, *experts, *rules.n_cpu_ffn(common.n_cpu_ffn or 0))


def options_of(
    model: ScenarioSpec,
    common: Placing[Any],
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
    model: ScenarioSpec, common: Placing[Any], n_split: int, note: Callable[[str], None] = lambda text: None
) -> list[BackendSpec]:
    """The devices to place on: those named, else the scenario's, else as many GPUs as -ts has shares.

    `note` is told of a device that is not known. Raises InspectError.
    """
    from ggmltool.scenario.devices.texts import NO_DEVICE

    if not common.device and any(_type(model, b) in ("gpu", "igpu") for b in model.backends):
        return list(model.backends)
    if [name.strip() for name in common.devices] == [NO_DEVICE] and _cpu(model):
        return _cpu(model)
    made = named_devices(common.devices or [f"CUDA{i}" for i in range(max(n_split, 1))])
    for unknown in (b.name for b in made if b.profile == "custom" and b.supports is None):
        note(f"{printable(unknown)} is not a known device (see `ggmltool backends`): it is assumed to support every op")
    n_gpus = sum(_type(model, b) in ("gpu", "igpu") for b in made)
    if n_split > n_gpus:
        raise InspectError(f"-ts has {n_split} shares for {count(n_gpus, 'GPU')}; name every GPU with --device")
    return made if any(_type(model, b) == "cpu" for b in made) else [*made, *_cpu(model)]


def named_devices(texts: Sequence[str], release: Release | None = None) -> list[BackendSpec]:
    """The devices that --device names, as a release has them. Raises InspectError."""
    from ggmltool.scenario.devices.texts import read_devices
    from ggmltool.scenario.errors import Mistake

    try:
        return read_devices(texts, release)
    except Mistake as mistake:
        raise InspectError(
            f"--device: {mistake.message}" + (f"; {mistake.expected}" if mistake.expected else "")
        ) from None


def _cpu(model: ScenarioSpec) -> list[BackendSpec]:
    return [b for b in model.backends if _type(model, b) == "cpu"][-1:]


def _type(model: ScenarioSpec, spec: BackendSpec) -> str:
    from ggmltool.ggml.releases.parts import profiles_of

    return spec.type or profiles_of(model.release)[spec.family].type


def asked(common: Placing[Any], **given: str) -> str:
    """The options as one would write them again: `given` by name, then what differs from its default."""
    words = [f"{name} {value}" for name, value in given.items() if value]
    words += [f"-sm none -mg {common.main_gpu}"] if common.split_mode == "none" else []
    words += [f"-sm {common.split_mode}"] if common.split_mode in ("row", "tensor") else []
    flags = (("--cpu-moe", common.cpu_moe), ("-nkvo", common.no_kv_offload), ("--no-op-offload", common.no_op_offload))
    words += [name for name, on in (*flags, ("--no-repack", common.no_repack)) if on]
    words += [f"--n-cpu-ffn {common.n_cpu_ffn}"] if common.n_cpu_ffn else []
    words += [f"--lazy-mode {common.lazy_mode}"] if common.lazy_mode != "auto" else []
    if common.margins != DEFAULT_MARGIN:
        # Each in the largest unit that leaves it whole.
        units = (("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0))
        margins = (
            next(f"{n >> k}{unit}" for unit, k in units if not n % (1 << k)) if n else "0" for n in common.margins
        )
        words.append(f"--margin {','.join(margins)}")
    if common.parallel is not None:
        words.append("--pipeline" if common.parallel else "--no-pipeline")
    return " ".join(words)


def spelled(words: Mapping[str, str]) -> str:
    """Options as they are written; one without a value is a flag."""
    return " ".join(f"{name} {value}" if value else name for name, value in words.items())


class PlaceRequest(Placing[R], frozen=True):
    """What one placement is asked for: -ngl, -ts, -ot and --n-cpu-moe, as they are written."""

    n_gpu_layers: Annotated[
        int | str | None,
        Option(
            "Layers on GPUs, counted from the last; the output layer is one of them. auto: --fit.", "N|all|auto",
            ("-ngl",), implied="all", shows=True,
        ),
    ] = None  # fmt: skip
    override_tensor: Annotated[
        str | Sequence[str],
        Option(
            "Weights whose name matches REGEX go to DEVICE; the first match wins.",
            "REGEX=DEVICE[,…]",
            ("-ot",),
            repeats=True,
        ),
    ] = ()
    tensor_split: Annotated[
        str,
        Option(
            "How GPUs share the layers, e.g. 3,1 (default: by their memory). auto: the split that leaves the fullest "
            "GPU the most memory.",
            "SHARES",
            ("-ts",),
        ),
    ] = ""
    n_cpu_moe: Annotated[
        int,
        Option(
            "Keep the experts of the first N layers on the CPU.", "N", ("-ncmoe",), least=0, most=10_000, shows=False
        ),
    ] = 0
    fit: Annotated[
        bool,
        Option(
            "Let llama.cpp choose what is not given (-ngl, -ts, -ot, -c of a MODEL.gguf), as its --fit does on these "
            "devices; show its search in its own words.",
            names=("-fit",),
        ),
    ] = False
    fit_target: Annotated[
        str | None,
        Option(
            "With --fit: MiB that must stay free on each GPU, or one number for all (default: 1024).",
            "MiB0,MiB1,…",
            ("-fitt",),
        ),
    ] = None
    fit_ctx: Annotated[
        int | None,
        Option(
            "With --fit: the shortest context that it may set (default: 4096; -c 0: the model's own).", "N",
            ("-fitc",), least=0, most=(1 << 31) - 1,
        ),
    ] = None  # fmt: skip
    tensors: Annotated[bool, Option("Show every tensor with its buffer type and the rule that put it there.")] = False

    first: ClassVar[tuple[str, ...]] = ("n_gpu_layers", "override_tensor", "tensor_split", "n_cpu_moe")

    own_after: ClassVar[str] = "fit_ctx"

    @property
    def margins(self) -> tuple[int, ...]:
        """What has to stay free, in bytes, as --fit-target says where that is given. Raises BadValue."""
        if self.fit_target is None:
            return super().margins
        try:
            return read_fit_target(self.fit_target)
        except InspectError as error:
            raise BadValue("fit_target", error.message) from None

    @property
    def layers(self) -> str:
        """-ngl; what is left out is for --fit to choose, else all."""
        return str(self.n_gpu_layers) if self.n_gpu_layers is not None else AUTO_LAYERS if self.fit else "all"

    @property
    def fits(self) -> bool:
        """Whether llama.cpp's own choice comes first. Raises WrongUse for options that say nothing without it."""
        chosen = self.fit or self.layers == AUTO_LAYERS
        for name, given in (("--fit-target", self.fit_target), ("--fit-ctx", self.fit_ctx)):
            if given is not None and not chosen:
                raise WrongUse(f"{name} belongs to --fit (or -ngl auto)")
        return chosen

    @property
    def searched(self) -> bool:
        """Whether the best -ts is to be found."""
        return self.tensor_split == AUTO_SPLIT

    def options(self, model: ScenarioSpec) -> PlaceOptions:
        """The options as values. Raises InspectError for one that cannot be read."""
        shares = shares_of(self.tensor_split)
        overridden = overrides(several(self.override_tensor), self.n_cpu_moe, self)
        return options_of(model, self, read_layers(self.layers), shares, overridden)

    def words(self, found: Sequence[int] = ()) -> str:
        """The options as one would write them again; `found` is the -ts that was searched."""
        return asked(
            self,
            **{"-ngl": self.layers, "-ts": ",".join(map(str, found)) or self.tensor_split},
            **{"-ot": ",".join(several(self.override_tensor)), "--n-cpu-moe": str(self.n_cpu_moe or "")},
        )


def request_of(common: Placing[Any], **given: Any) -> PlaceRequest[Any]:
    """One placement with options that hold for all."""
    return PlaceRequest(**{name: getattr(common, name) for name in Placing.__struct_fields__} | given)


def shares_of(split: str) -> tuple[float, ...]:
    """-ts as numbers, () if it is left out or searched. Raises InspectError."""
    return () if split in ("", AUTO_SPLIT) else read_split(split)
