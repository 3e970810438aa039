"""Where llama.cpp would put a captured model, one way or many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from ggmltool.api.result import Result
from ggmltool.inspect.chosen import AUTO_LAYERS, Chosen, FitAsked, choose
from ggmltool.inspect.errors import InspectError
from ggmltool.inspect.placed import place as find_place
from ggmltool.inspect.placing import DEFAULT_MARGIN, Asked, Common, read_margins

if TYPE_CHECKING:
    from ggmltool.inspect.opened import Opened
    from ggmltool.inspect.placed import Placed
    from ggmltool.inspect.swept import Sweep
    from ggmltool.scenario.spec import ScenarioSpec


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
) -> tuple[Result[Placed], ScenarioSpec]:
    """The placement, and the placed model."""
    from ggmltool.views.place.documents import PlacementDocument
    from ggmltool.views.place.place import place_view

    opened.refuse_older(_RULES)
    common = common_of(options)
    asked = Asked(str(n_gpu_layers), tensor_split, several(override_tensor), n_cpu_moe)
    chosen = _chosen(opened, common, asked) if asked.n_gpu_layers == AUTO_LAYERS else None
    found = find_place(opened, common, asked if chosen is None else chosen.asked)
    placed = found.placed
    result = Result(
        f"placement of {opened.title}, {found.words}",
        placed,
        partial(PlacementDocument.of, placed, chosen),
        partial(place_view, placed, opened.title, found.words),
        tuple(placed.tensors),
        found.plan,
    )
    return result, found.model


def _chosen(opened: Opened, common: Common, asked: Asked) -> Chosen:
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
) -> Result[Sweep]:
    from ggmltool.inspect.swept import Graph, most_layers, varied
    from ggmltool.inspect.swept import sweep as find_best
    from ggmltool.views.place.documents import SweepDocument
    from ggmltool.views.place.sweep import sweep_view

    for one in opened:
        one.refuse_older(_RULES)
    graphs = [Graph(one, {}) for one in opened]
    ways = varied(most_layers(graphs), n_gpu_layers, several(tensor_split), several(override_tensor), n_cpu_moe)
    found = find_best(graphs, common_of(options), ways, jobs)
    swept, title, again = found
    return Result(
        f"sweep of {title}: {len(swept.swept)} placements",
        swept,
        partial(SweepDocument.of, swept),
        partial(sweep_view, swept, title, again=again),
        tuple(swept.swept),
    )
