"""Files of a program: its ELF files, which of them have ggml, and core dumps."""
