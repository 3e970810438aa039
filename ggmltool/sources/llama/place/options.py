"""llama.cpp's settings of placement: -ngl, -ts, -sm, -mg and -ot; as a command line; the device of each layer."""

from __future__ import annotations

import ctypes
import re
import shlex
import signal
import threading
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, NoReturn

from ggmltool.scenario.spec import BackendSpec
from ggmltool.sources.llama.capture.options import AUTO_PARALLEL, CaptureOptions
from ggmltool.sources.llama.errors import PlaceError

MAX_PATTERN = 1000
"""Characters of a pattern, at most."""

SECONDS = 2.0
"""How long all patterns may search all names; some expressions would take forever."""

_EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
_DENSE = r"\.ffn_(up|down|gate)\."
_NOT_IN_CPP = re.compile(r"\(\?(?![:=!])|\\[AZ]|[*+?}]\+")
_POSIX = {
    "[:digit:]": "0-9",
    "[:alpha:]": "a-zA-Z",
    "[:alnum:]": "a-zA-Z0-9",
    "[:lower:]": "a-z",
    "[:upper:]": "A-Z",
    "[:space:]": r"\s",
    "[:xdigit:]": "0-9a-fA-F",
}


EXPERTS = re.compile(_EXPERTS)
"""The names of experts' weights."""


class Override(NamedTuple):
    """Weights whose name `pattern` is found in go to the buffer type `buft`; `option` is what the user wrote."""

    pattern: re.Pattern[str]
    buft: str
    option: str


def parse_overrides(text: str) -> list[Override]:
    """`REGEX=BUFT[,REGEX=BUFT…]`, as llama.cpp's -ot takes it. Raises PlaceError."""
    out = []
    for part in text.split(","):
        pattern, equals, buft = part.partition("=")
        if not equals or not pattern or not buft:
            raise PlaceError(f"{part!r} is not REGEX=DEVICE; separate several by commas")
        out.append(Override(_compile(pattern), buft, f"-ot {part}"))
    return out


def cpu_moe() -> Override:
    """--cpu-moe: the experts of all layers stay on the CPU."""
    return Override(EXPERTS, "CPU", "--cpu-moe")


def n_cpu_moe(n: int) -> list[Override]:
    """--n-cpu-moe: the experts of the first `n` layers stay on the CPU."""
    return _first_layers(n, _EXPERTS, "--n-cpu-moe")


def n_cpu_ffn(n: int) -> list[Override]:
    """--n-cpu-ffn: the dense feed-forward weights of the first `n` layers stay on the CPU."""
    return _first_layers(n, _DENSE, "--n-cpu-ffn")


def _first_layers(n: int, weights: str, option: str) -> list[Override]:
    layers = "|".join(map(str, range(n)))
    return [Override(re.compile(rf"blk\.({layers}){weights}"), "CPU", f"{option} {n}")] if n else []


def _compile(pattern: str) -> re.Pattern[str]:
    """The pattern in Python's terms; both know ECMAScript's expressions, except for what is refused here."""
    if len(pattern) > MAX_PATTERN:
        raise PlaceError(f"a pattern of {len(pattern)} characters is too long; the limit is {MAX_PATTERN}")
    if found := _NOT_IN_CPP.search(pattern):
        raise PlaceError(f"{pattern!r}: {found[0]!r} is not valid in llama.cpp's regular expressions (ECMAScript)")
    for name, characters in _POSIX.items():
        pattern = pattern.replace(name, characters)
    try:
        with warnings.catch_warnings():
            # Python has plans for some sets of characters; ECMAScript has none.
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise PlaceError(f"{pattern!r} is not a valid regular expression: {error}") from None


def overridden(names: Iterable[str], overrides: Sequence[Override]) -> dict[str, Override]:
    """For each name that some pattern is found in, the first such override. Raises PlaceError if that takes long."""
    if not overrides:
        return {}
    found: dict[str, Override] = {}
    with _limited():
        for name in names:
            for override in overrides:
                if override.pattern.search(name):
                    found[name] = override
                    break
    return found


@contextmanager
def _limited() -> Iterator[None]:
    """A limit of time, where the system has such timers (they ring in the main thread only)."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def too_long(*_: object) -> NoReturn:
        raise PlaceError(f"the patterns of -ot search for longer than {SECONDS:g} s; avoid repeated groups like (a+)+")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


ALL = -1
"""As n_gpu_layers: all layers, the output's too."""


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """llama.cpp's settings of placement, under the names of its parameters.

    `tensor_split` empty: by the devices' free memory. `parallel` None: pipeline copies where llama.cpp makes them.
    `extra_bufts`: weights on the CPU may go to its further buffer types, such as CPU_REPACK. `lazy_mode`: weights that
    are read row by row, as they are needed, stay in the file's pages: all such, those above 4 GiB (auto), or none.
    Without `assigns`, the nodes that llama.cpp assigns itself are not: it forgets them where it only measures (--fit).
    """

    n_gpu_layers: int = ALL
    split_mode: Literal["layer", "row", "tensor", "none"] = "layer"
    main_gpu: int = 0
    tensor_split: tuple[float, ...] = ()
    overrides: tuple[Override, ...] = ()
    offload_kqv: bool = True
    op_offload: bool = True
    parallel: bool | None = None
    extra_bufts: bool = True
    lazy_mode: Literal["auto", "on", "off"] = "auto"
    assigns: bool = True

    def n_gpu(self, n_layer: int) -> int:
        """n_gpu_layers as a number: all layers are one more than the model has, for the output's."""
        return n_layer + 1 if self.n_gpu_layers < 0 else self.n_gpu_layers


@dataclass(frozen=True, slots=True)
class LayerDevices:
    """The device of every layer, by name; `output` is that of the output layer. The input's is always the CPU."""

    layers: tuple[str, ...]
    output: str

    def of(self, il: int) -> str:
        """The device of a layer; of one that the model does not count, that of its last."""
        return self.layers[min(il, len(self.layers) - 1)] if self.layers else self.output


def chosen_gpus(gpus: Sequence[BackendSpec], options: PlaceOptions) -> list[BackendSpec]:
    """The GPUs that llama.cpp uses: all, or with split mode none the main one. Raises PlaceError."""
    if options.split_mode != "none" or not gpus:
        return list(gpus)
    if not 0 <= options.main_gpu < len(gpus):
        raise PlaceError(f"-mg {options.main_gpu}: the GPUs are numbered from 0 to {len(gpus) - 1}")
    return [gpus[options.main_gpu]]


def layer_devices(n_layer: int, gpus: Sequence[BackendSpec], cpu: str, options: PlaceOptions) -> LayerDevices:
    """The last n_gpu_layers layers, the output layer being the very last, go to the GPUs in proportion to the split."""
    n_gpu = options.n_gpu(n_layer)
    first = max(n_layer + 1 - n_gpu, 0)
    n_act = min(n_gpu, n_layer + 1) if gpus else 0
    splits = split_points(gpus, options.tensor_split)
    devices = []
    for il in range(n_layer + 1):
        if il < first or il - first >= n_act:
            devices.append(cpu)
        else:
            devices.append(gpus[bisect_right(splits, f32((il - first) / n_act))].name)
    return LayerDevices(tuple(devices[:-1]), devices[-1])


def split_points(gpus: Sequence[BackendSpec], tensor_split: Sequence[float]) -> list[float]:
    """Where the share of each GPU ends, as a part of 1, in llama.cpp's single precision. Raises PlaceError."""
    shares = [tensor_split[i] if i < len(tensor_split) else 0.0 for i in range(len(gpus))]
    if not any(shares):
        # Where a device does not say what it has, equal shares are as good a guess as any.
        shares = [float(gpu.memory) if gpu.memory else 0.0 for gpu in gpus]
        if not all(shares):
            shares = [1.0] * len(gpus)
    total = 0.0
    points = []
    for share in shares:
        total = f32(total + f32(share))
        points.append(total)
    if gpus and not 0 < total < float("inf"):
        raise PlaceError("-ts needs a share above 0")
    return [f32(point / total) for point in points]


def f32(x: float) -> float:
    """The nearest single-precision number."""
    return ctypes.c_float(x).value


Tool = Literal["llama-server", "llama-cli"]

_DENSE_SINCE = 10809
"""The first build that is known to have -ncffn and -lzm."""
_DEFAULTS = CaptureOptions()
_CPU_FFN = re.compile(r"--n-cpu-ffn (\d+)")
_SHORT = {"--cpu-moe": "-cmoe", "--n-cpu-moe": "-ncmoe", "--n-cpu-ffn": "-ncffn"}


class WrittenOption(NamedTuple):
    """An option as it is written; a flag has no value."""

    name: str
    value: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        return (self.name, self.value) if self.value else (self.name,)


def line(
    tool: Tool,
    model: str,
    capture: CaptureOptions,
    place: PlaceOptions,
    devices: Sequence[str],
    build: str = "",
) -> str:
    """The line to paste into a POSIX shell that runs a model so; `devices` are the names of its GPUs (-dev).

    `build` is llama.cpp's, as b11549 ("": the newest that is known). Nothing is left to --fit.
    """
    settings = [WrittenOption("-m", model), *context_settings(tool, capture), *place_settings(place, devices, build)]
    return shlex.join([tool, *(word for setting in settings for word in setting.words)])


def can_run(tool: Tool, capture: CaptureOptions) -> bool:
    """Whether the tool can be told so: llama-cli has one conversation, and no option for a cache that is shared."""
    return tool == "llama-server" or (capture.n_parallel == 1 and not capture.kv_unified)


def context_settings(tool: Tool, options: CaptureOptions) -> Iterator[WrittenOption]:
    """The options of a context; of several defaults, llama-server's own number of sequences is not ours."""
    yield WrittenOption("-c", str(options.n_ctx))
    if tool == "llama-server":
        # Several sequences that share one cache are what it has without being told.
        alone = options.n_parallel != AUTO_PARALLEL
        if options.kv_unified and alone:
            yield WrittenOption("-kvu")
        if alone or not options.kv_unified:
            yield WrittenOption("-np", str(options.n_parallel))
    n_batch = max(options.n_batch, options.n_ubatch)
    if n_batch != _DEFAULTS.n_batch:
        yield WrittenOption("-b", str(n_batch))
    named = {"-ub": "n_ubatch", "-fa": "flash_attn", "-ctk": "type_k", "-ctv": "type_v"}
    for name, field in named.items():
        if (value := getattr(options, field)) != getattr(_DEFAULTS, field):
            yield WrittenOption(name, str(value))
    if options.swa_full:
        yield WrittenOption("--swa-full")


def place_settings(options: PlaceOptions, devices: Sequence[str], build: str = "") -> Iterator[WrittenOption]:
    """The options of placement, all of them, so that --fit has nothing to change."""
    newest = not build or int(build.removeprefix("b")) >= _DENSE_SINCE
    yield WrittenOption("-dev", ",".join(devices) or "none")
    if devices:
        yield WrittenOption("-ngl", "all" if options.n_gpu_layers == ALL else str(options.n_gpu_layers))
    if options.split_mode != "layer":
        yield WrittenOption("-sm", options.split_mode)
        yield WrittenOption("-mg", str(options.main_gpu))
    elif len(devices) > 1 and options.tensor_split:
        yield WrittenOption("-ts", ",".join(f"{share:g}" for share in options.tensor_split))
    yield from _overrides(options, newest)
    if not options.offload_kqv:
        yield WrittenOption("-nkvo")
    if not options.op_offload:
        yield WrittenOption("--no-op-offload")
    if not options.extra_bufts:
        yield WrittenOption("-nr")
    if newest and options.lazy_mode != "auto":
        yield WrittenOption("-lzm", options.lazy_mode)
    yield WrittenOption("-fit", "off")


def _overrides(options: PlaceOptions, newest: bool) -> Iterator[WrittenOption]:
    """-ot and what is short for it, in the order in which the first match wins."""
    patterns: list[str] = []
    rest: list[WrittenOption] = []
    for option in dict.fromkeys(override.option for override in options.overrides):
        name, _, value = option.partition(" ")
        if name == "-ot":
            patterns.append(value)
        elif (dense := _CPU_FFN.fullmatch(option)) is not None and not newest:
            layers = "|".join(map(str, range(int(dense[1]))))
            rest.append(WrittenOption("-ot", rf"blk\.({layers})\.ffn_(up|down|gate)\.=CPU"))
        else:
            rest.append(WrittenOption(_SHORT[name], value))
    if patterns:
        yield WrittenOption("-ot", ",".join(patterns))
    yield from rest
