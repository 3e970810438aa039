"""The structs of ggml as C lays them out: fields, offsets and sizes, for each ggml whose structs differ."""
