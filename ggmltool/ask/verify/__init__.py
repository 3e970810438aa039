"""`verify`: the same scenario on the real library, and what differs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from msgspec import Struct

from ggmltool.ask.answer import Answer

if TYPE_CHECKING:
    from ggmltool.ask.verify.record import Verification
    from ggmltool.inspect.opened import Opened


class Verify(Struct, frozen=True, kw_only=True):
    """Whether to compute `values` (None: where every tensor of the contexts has data), and whether this machine's
    `vulkan` device answers for the scenario's.
    """

    values: bool | None = None
    vulkan: bool = False

    def ask(
        self, opened: Opened, doing: Callable[[str], AbstractContextManager[object]] = nullcontext
    ) -> Answer[Verification]:
        """Do the steps here and on the real library; `doing` shows what is under way.

        Raises InspectError if the library is missing or cannot do it.
        """
        from ggmltool.ask.verify.record import verify

        found = verify(opened.scenario, self.values, doing, self.vulkan)
        return Answer(found, opened.title, fine=found.same and not found.use_after_free)
