"""ggml 0.26.0, as llama.cpp b11549 carries it; b11434 has the same number, and copies used experts itself."""
