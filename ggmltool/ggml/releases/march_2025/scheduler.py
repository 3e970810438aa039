"""The scheduler of March 2025: ggmltool/ggml/sched, by the rules of release.py, over the allocator of this folder."""

from __future__ import annotations

from ggmltool.ggml.releases.march_2025.gallocr import Gallocr
from ggmltool.ggml.sched import scheduler


class Scheduler(scheduler.Scheduler):
    """A ggml_backend_sched of March 2025."""

    gallocr_class = Gallocr
