"""Logs of GGML_SCHED_DEBUG."""
