"""The best way to put a model on devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from ggmltool.ask.answer import Answer
from ggmltool.ask.checked import checked
from ggmltool.ask.fit import FitQuestion
from ggmltool.ask.place.options import RULES
from ggmltool.ask.question import described

if TYPE_CHECKING:
    from ggmltool.ask.fit.record import FitShown

P = ParamSpec("P")


def _of_model(question: Callable[P, FitQuestion]) -> Callable[Concatenate[str | Path, P], Answer[FitShown]]:
    @described(question)
    def fit(model: str | Path, /, *args: P.args, **kwargs: P.kwargs) -> Answer[FitShown]:
        """The best way to put a model on devices; the rows are the best placement of each setting, the best of all
        first.

        The model is a GGUF file, or the capture of a graph (a scenario's file, or a sample), whose context cannot be
        changed. What is left out is searched, as by the command: `ggmltool.fit("model.gguf", device="CUDA0:24GiB",
        n_ctx="8192..131072", type_k=("f16", "q8_0")).facts.lines["llama-server"]`. `n_gpu_layers` "all" is all of
        them. `options` are those of captures that are not searched, such as `program` and `kv_unified`; with
        `quantization` the model is what llama-quantize would make of it. What is found is kept in the file `resume`,
        to go on from there. Raises InspectError for options that cannot be, CaptureError where llama.cpp's library is
        missing.
        """
        from ggmltool.api.loading import load
        from ggmltool.ask.fit.record import fit as find
        from ggmltool.sources.llama.model_file import is_model

        asked, opened = question(*args, **kwargs), None
        if not is_model(Path(model)):
            opened = load(model).opened
            opened.refuse_older(RULES)
        flags = {"--as": asked.quantization} if asked.quantization else {}
        wishes = asked.wishes(str(model), opened is not None, flags)
        resume = None if asked.resume is None else Path(asked.resume)
        return find(wishes, opened, asked.jobs, progress=asked.progress, resume=resume, top=asked.top)

    return fit


fit = checked(_of_model(FitQuestion))
