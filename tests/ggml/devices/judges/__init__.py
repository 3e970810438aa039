"""ggml's own functions about devices, cut out of its source and compiled for the CPU: judges where no device is."""
