"""Values that another backend computed: npy files in a folder, a GGUF file, a log of llama.cpp's eval callback."""
