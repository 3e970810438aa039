"""What many placements of one model need: all that a search or a table asks for, without the plan's rows and texts."""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.sources.llama.layers import PlaceOptions
from ggmltool.sources.llama.needs import Needs, place_and_measure
from ggmltool.sources.llama.place import Placer


class Measurer:
    """A captured model on its devices, measured in one placement after the other.

    What it says is what `place_and_measure` says, without `plan`. It is for one thread at a time.
    """

    def __init__(self, placer: Placer) -> None:
        self.placer = placer

    def needs(self, options: PlaceOptions, margins: Sequence[int] = (0,)) -> Needs:
        """What the placement by these options needs, and the splits of its graphs; without pipeline copies, if those
        do not fit. Raises PlaceError.
        """
        return place_and_measure(self.placer, options, margins)[1]
