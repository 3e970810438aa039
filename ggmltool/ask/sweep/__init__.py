"""`sweep`: a captured model placed in many ways, and the largest placement that fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from ggmltool.ask.place.options import RULES, Placing, several
from ggmltool.ask.question import Option

if TYPE_CHECKING:
    from ggmltool.ask.answer import Answer
    from ggmltool.ask.sweep.record import SweepShown
    from ggmltool.inspect.opened import Opened


class SweepQuestion(Placing["SweepShown"], frozen=True, kw_only=True):
    """Place a captured model in many ways: splits, copied bytes, memory per device, and the best that fits.

    Every value of -ngl is combined with every -ts, -ot, --n-cpu-moe and scenario; several scenarios are captures of one
    model with different options. For a MODEL.gguf the graph is captured first, once for every combination of the
    options from -c to --outputs, which may have several values (needs the extra llama).

    MEMORY of a device is what is free on it; a placement fits if a margin of that is left. The best one has the most
    layers on GPUs; then the most weights there, the longest context, the most sequences, the largest ubatch, the
    largest cache, and the most memory left on the fullest device. Exit status 1: nothing fits.

    \b
    Example:
      ggmltool sweep -ngl 0..19 --device CUDA0:1764MiB gemma-3-270m
      ggmltool sweep -ngl all -ts 1,1 -ts 3,1 -ot none -ot ffn_down=CPU gemma-3-270m
      ggmltool sweep -ngl 0..18:6 -f csv gemma-3-270m
      ggmltool sweep -ngl 0..33 -ub 256,512,1024 -c 8192 --device CUDA0:24GiB model.gguf
      ggmltool sweep -ngl all --as q4_K_M,q5_K_M,q8_0 -c 8192 --device CUDA0:24GiB model.gguf
      ggmltool sweep -ts auto -c 8192,32768 -ctk f16,q8_0 --device CUDA0:24GiB,CUDA1:8GiB model.gguf
    """

    n_gpu_layers: Annotated[
        str | None, Option("Layers on GPUs: 0..33, 0..32:4, 8,16,all. Default: from 0 to all.", "RANGE", ("-ngl",))
    ] = None
    tensor_split: Annotated[
        str | Sequence[str],
        Option(
            "How GPUs share the layers; may be repeated. auto: for each placement, the split that leaves the fullest "
            "GPU the most memory.",
            "SHARES",
            ("-ts",),
            repeats=True,
        ),
    ] = ()
    override_tensor: Annotated[
        str | Sequence[str],
        Option(
            "Overrides of one placement, or `none`; each further -ot makes another placement.", "REGEX=DEVICE[,…]",
            ("-ot",), repeats=True,
        ),
    ] = ()  # fmt: skip
    n_cpu_moe: Annotated[
        str, Option("Keep the experts of the first N layers on the CPU; a range as for -ngl.", "RANGE", ("-ncmoe",))
    ] = "0"
    jobs: Annotated[
        int | None, Option("Number of processes (default: one for each core).", "N", ("-j",), least=1, most=1024)
    ] = None

    first: ClassVar[tuple[str, ...]] = ("n_gpu_layers", "tensor_split", "override_tensor", "n_cpu_moe")
    raises: ClassVar[str] = "InspectError for options that cannot be, or for too many placements."

    def ask(self, opened: Opened, *others: Opened) -> Answer[SweepShown]:
        """The placements of captures of one model. Raises InspectError."""
        from ggmltool.ask.sweep.record import SweptGraph, most_layers, sweep, varied

        for one in (opened, *others):
            one.refuse_older(RULES)
        graphs = [SweptGraph(one, {}) for one in (opened, *others)]
        splits, overridden = several(self.tensor_split), several(self.override_tensor)
        ways = varied(most_layers(graphs), self.n_gpu_layers, splits, overridden, self.n_cpu_moe)
        return sweep(graphs, self, ways, self.jobs)
