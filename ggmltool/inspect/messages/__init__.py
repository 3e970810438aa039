"""Which message of ggml's or llama.cpp's a text is, and what to say of it."""
