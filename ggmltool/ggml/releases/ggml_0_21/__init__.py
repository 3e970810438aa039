"""ggml 0.21.0, as llama.cpp b10566 carries it."""
