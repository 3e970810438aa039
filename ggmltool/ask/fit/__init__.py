"""`fit`: the best way to put a model on devices, found by planning, and the line that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from ggmltool.ask.place.options import Placing, several, shares_of
from ggmltool.ask.question import DEPTH, Option
from ggmltool.inspect.ranges import read_range
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.search.candidates import SearchProgress

if TYPE_CHECKING:
    from ggmltool.ask.fit.wishes import Wishes

_MOST = 1 << 31


def _unseen(_: SearchProgress) -> None: ...


class FitQuestion(Placing[Any], frozen=True, kw_only=True):
    """Find the best way to put a model on your devices, and the line that runs it so.

    The model is a GGUF file, of which only the header is read (needs the extra llama), or the capture of a graph, whose
    context cannot be changed. Neither the devices nor the weights are needed. What is not named is searched: layers and
    their split, experts and feed-forward weights on the CPU, ubatch and context. Every placement that could be the best
    is planned as llama.cpp would make it, to the byte.

    MEMORY of a device is what is free on it; a placement fits if a margin of that is left. With -o FILE.json.gz the
    best placement is written as a scenario, for all other commands; with -o FILE.svg a chart. Exit status 1: nothing
    fits.

    \b
    Example:
      ggmltool fit --device CUDA0:24GiB --device CUDA1:8GiB -c 32768 model.gguf
      ggmltool fit --device CUDA0:12GiB -c 8192..131072 --objective longest -ctk f16,q8_0 model.gguf
      ggmltool fit --device CUDA0:24GiB -o placed.json.gz model.gguf
      ggmltool fit --device CUDA0:2GiB gemma-3-270m
    """

    objective: Annotated[
        Literal["fastest", "longest", "smallest", "fewest-splits"],
        Option(
            "What is best: the least time for a prompt and its answer; the longest context; the fewest weights on the "
            "CPU, then the fewest bytes on GPUs; the fewest splits. Of equal ones (times: within 1 %) the fastest, "
            "then that with most room."
        ),
    ] = "fastest"
    n_gpu_layers: Annotated[
        int | str | Sequence[int],
        Option(
            "Layers on GPUs: 20, all, 0..32:4 (default: searched).", "RANGE", ("-ngl",), most=10_000,
            words={"all": -1},
        ),
    ] = ()  # fmt: skip
    tensor_split: Annotated[str, Option("How GPUs share the layers (default: searched).", "SHARES", ("-ts",))] = ""
    override_tensor: Annotated[
        str | Sequence[str],
        Option(
            "Weights whose name matches REGEX go to DEVICE, wherever the rest goes.",
            "REGEX=DEVICE[,…]",
            ("-ot",),
            repeats=True,
        ),
    ] = ()
    n_cpu_moe: Annotated[
        int | None,
        Option(
            "Keep the experts of the first N layers on the CPU (default: searched, part by part).", "N|auto",
            ("-ncmoe",), least=0, most=10_000, words={"auto": None},
        ),
    ] = None  # fmt: skip
    n_cpu_ffn: Annotated[
        int | None,
        Option(
            "Keep the dense feed-forward weights of the first N layers on the CPU (default: searched, part by part).",
            "N|auto", ("-ncffn",), least=0, most=10_000, words={"auto": None},
        ),
    ] = None  # fmt: skip
    n_depth: Annotated[int, DEPTH._replace(implied=0)] = 4096
    """With no tokens in the caches, it would not matter where caches lie."""
    jobs: Annotated[
        int | None, Option("Number of processes (default: one for each core).", "N", ("-j",), least=1, most=1024)
    ] = None
    resume: Annotated[
        str | Path | None,
        Option("Keep what is found in FILE, and go on from there: a search that was ended loses nothing.", "FILE"),
    ] = None
    top: Annotated[int, Option("Placements to list.", "N", least=1, most=1000)] = 5
    n_ctx: int | str | Sequence[int] = ()
    n_ubatch: int | str | Sequence[int] = ()
    n_batch: int = 2048
    type_k: str | Sequence[str] = "f16"
    type_v: str | Sequence[str] = "f16"
    n_parallel: int | str | Sequence[int] = 1
    flash_attn: Any = "auto"
    options: CaptureOptions | None = None
    quantization: str = ""
    progress: Callable[[SearchProgress], None] = _unseen

    formats: ClassVar[tuple[str, ...]] = ("text", "json", "csv", "scenario", "svg", "png", "html")
    formats_help: ClassVar[str] = (
        "Text (default), JSON or CSV with exact bytes, the best placement as a scenario, or a picture: speed and "
        "context."
    )
    endings: ClassVar[tuple[str, ...]] = (".json", ".yaml", ".yml")
    first: ClassVar[tuple[str, ...]] = (
        "objective", "n_gpu_layers", "tensor_split", "override_tensor", "n_cpu_moe", "n_cpu_ffn",
    )  # fmt: skip
    only_python: ClassVar[tuple[str, ...]] = (
        "parallel", "n_ctx", "n_ubatch", "n_batch", "type_k", "type_v", "n_parallel", "flash_attn", "options",
        "quantization", "progress",
    )  # fmt: skip

    def wishes(self, argument: str, captured: bool, flags: Mapping[str, str]) -> Wishes:
        """The search of a model, or of what was `captured` of one; `flags` are the options of captures that are not
        searched, as they are written. Raises InspectError."""
        from ggmltool.ask.fit.wishes import UBATCHES, Ranges, Wishes

        common = {name: getattr(self, name) for name in Placing.__struct_fields__}
        ranges = Ranges(
            contexts=_numbers(self.n_ctx, doubled=True),
            n_batch=self.n_batch,
            ubatches=_numbers(self.n_ubatch) or UBATCHES,
            types_k=several(self.type_k),
            types_v=several(self.type_v),
            parallel=_numbers(self.n_parallel),
            flash_attn=several(self.flash_attn),  # type: ignore[arg-type]
            layers=(-1,) if self.n_gpu_layers == "all" else _numbers(self.n_gpu_layers),
            tensor_split=shares_of(self.tensor_split),
            override_tensor=several(self.override_tensor),
            n_cpu_moe=self.n_cpu_moe,
            n_cpu_ffn=self.n_cpu_ffn,
        )
        return Wishes(
            argument,
            ranges,
            Placing(**common | {"n_cpu_ffn": 0}),
            self.objective,
            captured,
            self.options or CaptureOptions(),
            flags,
            self.quantization,
        )


def _numbers(value: int | str | Sequence[int], doubled: bool = False) -> tuple[int, ...]:
    """Raises InspectError."""
    if isinstance(value, int):
        return (value,)
    return tuple(read_range(value, _MOST, all=False, doubled=doubled) if isinstance(value, str) else value)
