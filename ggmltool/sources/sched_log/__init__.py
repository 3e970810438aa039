"""Logs of programs that ran with GGML_SCHED_DEBUG: the graphs, splits and nodes they tell of."""
