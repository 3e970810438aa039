"""The structs of ggml, a file for each ggml whose structs differ."""
