"""Where llama.cpp would put a captured model, one way or many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from ggmltool.ask.answer import Answer
from ggmltool.ask.place.chosen import AUTO_LAYERS, Chosen, FitAsked, choose
from ggmltool.ask.place.options import DEFAULT_MARGIN, Common, PlaceRequest, read_margins
from ggmltool.ask.place.record import PlacementShown
from ggmltool.ask.place.record import place as find_place
from ggmltool.ask.sweep.record import SweepShown
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.inspect.opened import Opened


_RULES = "the llama.cpp rules here belong to ggml"


class Placing(TypedDict, total=False):
    """llama.cpp's options that hold for every placement, by the names of the commands' options.

    `device` is one or several, as "CUDA0:24GiB"; `margin` what has to stay free on each GPU, as "1GiB" or "1GiB,0".
    Of estimated speeds, `n_depth` are the tokens that the caches hold before, `n_prompt` those of a prompt.
    """

    device: str | Sequence[str]
    margin: str | int
    split_mode: Any
    main_gpu: int
    cpu_moe: bool
    n_cpu_ffn: int
    lazy_mode: Any
    no_kv_offload: bool
    no_op_offload: bool
    no_repack: bool
    parallel: bool | None
    n_depth: int
    n_prompt: int


def common_of(options: Mapping[str, Any]) -> Common:
    """The options as the commands have them. Raises InspectError."""
    given: dict[str, Any] = dict(options)
    wrong = next((name for name in given if name not in Common._fields), None)
    if wrong is not None:
        raise InspectError(f"there is no option {wrong!r}; the options are {', '.join(Common._fields)}")
    margin = given.pop("margin", None)
    margins = DEFAULT_MARGIN if margin is None else (margin,) if isinstance(margin, int) else read_margins(margin)
    return Common(margin=margins, device=several(given.pop("device", ())), **given)


def several(value: str | Sequence[str]) -> tuple[str, ...]:
    """One, or some."""
    return (value,) if isinstance(value, str) else tuple(value)


def place(
    opened: Opened,
    n_gpu_layers: int | str,
    tensor_split: str,
    override_tensor: str | Sequence[str],
    n_cpu_moe: int,
    **options: Unpack[Placing],
) -> Answer[PlacementShown]:
    """The placement."""
    opened.refuse_older(_RULES)
    common = common_of(options)
    asked = PlaceRequest(str(n_gpu_layers), tensor_split, several(override_tensor), n_cpu_moe)
    chosen = _chosen(opened, common, asked) if asked.n_gpu_layers == AUTO_LAYERS else None
    return find_place(opened, common, asked if chosen is None else chosen.asked, chosen=chosen)


def _chosen(opened: Opened, common: Common, asked: PlaceRequest) -> Chosen:
    """llama.cpp's own choice for the capture. Raises InspectError if llama.cpp would end there."""
    n_ctx = opened.model.meta.get("n_ctx")
    fit = FitAsked(n_ctx if isinstance(n_ctx, int) else 0)
    chosen = choose(lambda _: opened, common, asked, fit)
    if chosen.fitted.status == "crash":
        raise InspectError(f"llama.cpp {chosen.fitted.reason}")
    return chosen


def sweep(
    opened: Sequence[Opened],
    n_gpu_layers: str | None,
    tensor_split: str | Sequence[str],
    override_tensor: str | Sequence[str],
    n_cpu_moe: str,
    jobs: int | None,
    **options: Unpack[Placing],
) -> Answer[SweepShown]:
    from ggmltool.ask.sweep.record import SweptGraph, most_layers, varied
    from ggmltool.ask.sweep.record import sweep as find_best

    for one in opened:
        one.refuse_older(_RULES)
    graphs = [SweptGraph(one, {}) for one in opened]
    ways = varied(most_layers(graphs), n_gpu_layers, several(tensor_split), several(override_tensor), n_cpu_moe)
    return find_best(graphs, common_of(options), ways, jobs)
