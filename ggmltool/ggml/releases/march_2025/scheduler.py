"""ggml_backend_sched of March 2025: that of today by the rules of then, over an allocator without chunks."""

from __future__ import annotations

from ggmltool.ggml.releases.march_2025.gallocr import UnchunkedGallocr
from ggmltool.ggml.sched.scheduler import Scheduler
from ggmltool.ggml.version import RELEASES


class FixedInputsScheduler(Scheduler):
    """A ggml_backend_sched of March 2025."""

    release = RELEASES["2025-03"]
    gallocr_class = UnchunkedGallocr
