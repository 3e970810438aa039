"""The best way to put a model on devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ggmltool.api.placed import Placing, common_of, several
from ggmltool.ask.answer import Answer
from ggmltool.ask.checked import checked
from ggmltool.ask.fit.record import FitShown
from ggmltool.ask.fit.wishes import DEPTH, Ranges, Wishes
from ggmltool.ask.place.options import shares_of
from ggmltool.inspect.ranges import doublings, read_range

if TYPE_CHECKING:
    from ggmltool.sources.llama.capture.options import CaptureOptions
    from ggmltool.sources.llama.search.candidates import Objective, SearchProgress

_MOST = 1 << 31

Numbers = int | str | Sequence[int]
"""A number, some, or a range as the command has it."""


@checked
def fit(
    model: str | Path,
    *,
    objective: Objective = "fastest",
    n_ctx: Numbers = (),
    n_ubatch: Numbers = (),
    n_batch: int = 2048,
    type_k: str | Sequence[str] = "f16",
    type_v: str | Sequence[str] = "f16",
    n_parallel: Numbers = 1,
    flash_attn: Any = "auto",
    n_gpu_layers: Numbers = (),
    tensor_split: str = "",
    override_tensor: str | Sequence[str] = (),
    n_cpu_moe: int | None = None,
    options: CaptureOptions | None = None,
    quantization: str = "",
    jobs: int | None = None,
    resume: str | Path | None = None,
    progress: Callable[[SearchProgress], None] = lambda progress: None,
    **placing: Unpack[Placing],
) -> Answer[FitShown]:
    """The best way to put a model on devices; the rows are the best placement of each setting, the best of all first.

    The model is a GGUF file, or the capture of a graph (a scenario's file, or a sample), whose context cannot be
    changed. What is left out is searched, as by the command: `ggmltool.fit("model.gguf", device="CUDA0:24GiB",
    n_ctx="8192..131072", type_k=("f16", "q8_0")).facts.lines["llama-server"]`. `n_gpu_layers` "all" is all of them.
    `options` are those of captures that are not searched, such as `program` and `kv_unified`; with `quantization` the
    model is what llama-quantize would make of it. What is found is kept in the file `resume`, to go
    on from there. Raises InspectError for
    options that cannot be, CaptureError where llama.cpp's library is missing.
    """
    from ggmltool.ask.fit.record import fit as find

    given: dict[str, Any] = {**placing}
    given.setdefault("n_depth", DEPTH)
    fixed: Any = several(flash_attn)
    ranges = Ranges(
        contexts=_numbers(n_ctx, doubled=True),
        n_batch=n_batch,
        ubatches=_numbers(n_ubatch) or Ranges().ubatches,
        types_k=several(type_k),
        types_v=several(type_v),
        parallel=_numbers(n_parallel),
        flash_attn=fixed,
        layers=(-1,) if n_gpu_layers == "all" else _numbers(n_gpu_layers),
        tensor_split=shares_of(tensor_split),
        override_tensor=several(override_tensor),
        n_cpu_moe=n_cpu_moe,
        n_cpu_ffn=given.pop("n_cpu_ffn", None),
    )
    flags = {"--as": quantization} if quantization else {}
    wishes = Wishes(str(model), ranges, common_of(given), objective, flags=flags, quantization=quantization)
    opened = _opened(model)
    saved = None if resume is None else Path(resume)
    if options is not None:
        wishes = wishes._replace(base=options)
    return find(wishes._replace(captured=opened is not None), opened, jobs, progress=progress, resume=saved)


def _opened(model: str | Path) -> Any:
    """The capture of a graph, None for a model's file. Raises InspectError for one that no rules are known of."""
    from ggmltool.api.loading import load
    from ggmltool.sources.llama.model_file import is_model

    if is_model(Path(model)):
        return None
    opened = load(model).opened
    opened.refuse_older("the llama.cpp rules here belong to ggml")
    return opened


def _numbers(value: Numbers, doubled: bool = False) -> tuple[int, ...]:
    """Raises InspectError."""
    if isinstance(value, int):
        return (value,)
    if not isinstance(value, str):
        return tuple(value)
    first, dots, last = value.partition("..")
    if doubled and dots and first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < _MOST:
        return doublings(int(first), int(last))
    return tuple(read_range(value, _MOST, all=False))
