"""ggml of 2025-03: an allocator without chunks, and splits with a fixed number of inputs."""
