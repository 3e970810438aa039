"""Graphs from elsewhere: `llama` captures them from llama.cpp, `sched_log` reads logs, `values` tensors of others."""
