"""The scheduler of 0.20.2: ggmltool/ggml/sched, whose assign.py has passes 1 to 4 and split.py pass 5."""

from ggmltool.ggml.sched.scheduler import Scheduler

__all__ = ["Scheduler"]
