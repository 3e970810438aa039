"""A program that stands still in somebody's gdb, asked through `ggml …` there: what is typed, and what it shows."""
