"""`place`: where llama.cpp would put a captured model, and whether it fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ggmltool.ask.place.options import RULES, PlaceRequest

if TYPE_CHECKING:
    from ggmltool.ask.answer import Answer
    from ggmltool.ask.place.record import PlacementShown
    from ggmltool.inspect.opened import Opened


class PlaceQuestion(PlaceRequest["PlacementShown"], frozen=True):
    """Show where llama.cpp would put a captured model with these options, and whether that fits.

    The scenario is a capture (`ggmltool capture`), wherever its tensors are; neither llama.cpp nor a GPU is needed. For
    a MODEL.gguf the graph is captured first, with the options from -c to --outputs (needs the extra llama). Weights,
    caches, user assignments and the scheduler's options follow llama.cpp's rules.

    MEMORY of a device is what is free on it; a placement fits if a margin of that is left. Exit status 1: it does not
    fit. With -o FILE.json or FILE.json.gz the placed scenario is written, for all other commands.

    With --fit (or -ngl auto) llama.cpp's own choice comes first: what it would set for these devices, what it measures
    on the way, and its words. Exit status 1: it gives up.

    \b
    Example:
      ggmltool place -ngl 9 --device CUDA0:2GiB gemma-3-270m
      ggmltool place -ts 3,1 -ot 'ffn_.*=CPU' --tensors gemma-3-270m
      ggmltool place -ngl 9 -f scenario gemma-3-270m | ggmltool splits -
      ggmltool place -ngl 20 -c 8192 --device CUDA0:24GiB,CUDA1:8GiB model.gguf
      ggmltool place --fit --fit-target 1024,512 --device CUDA0:24GiB,CUDA1:8GiB model.gguf
    """

    formats: ClassVar[tuple[str, ...]] = ("text", "json", "csv", "scenario")
    formats_help: ClassVar[str] = "Text (default), JSON or CSV with exact bytes, or the placed scenario."
    endings: ClassVar[tuple[str, ...]] = (".json", ".yaml", ".yml")
    raises: ClassVar[str] = "InspectError for options that cannot be, or a graph that is not one of llama.cpp's."

    def ask(self, opened: Opened) -> Answer[PlacementShown]:
        """The placement of a capture; where --fit chooses it, of the context that it has. Raises InspectError."""
        from ggmltool.ask.place.chosen import choose
        from ggmltool.ask.place.record import place
        from ggmltool.state.errors import InspectError

        opened.refuse_older(RULES)
        if not self.fits:
            return place(opened, self)
        n_ctx = opened.model.meta.get("n_ctx")
        chosen = choose(lambda _: opened, self, n_ctx if isinstance(n_ctx, int) else 0)
        if chosen.fitted.status == "crash":
            raise InspectError(f"llama.cpp {chosen.fitted.reason}")
        return place(opened, chosen.asked, chosen=chosen)
