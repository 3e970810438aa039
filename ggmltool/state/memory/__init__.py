"""ggml in memory, of a program or of this process: bytes in, a State out."""
