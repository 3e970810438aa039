"""The memory image of a point: ggml's structs as bytes, at simulated addresses."""
