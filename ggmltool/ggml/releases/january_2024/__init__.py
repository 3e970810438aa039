"""ggml of 2024-01: a scheduler of four passes that measures a graph first, and an allocator without a plan."""
