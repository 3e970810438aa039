"""ggml_backend_sched: passes 1 to 4 in `assign`, pass 5 in `split`, the calls in `scheduler`, copying in `compute`."""
