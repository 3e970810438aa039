"""`import`: what a log of GGML_SCHED_DEBUG tells; and its graphs."""
