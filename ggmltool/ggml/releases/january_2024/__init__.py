"""ggml of January 2024: a scheduler of four passes that measures a graph first, and an allocator without a plan."""
