"""ggml of March 2025: today's scheduler by other rules, over an allocator without chunks."""
